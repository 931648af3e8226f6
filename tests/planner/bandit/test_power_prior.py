"""The prior of what the best power limit saves, against measured trainings."""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from pathlib import Path

import pytest

from wattloop_planner.bandit.power_prior import best_limit_prior

TRACES = Path(__file__).parents[2] / "data/zeus-traces"


@pytest.mark.parametrize("eta", [0.0, 0.25, 0.5, 0.75, 1.0])
@pytest.mark.parametrize("gpu", ["a40", "v100"])
def test_the_interval_of_90_percent_holds_what_the_best_limit_saves(gpu: str, eta: float) -> None:
    measured: dict[tuple[str, ...], dict[float, tuple[float, float]]] = defaultdict(dict)
    with (TRACES / f"summary_power_{gpu}.csv").open() as stream:
        for row in csv.DictReader(stream):
            point = float(row["time_per_epoch"]), float(row["average_power"])
            measured[row["dataset"], row["network"], row["batch_size"]][float(row["power_limit"])] = point
    held = 0
    for points in measured.values():
        highest = max(points)
        costs = {limit: (eta * power + (1 - eta) * highest) * time for limit, (time, power) in points.items()}
        prior = best_limit_prior(eta, points[highest][1] / highest)
        held += abs(math.log(min(costs.values()) / costs[highest]) - prior.mean) <= 1.645 * prior.sd
    assert held / len(measured) >= 0.8
