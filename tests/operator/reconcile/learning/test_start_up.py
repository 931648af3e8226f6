"""A training that takes long to start: batch sizes are compared by their epochs, and costs include the start."""

from collections.abc import Callable
from typing import Any

import pytest

from support.backends.model_backend import KEY, ModelBackend, report
from support.test_sets.parameters import exhaustive_after
from wattloop_operator.api.recurring_training_job_status import BestConfiguration
from wattloop_operator.domain.records import ObservationRecord
from wattloop_operator.reconcile.attempt.early_stop import review_cost_limit, with_stop_request
from wattloop_operator.reconcile.attempt.report_effect import progress_after
from wattloop_operator.reconcile.learning.costs import default_cost

# Epochs to the target, and the joules and seconds of one epoch. A GPU has at most 400 W.
EPOCHS = {16: 12, 32: 5, 64: 10, 128: 16}
EPOCH_JOULES, EPOCH_SECONDS = 3_000.0, 10.0
START_JOULES, START_SECONDS = 30_000.0, 200.0
JOB: dict[str, Any] = {"power": {"mode": "None"}, "maxRecurrences": 60}
Backend = Callable[..., ModelBackend]


def run_attempt(
    backend: ModelBackend, start_joules: float = START_JOULES, start_seconds: float = START_SECONDS
) -> None:
    """One attempt that reports each epoch, until it reaches the target or is stopped."""
    name = backend.start_attempt()
    needed = EPOCHS[backend.recurrences[name].spec.batch_size]
    for epoch in range(1, needed + 1):
        recurrence = backend.recurrences[name]
        received = report(
            sequence=epoch,
            epoch=epoch,
            metric=0.9 * epoch / needed,
            joules=start_joules + epoch * EPOCH_JOULES,
            seconds=start_seconds + epoch * EPOCH_SECONDS,
            finished=epoch == needed,
        )
        progress = progress_after(recurrence, received)
        progress = review_cost_limit(lambda: backend.snapshot(KEY), recurrence, progress)
        progress = with_stop_request(recurrence, progress)
        backend.recurrences[name] = backend._versioned(recurrence.model_copy(update={"progress": progress}))
        if progress.stop_requested:
            break
    backend.end_workload(name)
    backend.reconcile()
    backend.advance(3600)


def records(backend: ModelBackend) -> list[ObservationRecord]:
    return [backend.records[key] for key in sorted(backend.records)]


@pytest.fixture
def trained(backend_with: Backend) -> ModelBackend:
    backend = backend_with(**JOB)
    while len({key[0] for key in backend.records}) < 12:
        run_attempt(backend)
    return backend


def test_the_cheapest_batch_size_is_found_although_the_start_takes_as_much_as_ten_epochs(
    trained: ModelBackend,
) -> None:
    assert [record.batch_size for record in records(trained)[-4:]] == [32] * 4
    assert trained.job.status.best == BestConfiguration(batch_size=32)


def test_no_trial_is_stopped_for_the_cost_of_its_start(trained: ModelBackend) -> None:
    found = [record for record in records(trained) if record.batch_size == 32]
    assert {record.result for record in found} == {"Reached"}


def test_the_record_separates_the_start_from_the_epochs(trained: ModelBackend) -> None:
    record = records(trained)[0]
    assert (record.epoch_energy_joules, record.epoch_time_seconds) == pytest.approx((EPOCH_JOULES, EPOCH_SECONDS))
    assert (record.start_up_energy_joules, record.start_up_time_seconds) == pytest.approx((START_JOULES, START_SECONDS))
    assert record.energy_joules == pytest.approx(START_JOULES + 10 * EPOCH_JOULES)


def test_expected_costs_include_the_start(trained: ModelBackend) -> None:
    def cost(batch_size: int) -> float:
        joules = START_JOULES + EPOCHS[batch_size] * EPOCH_JOULES
        return 0.5 * joules + 0.5 * 400 * (START_SECONDS + EPOCHS[batch_size] * EPOCH_SECONDS)

    beliefs = {arm.batch_size: arm.mean_cost_joules for arm in trained.job.status.arms}
    assert float(beliefs[32] or 0) == pytest.approx(cost(32), rel=0.05)
    snapshot = trained.snapshot(KEY)
    assert snapshot is not None
    expected = default_cost(snapshot)
    assert expected is not None
    assert expected.of_run.value == pytest.approx(cost(64), rel=0.01)


@pytest.mark.parametrize("spec", exhaustive_after([{}, JOB]), ids=["limits are profiled", "one limit"])
@pytest.mark.parametrize("mode", ["Optimize", "Fixed"])
@pytest.mark.parametrize(
    "slow_from", exhaustive_after([1, 0, 6]), ids=["from the second on", "always", "from the seventh on"]
)
def test_a_start_as_expensive_as_a_hundred_epochs_stops_no_job(
    backend_with: Backend, spec: dict[str, Any], mode: str, slow_from: int
) -> None:
    backend = backend_with(**spec, mode=mode)
    runs = 10
    while len({key[0] for key in backend.records}) < runs:
        slow = len({key[0] for key in backend.records}) >= slow_from
        run_attempt(backend, 300_000.0 if slow else 0.0, 2_000.0 if slow else 0.0)
    found = records(backend)
    assert [record.recurrence for record in found if record.result == "Reached"] == list(range(runs))
    # Mode Fixed learns no start: it is stopped once, and its next attempt has no limit.
    stopped = [record for record in found if record.result == "Stopped"]
    assert len(stopped) <= (2 if mode == "Fixed" else 1)


def test_no_attempt_is_stopped_for_its_cost_within_its_first_epoch(backend_with: Backend) -> None:
    backend = backend_with(**JOB)
    run_attempt(backend)
    name = backend.start_attempt()
    recurrence = backend.recurrences[name]
    assert recurrence.spec.stop_cost_joules is not None
    progress = progress_after(recurrence, report(epoch=0, joules=9e6, seconds=9e4))
    progress = review_cost_limit(lambda: backend.snapshot(KEY), recurrence, progress)
    assert not with_stop_request(recurrence, progress).stop_requested
