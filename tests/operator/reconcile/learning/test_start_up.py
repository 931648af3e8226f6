"""A training that takes long to start: batch sizes are compared by their epochs, and costs include the start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from support.backends.model_backend import KEY, ModelBackend, report
from wattloop_operator.domain.records import ObservationRecord
from wattloop_operator.reconcile.attempt.early_stop import review_cost_limit, with_stop_request
from wattloop_operator.reconcile.attempt.progress import progress_after
from wattloop_operator.reconcile.learning.costs import default_cost

# Epochs to the target, and the joules and seconds of one epoch. A GPU has at most 400 W.
EPOCHS = {16: 12, 32: 5, 64: 10, 128: 16}
EPOCH_JOULES, EPOCH_SECONDS = 3_000.0, 10.0
START_JOULES, START_SECONDS = 30_000.0, 200.0
JOB: dict[str, Any] = {"power": {"limit": {"mode": "None"}}, "maxRecurrences": 60}
Backend = Callable[..., ModelBackend]


def run_attempt(backend: ModelBackend) -> None:
    """One attempt that reports each epoch, until it reaches the target or is stopped."""
    name = backend.start_attempt()
    needed = EPOCHS[backend.recurrences[name].spec.batch_size]
    for epoch in range(1, needed + 1):
        recurrence = backend.recurrences[name]
        received = report(
            sequence=epoch,
            epoch=epoch,
            metric=0.9 * epoch / needed,
            joules=START_JOULES + epoch * EPOCH_JOULES,
            seconds=START_SECONDS + epoch * EPOCH_SECONDS,
            finished=epoch == needed,
        )
        progress = progress_after(recurrence, received)
        progress = review_cost_limit(lambda: backend.snapshot(KEY), recurrence, progress)
        progress = with_stop_request(recurrence, progress)
        status = recurrence.status.model_copy(update={"progress": progress})
        backend.recurrences[name] = backend._versioned(recurrence.model_copy(update={"status": status}))
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
    while len({key[0] for key in backend.records}) < 10:
        run_attempt(backend)
    return backend


def test_the_cheapest_batch_size_is_found_although_the_start_takes_as_much_as_ten_epochs(
    trained: ModelBackend,
) -> None:
    assert [record.batch_size for record in records(trained)[-4:]] == [32] * 4
    assert trained.job.status.best_batch_size == 32


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
    assert expected.value == pytest.approx(cost(64), rel=0.01)
