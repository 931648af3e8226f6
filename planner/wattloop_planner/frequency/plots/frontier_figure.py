"""A figure of the frontier, the plans and the baselines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from wattloop_planner.frequency.baselines import Baseline
from wattloop_planner.frequency.pipeline.plans import Realised
from wattloop_planner.frequency.plots.drawing import save_figure
from wattloop_planner.frequency.solver.planning import Planning

MARKERS = {"max-frequency": "X", "zeus-global": "^", "zeus-per-stage": "v", "envpipe": "D"}


def draw_frontier(folder: Path, planning: Planning, realised: Sequence[Realised], points: Sequence[Baseline]) -> None:
    """Write ``frontier.png`` and ``frontier.svg``."""
    save_figure(frontier_figure(planning, realised, points), folder, "frontier")


def frontier_figure(planning: Planning, realised: Sequence[Realised], points: Sequence[Baseline]) -> Figure:
    """A figure of energy against time."""
    frontier = planning.frontier
    figure = Figure(figsize=(9, 5.5), layout="constrained")
    axes = figure.subplots()
    axes.plot(frontier.times_seconds, frontier.energies_joules, color="#555555", lw=1, label="lower bound (relaxation)")
    axes.plot(
        [found.time_seconds for found in realised],
        [found.energy_joules for found in realised],
        "o",
        ms=4,
        label=f"{len(realised)} plans ({100 * float(planning.gaps.mean()):.2f} % above the bound in the mean)",
    )
    for method, marker in MARKERS.items():
        realised_points = [point.realised for point in points if point.method == method]
        if realised_points:
            times, energies = (
                [getattr(r, name) for r in realised_points] for name in ("time_seconds", "energy_joules")
            )
            axes.plot(times, energies, marker, ms=5, alpha=0.8, label=f"baseline {method}")
    cheapest = int(np.argmin(frontier.energies_joules))
    minimum = "T*: minimum energy, where no other pipeline is waited for"
    axes.axvline(frontier.times_seconds[cheapest], color="#999999", lw=0.8, ls="--", zorder=0, label=minimum)
    axes.annotate("T*", (frontier.times_seconds[cheapest], axes.get_ylim()[1]), ha="center", va="bottom", fontsize=9)
    axes.set(xlabel="time of an iteration (s)", ylabel="energy of an iteration (J)")
    axes.set_title("Frontier of a pipeline's iteration: the least energy for each time", loc="left", pad=18)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    return figure
