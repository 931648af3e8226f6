"""The rows of attempts: one of two writers wins, and an outcome ends the reports."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import update

from support.backends.model_backend import job
from wattloop_operator.api.attempt_state import Result
from wattloop_operator.domain.progress import Progress
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.driver import StaleSnapshotError
from wattloop_operator.reconcile.learning.decision import Attempt, decide
from wattloop_operator.store import Store
from wattloop_operator.store.attempt_progress import ENDED_RETENTION, RETENTION, text_of
from wattloop_operator.store.tables import ATTEMPT_PROGRESS

NOW = datetime(2026, 3, 1, 13, 0, tzinfo=UTC)
DECIDED = decide(Snapshot(job()), Attempt(0, 0, "slot", NOW))
ENDED = DECIDED.status.model_copy(update={"result": Result.CRASHED, "message": "exit code 1"})
Write = Callable[[Store, TrainingAttempt], None]


def read(store: Store, attempt: TrainingAttempt = DECIDED) -> TrainingAttempt:
    return store.attempt_progress.attempts([attempt])[0]


def report(store: Store, attempt: TrainingAttempt, *, epoch: int = 1, ending: bool = False) -> None:
    store.attempt_progress.write(attempt, text_of(Progress(epoch=epoch)), ending=ending, now=NOW)


def end(store: Store, attempt: TrainingAttempt) -> None:
    store.attempt_progress.decide(attempt, ENDED, NOW)


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize(("first", "second"), [(report, report), (report, end), (end, report), (end, end)])
def test_of_two_writers_from_one_version_the_second_fails(
    store: Store, first: Write, second: Write, known: bool
) -> None:
    if known:
        report(store, read(store), epoch=7)
    both = read(store)
    assert both.progress_version == int(known)
    first(store, both)
    after = read(store)
    with pytest.raises(StaleSnapshotError):
        second(store, both)
    assert read(store) == after
    assert (after.progress.epoch, after.outcome) == (1 if first is report else 7 if known else None, after.outcome)
    assert after.outcome == (ENDED if first is end else None)


def test_after_an_outcome_no_report_is_written(store: Store) -> None:
    end(store, read(store))
    with pytest.raises(StaleSnapshotError):
        report(store, read(store))
    assert (read(store).progress, read(store).outcome) == (Progress(), ENDED)


def test_the_leader_looks_at_attempts_that_end_until_their_outcome_is_decided(store: Store) -> None:
    assert store.attempt_progress.ending() == frozenset()
    report(store, read(store))
    assert store.attempt_progress.ending() == frozenset()
    report(store, read(store), ending=True)
    assert store.attempt_progress.ending() == {(DECIDED.metadata.namespace, DECIDED.metadata.name, 2)}
    end(store, read(store))
    assert store.attempt_progress.ending() == frozenset()


@pytest.mark.parametrize("text", ['{"epoch": "many"}', "", '{"result": "Vanished"}'])
def test_what_another_version_wrote_and_this_one_cannot_read_is_dropped_and_written_again(
    store: Store, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    report(store, read(store))
    end(store, read(store))
    with store._database.writing("write as another version") as on:
        on.execute(update(ATTEMPT_PROGRESS).values(body=text if "result" not in text else "{}", outcome=text))
    found = read(store)
    assert (found.progress, found.outcome, found.progress_version) == (Progress(), None, 2)
    assert "it is dropped" in caplog.text
    end(store, found)
    assert read(store).outcome == ENDED


@pytest.mark.parametrize(("has_ended", "kept"), [(False, RETENTION), (True, ENDED_RETENTION)])
def test_a_row_is_deleted_with_its_job_or_once_it_is_old(has_ended: bool, kept: timedelta, store: Store) -> None:
    report(store, read(store))
    if has_ended:
        end(store, read(store))
    store.attempt_progress.delete_job("another")
    store.attempt_progress.delete_old(NOW + kept)
    assert read(store).progress_version > 0
    store.attempt_progress.delete_old(NOW + kept + timedelta(seconds=1))
    assert read(store).progress_version == 0
    report(store, read(store))
    store.attempt_progress.delete_job(DECIDED.spec.job_ref.uid)
    assert read(store).progress_version == 0


def test_rows_of_deleted_attempts_are_deleted_by_their_names(store: Store) -> None:
    report(store, read(store))
    job_uid, name = DECIDED.spec.job_ref.uid, DECIDED.metadata.name
    for other in ((job_uid, []), (job_uid, ["another"]), ("another", [name])):
        store.attempt_progress.delete_named(*other)
    assert read(store).progress_version == 1
    store.attempt_progress.delete_named(job_uid, {"another", name})
    assert read(store).progress_version == 0
