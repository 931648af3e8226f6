"""A training that takes long to start: batch sizes are compared by their epochs, and costs include the start."""

import csv
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from support.backends.model_backend import KEY, ModelBackend, backend_with
from support.backends.sample_reports import report
from support.test_sets.parameters import exhaustive_after
from wattloop_operator.api.recurring_training_job_status import BestConfiguration
from wattloop_operator.domain.records import ObservationRecord
from wattloop_operator.reconcile.attempt.early_stop import review_cost_limit, with_stop_request
from wattloop_operator.reconcile.attempt.report_effect import progress_after
from wattloop_operator.reconcile.learning.costs import attempt_cost_joules, default_cost, default_cost_of
from wattloop_planner.bandit.configuration import Configuration
from wattloop_planner.estimate import Estimate

# Epochs to the target, and the joules and seconds of one epoch. A GPU has at most 400 W.
EPOCHS = {16: 12, 32: 5, 64: 10, 128: 16}
EPOCH_JOULES, EPOCH_SECONDS = 3_000.0, 10.0
START_JOULES, START_SECONDS = 30_000.0, 200.0
JOB: dict[str, Any] = {"power": {"mode": "None"}, "maxRecurrences": 60}


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
    backend.end_attempt(name)
    backend.advance(3600)


def records(backend: ModelBackend) -> list[ObservationRecord]:
    return [backend.records[key] for key in sorted(backend.records)]


@pytest.fixture
def trained() -> ModelBackend:
    backend = backend_with(**JOB)
    while len({key[0] for key in backend.records}) < 12:
        run_attempt(backend)
    return backend


def test_the_cheapest_batch_size_is_found_although_the_start_takes_as_much_as_ten_epochs(trained: ModelBackend) -> None:
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
    assert default_cost(trained.state).of_run.value == pytest.approx(cost(64), rel=0.01)


@pytest.mark.parametrize("spec", exhaustive_after([{}, JOB]), ids=["limits are profiled", "one limit"])
@pytest.mark.parametrize("mode", ["Optimize", "Fixed"])
@pytest.mark.parametrize(
    "slow_from", exhaustive_after([1, 0, 6]), ids=["from the second on", "always", "from the seventh on"]
)
def test_a_start_as_expensive_as_a_hundred_epochs_stops_no_job(spec: dict[str, Any], mode: str, slow_from: int) -> None:
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


def test_no_attempt_is_stopped_for_its_cost_within_its_first_epoch() -> None:
    backend = backend_with(**JOB)
    run_attempt(backend)
    recurrence = backend.recurrences[backend.start_attempt()]
    assert recurrence.spec.stop_cost_joules is not None
    progress = progress_after(recurrence, report(epoch=0, joules=9e6, seconds=9e4))
    progress = review_cost_limit(lambda: backend.snapshot(KEY), recurrence, progress)
    assert not with_stop_request(recurrence, progress).stop_requested


MEASURED = Path(__file__).parents[3] / "data" / "compiled-training"
TEXTS = ("result", "decision_kind", "gpu_product")
DEFAULT_SIZE = 512
DEFAULT_OF_ONE_EPOCH = 2048
ETA = 0.5


@pytest.fixture
def measured(record: Callable[..., ObservationRecord]) -> list[ObservationRecord]:
    """A training compiled by PyTorch on an H100, whose first run of each batch size compiled for 20 s."""
    return read_records("h100.csv", record)


@pytest.fixture
def of_one_epoch(record: Callable[..., ObservationRecord]) -> list[ObservationRecord]:
    """A training that reaches its target within its first epoch on an H200, in which its first runs compile for 3 s."""
    return read_records("h200-one-epoch.csv", record)


def read_records(name: str, record: Callable[..., ObservationRecord]) -> list[ObservationRecord]:
    with (MEASURED / name).open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    numbers = [
        {name: text if name in TEXTS else int(text) if text.isdigit() else float(text) for name, text in row.items()}
        for row in rows
    ]
    return [record(**each, power_limit_watts=None) for each in numbers]


def default_estimate(records: list[ObservationRecord], batch_size: int = DEFAULT_SIZE) -> Estimate:
    found = default_cost_of(records, (), Configuration(batch_size), ETA)
    return found.expected


def test_a_default_that_ran_once_at_first_is_not_expected_to_compile_again(measured: list[ObservationRecord]) -> None:
    """It was said to cost 18.7 kJ, of which another batch size saved 43 % (27 to 56)."""
    later = [each for each in measured if each.batch_size == DEFAULT_SIZE and each.recurrence > 0]
    truth = fmean(attempt_cost_joules(each, ETA) or 0.0 for each in later)
    assert truth == pytest.approx(9838, abs=1)
    known = [each for each in measured if each not in later]
    assert default_estimate(known[:1]).value == attempt_cost_joules(known[0], ETA)
    for count in range(3, len(known) + 1):
        expected = default_estimate(known[:count])
        assert expected.low < truth < expected.high
    assert expected.value == pytest.approx(truth, rel=0.1)


def test_within_its_only_epoch_a_first_run_may_have_compiled(of_one_epoch: list[ObservationRecord]) -> None:
    """It was said to cost 2.1 kJ (1.1 to 4.2), of which batch size 1024 saved 72 % (46 to 86)."""
    expected = default_estimate(of_one_epoch, DEFAULT_OF_ONE_EPOCH)
    assert expected.low < fmean(attempt_cost_joules(each, ETA) or 0.0 for each in of_one_epoch[5:]) < expected.value


def test_later_runs_that_found_the_caches_filled_widen_the_interval(of_one_epoch: list[ObservationRecord]) -> None:
    runs = [each for each in of_one_epoch if each.batch_size == 1024]
    truth = fmean(attempt_cost_joules(each, ETA) or 0.0 for each in runs[1:])
    for count in range(1, len(runs) + 1):
        expected = default_estimate(runs[:count], 1024)
        assert expected.low < truth < expected.high, count


def test_a_default_whose_start_is_always_expensive_keeps_its_cost(record: Callable[..., ObservationRecord]) -> None:
    def run(index: int, size: int, start: float) -> ObservationRecord:
        starts = {"start_up_energy_joules": start, "start_up_time_seconds": start / 100}
        return record(index, batch_size=size, energy_joules=start + 1000, time_seconds=10 + start / 100, **starts)

    starts = [(512, 9000.0), (256, 500.0), (512, 9000.0), (256, 500.0), (512, 9000.0), (256, 500.0)]
    records = [run(index, size, start) for index, (size, start) in enumerate(starts)]
    assert default_estimate(records).value == pytest.approx(attempt_cost_joules(records[0], ETA), rel=0.05)


def test_epochs_that_cost_more_in_some_runs_widen_the_interval(record: Callable[..., ObservationRecord]) -> None:
    def width(*joules: float) -> float:
        found = default_estimate(
            [record(index, batch_size=512, energy_joules=each) for index, each in enumerate(joules)]
        )
        return found.high / found.low

    assert width(2100.0, 5200.0, 3000.0) > 1.3 * width(3400.0, 3400.0, 3400.0)
