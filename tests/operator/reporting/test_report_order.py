"""Reports are ordered by the processes that sent them and their numbers, whatever clocks show."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.backends.model_backend import job
from support.reporting.reporting_api import Api
from wattloop.wire.training_messages import Report
from wattloop_operator.domain.progress import MAX_PROCESSES, Progress
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.local.report_server import local_progress
from wattloop_operator.reconcile.attempt.report_effect import progress_after
from wattloop_operator.reconcile.learning.decision import Attempt, decide
from wattloop_operator.reporting.service import ReportService

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
TARGET = {"metric": "accuracy", "threshold": "0.9", "consecutiveEvaluations": 2}
DECIDED = decide(Snapshot(job(objective={"target": TARGET, "maxEpochs": 50})), Attempt(0, 0, "slot", AT))
# Of each report: the epochs since the one before, and the metric if there was an evaluation.
STEPS = st.lists(st.tuples(st.sampled_from([0.0, 0.25, 1.0]), st.none() | st.floats(0, 1)), min_size=1, max_size=12)


def reports_of(process: str, steps: Sequence[tuple[float, float | None]]) -> list[Report]:
    """The reports of a process, of which the first one tells that it has begun."""
    reports = [Report(process, 1, 0.0)]
    for step, metric in steps:
        before = reports[-1]
        report = replace(before, sequence=before.sequence + 1, epoch=before.epoch + step)
        if metric is not None:
            report = replace(report, metric=metric, evaluations=before.evaluations + 1)
        reports.append(report)
    return [*reports, replace(reports[-1], sequence=reports[-1].sequence + 1, finished=True)]


def progress_of(reports: Sequence[Report]) -> Progress:
    recurrence = DECIDED
    for report in reports:
        # As it is read again after a write.
        progress = Progress.from_wire(progress_after(recurrence, report).to_wire())
        recurrence = recurrence.model_copy(update={"progress": progress})
    return recurrence.progress


@given(STEPS, STEPS, st.data())
def test_any_interleaving_of_two_processes_with_late_repetitions_gives_the_result_of_the_order(
    earlier: list[tuple[float, float | None]], later: list[tuple[float, float | None]], data: st.DataObject
) -> None:
    first, second = reports_of("first", earlier), reports_of("second", later)
    waiting = {"first": iter(first[1:]), "second": iter(second)}
    arrived = [first[0]]
    for name in data.draw(st.permutations(["first"] * (len(first) - 1) + ["second"] * len(second))):
        arrived.append(next(waiting[name]))
        arrived += data.draw(st.lists(st.sampled_from(arrived), max_size=2))
    assert progress_of(arrived) == progress_of([*first, *second])


def test_the_epochs_of_ever_more_processes_add_up_in_bounded_size() -> None:
    # A part of an epoch that decimals cannot represent.
    count, epochs = MAX_PROCESSES + 4, 2 / 3
    progress = progress_of(
        [Report(str(process), number, epoch) for process in range(count) for number, epoch in ((1, 0.0), (2, epochs))]
    )
    assert float(progress.epoch or 0) == pytest.approx(count * epochs)
    assert len(progress.processes) == MAX_PROCESSES
    assert progress.process.id == str(count - 1)


def test_a_process_that_is_started_again_after_the_clock_was_set_back_reaches_the_target(api: Api) -> None:
    def clock() -> Iterator[datetime]:
        yield from (AT + timedelta(minutes=minute) for minute in range(2))
        yield from (AT + timedelta(minutes=minute, hours=-1) for minute in range(30))

    times = clock()
    service = ReportService(local_progress(api.store, lambda: None), api.tokens, utc_now=lambda: next(times))
    name, _ = api.recurrence(progress_deadline_seconds=600)
    for report in (Report("a", 1, 0.0), Report("a", 2, 1.0, metric=0.6, evaluations=1)):
        service.receive("team", name, report)
    for epoch in range(30):
        metric = None if epoch == 0 else 0.6 + 0.39 * epoch / 29
        service.receive("team", name, Report("b", epoch + 1, float(epoch), metric=metric, evaluations=epoch))
    progress = api.progress(name)
    assert progress is not None
    assert (progress.epoch, float(progress.metric or 0), progress.reached) == (30, 0.99, True)
