"""What a later run is stated to cost: it contains what was seen, and 90 % of what comes."""

import csv
import math
from pathlib import Path
from statistics import fmean

import pytest

from support.noisy_jobs import Kind, stated_intervals
from support.test_sets.parameters import exhaustive_after
from wattloop_planner.bandit.epoch_costs import levelled_costs
from wattloop_planner.bandit.named_policies import policy_named
from wattloop_planner.bandit.policy import Arm, DecisionContext
from wattloop_planner.bandit.run_costs import PaidAttempt, RunCosts
from wattloop_planner.estimate import RunCost
from wattloop_planner.observations import Observation, Outcome, StartUp

SHORT = Path(__file__).parents[2] / "data" / "short-epochs" / "perceptron.csv"
SIZES = (8, 16, 32, 64, 128, 256)
GPU = "NVIDIA A100-SXM4-80GB"


def run(epochs: float, joules: float, start: float | None = None, epoch: float | None = None) -> Observation:
    """A run whose time costs nothing."""
    started = None if start is None else StartUp(start, 0.0)
    time = None if epoch is None else 0.0
    return Observation(0, 0, 64, Outcome.REACHED, epochs, joules, 0.0, 300.0, GPU, epoch, time, start_up=started)


def cost_of(*runs: Observation) -> RunCost:
    found = RunCosts([PaidAttempt("default", each) for each in runs], 1.0).of("default", GPU)
    assert found is not None
    return found


@pytest.fixture
def short_epochs() -> list[Observation]:
    """Runs of a perceptron whose epochs take 0.2 s, one of them on a busy machine."""
    with SHORT.open(newline="", encoding="utf-8") as file:
        rows = [{name: float(text) if text else None for name, text in row.items()} for row in csv.DictReader(file)]
    return [
        Observation(
            int(row["recurrence"] or 0),
            0,
            int(row["batch_size"] or 0),
            Outcome.REACHED,
            row["epochs"] or 0.0,
            row["energy_joules"] or 0.0,
            row["time_seconds"] or 0.0,
            400.0,
            GPU,
            row["epoch_energy_joules"],
            row["epoch_time_seconds"],
            start_up=StartUp(row["start_up_energy_joules"] or 0.0, row["start_up_time_seconds"] or 0.0),
        )
        for row in rows
    ]


def arms_after(runs: list[Observation]) -> dict[int, Arm]:
    context = DecisionContext(SIZES, 256, 0.5, len(runs), 0, tuple(runs), 1, gpu_model=GPU, max_epochs=40)
    return {arm.batch_size: arm for arm in policy_named("thompsonSampling").decide(context).arms}


def test_runs_too_short_to_measure_their_epochs_count_as_what_they_cost(short_epochs: list[Observation]) -> None:
    """Six runs of 0.55 to 0.84 kJ and one of 1.76 were believed to cost 2.084 kJ (1.944 to 2.231)."""
    paid = [each.cost_joules(0.5) for each in short_epochs if each.batch_size == 32]
    arm = arms_after(short_epochs)[32]
    assert arm.mean_cost_joules == pytest.approx(fmean(paid), rel=0.02)
    assert arm.low_cost_joules is not None
    assert sum(arm.low_cost_joules <= each <= arm.high_cost_joules for each in paid) == 6
    assert arm.high_cost_joules < 1.2 * max(paid)


def test_an_untried_size_is_expected_from_all_runs_and_not_from_the_slow_ones(short_epochs: list[Observation]) -> None:
    arms = arms_after(short_epochs)
    assert 500 < (arms[8].mean_cost_joules or 0) < 1500


def test_a_division_into_start_and_epochs_that_is_noise_moves_no_cost() -> None:
    """Runs of 3.5 kJ whose epoch cost 70 to 900 J by the division were believed to cost 5.75 kJ (5.49 to 6.03)."""
    epochs = (70.0, 892.0, 400.0, 833.0, 150.0, 1000.0, 300.0, 600.0)
    totals = (3400.0, 3550.0, 2100.0, 4800.0, 3300.0, 3500.0, 3600.0, 3670.0)
    cost = cost_of(*(run(3, total, total - 3 * epoch, epoch) for total, epoch in zip(totals, epochs, strict=True)))
    assert cost.of_run.value == pytest.approx(fmean(totals))
    assert cost.of_run.low < 2200
    assert 4700 < cost.of_run.high < 7000


@pytest.mark.parametrize("starts", [None, (300.0, 250.0, 380.0, 120.0, 330.0)], ids=["no start", "the start is noise"])
def test_runs_that_cost_nearly_the_same_have_a_narrow_interval(starts: tuple[float, ...] | None) -> None:
    """Five runs of 490 to 517 J were believed to cost 491 J (300 to 792)."""
    totals = (490.0, 517.0, 500.0, 495.0, 510.0)
    given = starts or (None,) * 5
    runs = [
        run(3, total, start, None if start is None else (total - start) / 3)
        for total, start in zip(totals, given, strict=True)
    ]
    cost = cost_of(*runs).of_run
    assert cost.value == pytest.approx(fmean(totals))
    assert 430 < cost.low < 490
    assert 517 < cost.high < 590


def test_one_cold_start_is_no_part_of_later_runs() -> None:
    cold, warm = run(8, 9800.0, 9000.0, 100.0), [run(8, 900.0 + each, 100.0 + each, 100.0) for each in range(4)]
    cost = cost_of(cold, *warm)
    assert cost.of_run.value == pytest.approx(900, rel=0.1)
    assert cost.of_run.high < 2000


def test_the_expected_cost_is_known_better_than_a_run_and_never_exactly() -> None:
    runs = [run(10, 1000.0) for _ in range(9)]
    for count in (1, 4, 9):
        cost = cost_of(*runs[:count])
        assert cost.of_run.low < cost.expected.low < cost.expected.value < cost.expected.high < cost.of_run.high
    assert cost.of_run.high / cost.of_run.low < 1.1


def test_retries_of_a_default_that_misses_its_target_are_a_part_of_its_cost() -> None:
    missed = Observation(0, 0, 64, Outcome.EXHAUSTED, 20, 1800.0, 0.0, 300.0, GPU)
    cost, reached = cost_of(run(10, 900.0), missed), cost_of(run(10, 900.0))
    assert cost.of_run.value == 2700
    assert cost.of_run.high / 2700 > reached.of_run.high / 900
    assert RunCosts([PaidAttempt("default", missed)], 1.0).of("default", GPU) is None


def test_a_level_that_all_sizes_share_is_followed_and_one_slow_run_is_not() -> None:
    steady = [(arm, float(arm)) for _ in range(3) for arm in range(2)]
    grown = levelled_costs([*steady, (0, 0.2), (1, 1.2)])
    assert grown.logs == pytest.approx([0.2, 1.2] * 4)
    slow = levelled_costs([*steady, (0, 1.1), (1, 1.0), (0, 0.0)])
    assert slow.since == 0
    assert slow.noise_sd > 0.2


@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize(("jobs", "least", "most"), exhaustive_after([(25, 0.84, 0.96), (500, 0.87, 0.93)]))
def test_90_percent_of_later_runs_are_within_the_stated_interval(
    kind: Kind, jobs: int, least: float, most: float
) -> None:
    stated = [each for seed in range(jobs) for each in stated_intervals(kind, seed)]
    assert least <= fmean(each.contains for each in stated) <= most
    assert math.exp(fmean(math.log(each.width) for each in stated if each.runs >= 4)) < 2.5
