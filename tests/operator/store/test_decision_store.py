"""Decisions with what they were made from: their order, their bound, and how they are made again."""

import json
import sqlite3
from pathlib import Path

import pytest

from support.backends.model_backend import KEY, ModelBackend, job
from wattloop.commands.main import main
from wattloop.errors import InputError
from wattloop_operator.domain.decision_inputs import StoredDecision
from wattloop_operator.store import observation_store, open_store
from wattloop_operator.store.store import Store


def backend_after(count: int) -> ModelBackend:
    """A job of which this many recurrences have reached the target."""
    backend = ModelBackend(job(schedule="*/10 * * * *"))
    for _ in range(count):
        name = backend.start_attempt()
        backend.report(name, epoch=5, metric=0.95, finished=True)
        backend.end_workload(name)
        backend.reconcile()
        backend.advance(600)
    return backend


def store_all(store: Store, backend: ModelBackend) -> list[StoredDecision]:
    decisions = list(backend.decisions.values())
    for inputs in decisions:
        store.decisions.record(inputs)
    for record in backend.records.values():
        store.observations.record(record)
    return decisions


def test_decisions_are_read_in_their_order_and_one_made_again_is_the_latest(store: Store) -> None:
    decisions = store_all(store, backend_after(3))
    uid = decisions[0].job.metadata.uid
    assert store.decisions.of_job(uid) == tuple(decisions)
    store.decisions.record(decisions[0])
    assert store.decisions.of_job(uid) == (*decisions[1:], decisions[0])
    assert store.decisions.jobs() == ((KEY.namespace, KEY.name, uid),)


def test_of_a_job_the_oldest_decisions_are_deleted(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observation_store, "MAX_OBSERVATIONS_OF_JOB", 2)
    decisions = store_all(store, backend_after(4))
    assert store.decisions.of_job(decisions[0].job.metadata.uid) == tuple(decisions[-2:])


@pytest.mark.parametrize("body", [b"", b"x", StoredDecision.to_bytes])
def test_a_row_that_cannot_be_read_is_an_error_that_names_it(body: object) -> None:
    written = body if isinstance(body, bytes) else backend_after(1).decisions[0, 0].to_bytes()[:-9]
    with pytest.raises(InputError, match="row 7: found inputs of a decision that cannot be read"):
        StoredDecision.from_bytes("row 7", written)


def test_a_decision_that_differs_or_cannot_be_made_again_is_told_with_its_cause(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database = tmp_path / "wattloop.db"
    with open_store(database) as store:
        store_all(store, backend_after(3))
    assert main(["replay", str(tmp_path)]) == 0
    assert capsys.readouterr().out.count(": equal\n") == 3
    with sqlite3.connect(database) as on:
        on.execute("UPDATE observations SET energy_joules = 2 * energy_joules WHERE recurrence = 0")
        on.execute("DELETE FROM observations WHERE recurrence = 1")
    assert main(["replay", str(database), "--format", "json", "--job", KEY.name]) == 1
    output = capsys.readouterr()
    first, second, third = json.loads(output.out)["decisions"]
    assert first["equal"]
    assert "decision.digest" in [each["field"] for each in second["differences"]]
    assert third["unknown"] == "it was made from 2 observations, some of which were deleted since"
    assert output.err == "1 of 3 decisions are equal\n"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "name an output folder or a database, or give --policy and --history"),
        (["--policy", "zeus"], 2, "also needs --history, --batch-sizes, --default-batch-size, --output"),
        (["{}", "--policy", "zeus"], 2, "found --policy too, expected either a database or a given history"),
        (["{}"], 1, "found no decisions at all; an earlier version of Wattloop kept none"),
        (["{}", "--job", "other"], 1, "found no decisions of this job"),
    ],
)
def test_without_decisions_or_with_both_inputs_replay_says_what_is_right(
    arguments: list[str], code: int, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    open_store(tmp_path / "wattloop.db").close()
    assert main(["replay", *(each.format(tmp_path) for each in arguments)]) == code
    assert message in capsys.readouterr().err
