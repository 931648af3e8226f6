"""Regret curves: the cumulative cost of a policy above that of the best fixed choice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path

from wattloop_research.plots.saved_figures import saved_figure
from wattloop_research.simulation.simulation_summary import costs_by_recurrence
from wattloop_research.simulation.simulator import Scenario, SimulatedAttempt


def regret_curve(scenario: Scenario, attempts: Sequence[SimulatedAttempt]) -> list[float]:
    """Cumulative regret after each recurrence, in expected recurrences of the best fixed choice."""
    costs = costs_by_recurrence(scenario.recurrences, attempts)
    best = [
        scenario.trace.best_fixed_cost_joules(scenario.target_of(i), scenario.max_epochs)
        for i in range(scenario.recurrences)
    ]
    return list(accumulate(cost / expected - 1 for cost, expected in zip(costs, best, strict=True)))


def mean_curve(curves: Sequence[Sequence[float]]) -> list[float]:
    """Mean of curves, with the length of the shortest."""
    return [sum(values) / len(values) for values in zip(*curves, strict=False)]


def write_regret_plot(path: str | Path, title: str, curves: Mapping[str, Sequence[float]]) -> None:
    """Draw one curve per policy.

    Args:
        path: The PNG file.
        title: Title of the figure.
        curves: Mean regret after each recurrence, by policy.

    Raises:
        OperationError: The file cannot be written.
    """
    with saved_figure(path, 8.0, 4.5) as figure:
        axes = figure.subplots()
        for name, curve in curves.items():
            axes.plot(range(1, len(curve) + 1), curve, label=name, linewidth=1.8)
        axes.set_title(title)
        axes.set_xlabel("recurrences")
        axes.set_ylabel("cumulative regret\n(in recurrences of the best fixed choice)")
        axes.set_ylim(bottom=min(0.0, *(min(curve) for curve in curves.values() if curve)))
        axes.legend()
