"""Regret curves: what a policy has paid above the best fixed choice, recurrence after recurrence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path

from wattloop_planner.plots.style import saved_figure
from wattloop_planner.simulation.simulator import Scenario, SimulatedAttempt
from wattloop_planner.simulation.summary import costs_by_recurrence


def regret_curve(scenario: Scenario, attempts: Sequence[SimulatedAttempt]) -> list[float]:
    """Cumulative cost above that of the best fixed choice, in its expected recurrences, after each recurrence."""
    costs = costs_by_recurrence(scenario.recurrences, attempts)
    best = [
        scenario.trace.best_fixed_cost_joules(scenario.target_in_force(i), scenario.max_epochs)
        for i in range(scenario.recurrences)
    ]
    return list(accumulate(cost / least - 1 for cost, least in zip(costs, best, strict=True)))


def mean_curve(curves: Sequence[Sequence[float]]) -> list[float]:
    """Mean of curves, as long as the shortest."""
    return [sum(values) / len(values) for values in zip(*curves, strict=False)]


def write_regret_plot(path: str | Path, title: str, curves: Mapping[str, Sequence[float]]) -> None:
    """Draw one curve a policy.

    Args:
        path: The PNG.
        title: Above the picture.
        curves: Mean regret after each recurrence by the policy's name.

    Raises:
        OperationError: The file cannot be written.
    """
    with saved_figure(path, 8.0, 4.5) as figure:
        axes = figure.subplots()
        for name, curve in curves.items():
            axes.plot(range(1, len(curve) + 1), curve, label=name, linewidth=1.8)
        axes.set_title(title)
        axes.set_xlabel("recurrences")
        axes.set_ylabel("paid above the best fixed choice\n(in runs of it, all together)")
        axes.set_ylim(bottom=min(0.0, *(min(curve) for curve in curves.values() if curve)))
        axes.legend()
