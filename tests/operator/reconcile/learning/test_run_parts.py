"""The expected cost of the default configuration, where its first run found nothing cached."""

import csv
from collections.abc import Callable
from pathlib import Path
from statistics import fmean

import pytest

from wattloop_operator.domain.records import ObservationRecord
from wattloop_operator.reconcile.learning.costs import attempt_cost_joules, default_cost_of
from wattloop_planner.bandit.configuration import Configuration
from wattloop_planner.estimate import Estimate

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


def default_cost(records: list[ObservationRecord], batch_size: int = DEFAULT_SIZE) -> Estimate:
    found = default_cost_of(records, (), Configuration(batch_size), ETA)
    assert found is not None
    return found.expected


def test_a_default_that_ran_once_at_first_is_not_expected_to_compile_again(measured: list[ObservationRecord]) -> None:
    """It was said to cost 18.7 kJ, of which another batch size saved 43 % (27 to 56)."""
    later = [each for each in measured if each.batch_size == DEFAULT_SIZE and each.recurrence > 0]
    truth = fmean(attempt_cost_joules(each, ETA) or 0.0 for each in later)
    assert truth == pytest.approx(9838, abs=1)
    known = [each for each in measured if each not in later]
    assert default_cost(known[:1]).value == attempt_cost_joules(known[0], ETA)
    for count in range(3, len(known) + 1):
        expected = default_cost(known[:count])
        assert expected.low < truth < expected.high
    assert expected.value == pytest.approx(truth, rel=0.1)


def test_within_its_only_epoch_a_first_run_may_have_compiled(of_one_epoch: list[ObservationRecord]) -> None:
    """It was said to cost 2.1 kJ (1.1 to 4.2), of which batch size 1024 saved 72 % (46 to 86)."""
    expected = default_cost(of_one_epoch, DEFAULT_OF_ONE_EPOCH)
    assert expected.low < fmean(attempt_cost_joules(each, ETA) or 0.0 for each in of_one_epoch[5:]) < expected.value


def test_later_runs_that_found_the_caches_filled_widen_the_interval(of_one_epoch: list[ObservationRecord]) -> None:
    runs = [each for each in of_one_epoch if each.batch_size == 1024]
    truth = fmean(attempt_cost_joules(each, ETA) or 0.0 for each in runs[1:])
    for count in range(1, len(runs) + 1):
        expected = default_cost(runs[:count], 1024)
        assert expected.low < truth < expected.high, count


def test_a_default_whose_start_is_always_expensive_keeps_its_cost(record: Callable[..., ObservationRecord]) -> None:
    def run(index: int, size: int, start: float) -> ObservationRecord:
        starts = {"start_up_energy_joules": start, "start_up_time_seconds": start / 100}
        return record(index, batch_size=size, energy_joules=start + 1000, time_seconds=10 + start / 100, **starts)

    starts = [(512, 9000.0), (256, 500.0), (512, 9000.0), (256, 500.0), (512, 9000.0), (256, 500.0)]
    records = [run(index, size, start) for index, (size, start) in enumerate(starts)]
    assert default_cost(records).value == pytest.approx(attempt_cost_joules(records[0], ETA), rel=0.05)


def test_epochs_that_cost_more_in_some_runs_widen_the_interval(record: Callable[..., ObservationRecord]) -> None:
    def width(*joules: float) -> float:
        found = default_cost([record(index, batch_size=512, energy_joules=each) for index, each in enumerate(joules)])
        return found.high / found.low

    assert width(2100.0, 5200.0, 3000.0) > 1.3 * width(3400.0, 3400.0, 3400.0)
