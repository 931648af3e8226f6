"""What the status states of the progress, how often it is written, and what happens if the row is lost."""

from decimal import Decimal

import pytest

from support.backends.model_backend import KilledError, ModelBackend, report
from wattloop.wire.training_messages import ProbeReport
from wattloop_operator.api.attempt_state import Result
from wattloop_operator.domain.snapshot import Failure, WorkloadPhase
from wattloop_operator.reconcile.attempt.progress_summary import MAX_INTERVAL, cost_percent, power_watts, summary_of
from wattloop_operator.reconcile.attempt.report_effect import progress_after
from wattloop_operator.reconcile.energy.probe_usage import with_probes
from wattloop_operator.reconcile.energy.recent_power import with_recent_power


def test_a_status_is_written_ever_more_rarely_however_often_a_training_reports(backend: ModelBackend) -> None:
    name, writes = backend.start_attempt(), []
    for second in range(1, 301):
        before = backend.status_writes[name]
        backend.advance(1)
        backend.report(name, sequence=second, epoch=second / 100, joules=300.0 * second, seconds=second)
        wake_at = backend.reconcile()
        assert wake_at is not None
        assert wake_at <= backend.now + MAX_INTERVAL
        if backend.status_writes[name] > before:
            summary = backend.recurrences[name].status.progress
            assert summary is not None
            assert (summary.epoch, summary.energy_joules) == (Decimal(second) / 100, 300 * second)
            assert (summary.time_seconds, summary.last_report_time) == (second, backend.now)
            writes.append(second)
    assert writes == [5, 10, 15, 23, 35, 53, 80, 110, 140, 170, 200, 230, 260, 290]


def test_a_short_attempt_writes_its_progress_with_its_outcome_alone(backend: ModelBackend) -> None:
    name = backend.start_attempt()
    written = backend.status_writes[name]
    backend.report(name, epoch=5, metric=0.95, finished=True)
    backend.end_workload(name)
    backend.reconcile()
    status = backend.recurrences[name].status
    assert status.progress is not None
    assert (status.result, status.progress.epoch, status.progress.metric) == (Result.REACHED, 5, Decimal("0.95"))
    # The condition Ending, and the outcome.
    assert backend.status_writes[name] - written <= 2


def test_after_the_clock_was_set_back_the_next_report_is_stated(backend: ModelBackend) -> None:
    name = backend.start_attempt()
    for sequence, seconds in ((1, 60), (2, -3600), (3, 60)):
        backend.advance(seconds)
        backend.report(name, sequence=sequence, epoch=sequence)
        backend.reconcile()
        summary = backend.recurrences[name].status.progress
        assert summary is not None
        assert (summary.epoch, summary.last_report_time) == (sequence, backend.now)


def test_the_cost_so_far_counts_no_trials_of_probes(backend: ModelBackend) -> None:
    attempt = backend.recurrences[backend.start_attempt()]
    spec = attempt.spec.model_copy(update={"stop_cost_joules": Decimal(10_000)})
    progress = progress_after(attempt, report(joules=1000.0, seconds=10.0))
    attempt = attempt.model_copy(update={"spec": spec, "progress": progress})
    # Half of 1,000 J, and half of 10 s at 400 W.
    assert cost_percent(attempt) == pytest.approx(25)
    probed = with_probes(progress, ProbeReport(4, 200.0, 5.0, ()), restarted=False)
    assert cost_percent(attempt.model_copy(update={"progress": probed})) == pytest.approx(14)


def test_the_power_now_is_that_of_all_gpus_or_not_known(backend: ModelBackend) -> None:
    attempt = backend.recurrences[backend.start_attempt()]
    sent = report(joules=1000.0, seconds=10.0, gpus=2)
    progress = progress_after(attempt, sent)
    assert power_watts(progress) is None
    known = with_recent_power(attempt.progress, progress, sent.gpus, backend.now)
    assert power_watts(known) == 100
    assert power_watts(with_recent_power(attempt.progress, progress, sent.gpus[:1], backend.now)) is None


def test_an_attempt_whose_row_is_lost_goes_on_by_the_next_cumulative_reports(backend: ModelBackend) -> None:
    name = backend.start_attempt()
    backend.report(name, sequence=1, epoch=1, metric=0.5, joules=1000.0, seconds=10.0)
    backend.advance(60)
    backend.reconcile()
    before = backend.recurrences[name].status.progress
    assert before is not None
    backend.lose_database()
    backend.reconcile()
    lost = backend.recurrences[name]
    assert (lost.progress_version, lost.status.progress) == (0, before), "what was written is true still"
    backend.report(name, sequence=2, epoch=2, metric=0.95, joules=2000.0, seconds=20.0, finished=True)
    backend.end_workload(name)
    backend.reconcile()
    record = backend.records[(0, 0)]
    assert (record.result, record.epochs, record.energy_joules, record.time_seconds) == ("Reached", 2, 2000, 20)
    assert record.curve is not None
    assert record.curve.epochs == (2,)
    assert summary_of(backend.recurrences[name], ended=True) == backend.recurrences[name].status.progress


@pytest.mark.parametrize("later", ["the training reports", "its workload runs again", "a user asks for another run"])
def test_an_outcome_that_was_decided_before_a_kill_is_the_one_that_the_next_operator_writes(
    backend: ModelBackend, later: str
) -> None:
    name = backend.start_attempt()
    backend.report(name, sequence=1, epoch=1, metric=0.5)
    backend.end_workload(name, Failure.CRASHED, "exit code 1", exit_code=1)
    backend.killed_once_decided = True
    with pytest.raises(KilledError):
        backend.reconcile()
    assert backend.recurrences[name].status.result is None
    if later == "the training reports":
        backend.report(name, sequence=2, epoch=9, metric=0.99, finished=True)
    elif later == "its workload runs again":
        backend.run_workload(name)
        assert backend.workloads[name].phase is WorkloadPhase.RUNNING
    else:
        backend.change_spec(concurrencyPolicy="Replace", runRequest="again")
    backend.reconcile()
    status = backend.recurrences[name].status
    assert (status.result, status.epochs) == (Result.CRASHED, 1)
    assert (backend.records[(0, 0)].result, backend.records[(0, 0)].epochs) == ("Crashed", 1)
