"""A figure of the frontier, the plans and the baselines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from wattloop.files.atomic_write import open_atomic_bytes
from wattloop_planner.frequency.pipeline.plans import Realised
from wattloop_planner.frequency.solver.planning import Planning
from wattloop_research.frequency.baselines import Baseline
from wattloop_research.frequency.files.plan_file import knobs_of_plan
from wattloop_research.frequency.files.result import read_frontier, read_planned_result
from wattloop_research.frequency.plots.drawing import save_figure, write_png, write_svg

MARKERS = {"max-frequency": "X", "zeus-global": "^", "zeus-per-stage": "v", "envpipe": "D"}
# Beside a run, of the combinations that most of its operations have.
MAX_LABELLED_KNOBS = 3


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


def write_comparison(
    path: str | Path,
    plans: str | Path | None,
    runs: Mapping[int, Realised],
    baselines: Mapping[str, Sequence[Realised]],
    *,
    plan_names: Mapping[int, str],
) -> None:
    """Write the figure as PNG, or as SVG if the path ends with ``.svg``.

    Args:
        path: The picture.
        plans: Folder written by `wattloop plan`; None: only what was measured is drawn.
        runs: Time and energy of an iteration of one pipeline, by number of the run.
        baselines: The same of the runs of baselines, by name.
        plan_names: Name of the plan file of a run, by its number; none of a run without a plan.

    Raises:
        InputError: The folder has no valid result.
        OperationError: The picture cannot be written.
    """
    figure = comparison_figure(plans, runs, baselines, plan_names)
    with open_atomic_bytes(path) as stream:
        if str(path).endswith(".svg"):
            write_svg(figure, stream, "comparison")
        else:
            write_png(figure, stream)


def comparison_figure(
    plans: str | Path | None,
    runs: Mapping[int, Realised],
    baselines: Mapping[str, Sequence[Realised]],
    plan_names: Mapping[int, str],
) -> Figure:
    """A figure of energy against time. The point of each run has its number and the knobs of its plan."""
    figure = Figure(figsize=(9, 5.5), layout="constrained")
    axes = figure.subplots()
    if plans is not None:
        axes.plot(*_coordinates(read_frontier(plans)), color="#555555", lw=1, label="lower bound (relaxation)")
        axes.plot(*_coordinates(read_planned_result(plans).realised), "o", ms=4, label="plans")
    for name, points in baselines.items():
        axes.plot(*_coordinates(points), ".--", lw=1, label=name)
    axes.plot(*_coordinates(runs.values()), "X", ms=8, color="#c0392b", label="runs")
    for number, point in runs.items():
        place = point.time_seconds, point.energy_joules
        axes.annotate(
            _label(plans, number, plan_names.get(number)), place, (6, 6), textcoords="offset points", fontsize=8
        )
    axes.set(xlabel="time of an iteration (s)", ylabel="energy of an iteration of one pipeline (J)")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    return figure


def _label(plans: str | Path | None, run: int, plan_name: str | None) -> str:
    """The number of a run, and the knobs of its plan with the number of operations that have them."""
    path = None if plans is None or plan_name is None else Path(plans) / plan_name
    knobs = knobs_of_plan(path) if path is not None and path.is_file() else Counter[str]()
    lines = [f"{label} ({count})" for label, count in knobs.most_common(MAX_LABELLED_KNOBS)]
    more = ["…"] if len(knobs) > MAX_LABELLED_KNOBS else []
    return "\n".join((str(run), *lines, *more))


def _coordinates(points: Iterable[Realised]) -> tuple[list[float], list[float]]:
    found = list(points)
    return [point.time_seconds for point in found], [point.energy_joules for point in found]
