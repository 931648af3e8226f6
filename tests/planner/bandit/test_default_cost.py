"""The expected cost of the default configuration: its value, and how often its interval holds the truth."""

from __future__ import annotations

import math

import numpy as np
import pytest

from wattloop_planner.bandit.default_cost import DefaultRun, default_cost_joules, pooled_spread
from wattloop_planner.estimate import Estimate

JOBS = 600
EPOCH_COST = 500.0


@pytest.mark.parametrize(
    ("default_runs", "other_runs", "least", "most"),
    [
        # The prior of the spread is wide, so the interval of few runs holds the truth more often than stated.
        (1, 0, 0.85, 0.97),
        (1, 12, 0.85, 0.97),
        (3, 6, 0.85, 0.97),
        (20, 0, 0.85, 0.97),
    ],
)
def test_the_interval_of_90_percent_holds_the_expected_cost(
    default_runs: int, other_runs: int, least: float, most: float
) -> None:
    """600 jobs whose spread is that of measured trainings: a factor of two around the prior's guess."""
    generator = np.random.default_rng(default_runs * 100 + other_runs)
    held = 0
    for _ in range(JOBS):
        sd = 0.15 * math.exp(0.4 * generator.standard_normal())
        expected = 20.0 * math.exp(sd**2 / 2)
        own = 20.0 * np.exp(sd * generator.standard_normal(default_runs))
        others = 9.0 * np.exp(sd * generator.standard_normal(other_runs))
        found = default_cost_joules(
            [DefaultRun(True, epochs, epochs * EPOCH_COST) for epochs in own.tolist()],
            None,
            spread=pooled_spread([own.tolist(), others.tolist()]),
        )
        assert found is not None
        held += found.low <= expected * EPOCH_COST <= found.high
    assert least <= held / JOBS <= most


def test_the_interval_holds_the_expected_cost_if_epochs_cost_more_in_some_runs_than_in_others() -> None:
    generator, held = np.random.default_rng(0), 0
    for _ in range(JOBS):
        epochs = 20.0 * np.exp(0.15 * generator.standard_normal((2, 3)))
        costs = EPOCH_COST * np.exp(0.4 * generator.standard_normal((2, 3)))
        own = zip(epochs[0].tolist(), costs[0].tolist(), strict=True)
        found = default_cost_joules(
            [DefaultRun(True, each, each * cost) for each, cost in own],
            None,
            spread=pooled_spread(epochs.tolist()),
            epoch_cost_spread=pooled_spread(costs.tolist()),
        )
        assert found is not None
        held += found.low <= 20 * EPOCH_COST * math.exp((0.15**2 + 0.4**2) / 2) <= found.high
    assert 0.85 <= held / JOBS <= 0.97


@pytest.mark.parametrize(("runs", "probability"), [(4, 0.7), (12, 0.5)])
def test_the_interval_holds_the_expected_cost_with_retries(runs: int, probability: float) -> None:
    generator, held, counted = np.random.default_rng(runs), 0, 0
    for _ in range(JOBS):
        reached = (generator.random(runs) < probability).tolist()
        found = default_cost_joules([DefaultRun(each, 20, 100.0) for each in reached], None)
        # A default that never missed is taken to reach always.
        if found is not None and not all(reached):
            counted += 1
            held += found.low <= 100.0 / probability <= found.high
    assert held / counted >= 0.85


def test_more_runs_narrow_the_interval() -> None:
    def width(count: int) -> float:
        found = default_cost_joules([DefaultRun(True, 10, 100.0)] * count, None, spread=pooled_spread([[10.0] * count]))
        assert found is not None
        return found.high / found.low

    assert width(1) > width(2) > width(8)


def test_the_expected_cost_includes_retries_and_starts() -> None:
    runs = [DefaultRun(True, 10, 900.0), DefaultRun(False, 20, 1800.0)]
    of_epochs, of_runs = default_cost_joules(runs, 100.0, Estimate(50.0, 40.0, 70.0)), default_cost_joules(runs, None)
    assert of_epochs is not None
    assert of_runs is not None
    assert (of_epochs.value, of_runs.value) == (3100.0, 2700.0)
    assert of_epochs.high / of_runs.high > 3140 / 2700
    assert default_cost_joules([DefaultRun(False, 20, 1800.0)], None) is None
