"""Assigns the groups of a cluster's trace to measured workloads by duration.

As Zeus does for the trace of Alibaba (NSDI '23, section 6.1): the mean durations of the groups are divided into as many
clusters as there are workloads, by k-means, and clusters and workloads are matched in the order of their mean
durations. In one dimension the best clusters are intervals, so they are found exactly, without random starts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from wattloop_research.simulation.cluster_trace import TraceGroup
from wattloop_research.simulation.simulator import Scenario


def clusters_of(values: Sequence[float], count: int) -> list[int]:
    """The cluster of each value, from 0 for the smallest values: least sum of squares of the distances from the means.

    Args:
        values: At least one.
        count: Number of clusters; fewer are used if there are fewer distinct values.

    Example:
        >>> clusters_of([1.0, 100.0, 2.0, 90.0, 9000.0], 3)
        [0, 1, 0, 1, 2]
    """
    distinct = sorted(set(values))
    weights = np.array([values.count(value) for value in distinct], dtype=float)
    points = np.array(distinct)
    starts = _interval_starts(points, weights, min(count, len(distinct)))
    return [int(np.searchsorted(points[starts], value, side="right")) - 1 for value in values]


def _interval_starts(points: np.ndarray, weights: np.ndarray, count: int) -> list[int]:
    """Indices of the first points of the intervals, by dynamic programming over the number of intervals."""
    number = len(points)
    # Around the mean, so that differences of squares keep their digits.
    centred = points - points.mean()
    mass, first, second = (np.array([0.0, *accumulate((weights * centred**power).tolist())]) for power in (0, 1, 2))

    def spread(begin: np.ndarray, end: int) -> np.ndarray:
        moment = first[end] - first[begin]
        return np.asarray(second[end] - second[begin] - moment**2 / (mass[end] - mass[begin]))

    cost = np.array([math.inf] * (number + 1))
    cost[0] = 0.0
    chosen: list[list[int]] = []
    for _ in range(count):
        following, begins = np.full(number + 1, math.inf), [0] * (number + 1)
        for end in range(1, number + 1):
            totals = cost[:end] + spread(np.arange(end), end)
            begins[end] = int(totals.argmin())
            following[end] = totals[begins[end]]
        cost, chosen = following, [*chosen, begins]
    starts, end = [], number
    for begins in reversed(chosen):
        end = begins[end]
        starts.append(end)
    return starts[::-1]


def expected_seconds(scenario: Scenario) -> float:
    """Expected time of a recurrence with the default batch size at the highest limit; infinite if it never reaches."""
    default = scenario.trace.default(scenario.default_batch_size)
    epochs = scenario.trace.expected_cost_joules(
        default.configuration, scenario.target_metric, scenario.max_epochs, default.unoptimised
    )
    return epochs / default.unoptimised.cost_joules * default.unoptimised.time_seconds


def assigned_workloads(groups: Sequence[TraceGroup], seconds: Sequence[float]) -> list[int]:
    """The index of the workload of each group.

    Args:
        groups: The groups.
        seconds: Expected time of a recurrence of each workload.
    """
    order = sorted(range(len(seconds)), key=lambda index: (seconds[index], index))
    return [order[cluster] for cluster in clusters_of([group.mean_seconds for group in groups], len(order))]
