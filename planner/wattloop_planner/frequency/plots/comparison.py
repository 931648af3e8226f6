"""A figure of a frontier, its plans, and what recorded runs took."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from matplotlib.figure import Figure

from wattloop.files.atomic_write import open_atomic_bytes
from wattloop_planner.frequency.files.result import read_frontier, read_result
from wattloop_planner.frequency.pipeline.plans import Realised
from wattloop_planner.frequency.plots.drawing import write_png, write_svg


def write_comparison(path: str | Path, plans: str | Path, runs: Mapping[int, Realised]) -> None:
    """Write the figure as PNG, or as SVG if the path ends with ``.svg``.

    Args:
        path: The picture.
        plans: Folder written by `wattloop plan`.
        runs: Time and energy of an iteration of one pipeline, by number of the run.

    Raises:
        InputError: The folder has no valid result.
        OperationError: The picture cannot be written.
    """
    figure = comparison_figure(plans, runs)
    with open_atomic_bytes(path) as stream:
        if str(path).endswith(".svg"):
            write_svg(figure, stream, "comparison")
        else:
            write_png(figure, stream)


def comparison_figure(plans: str | Path, runs: Mapping[int, Realised]) -> Figure:
    """A figure of energy against time, with a labelled point for each run."""
    frontier = read_frontier(plans)
    realised = read_result(plans).realised
    figure = Figure(figsize=(9, 5.5), layout="constrained")
    axes = figure.subplots()
    axes.plot(*_coordinates(frontier), color="#555555", lw=1, label="lower bound (relaxation)")
    axes.plot(*_coordinates(realised), "o", ms=4, label="plans")
    axes.plot(*_coordinates(runs.values()), "X", ms=8, color="#c0392b", label="runs")
    for number, point in runs.items():
        axes.annotate(str(number), (point.time_seconds, point.energy_joules), (6, 6), textcoords="offset points")
    axes.set(xlabel="time of an iteration (s)", ylabel="energy of an iteration of one pipeline (J)")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    return figure


def _coordinates(points: Iterable[Realised]) -> tuple[list[float], list[float]]:
    found = list(points)
    return [point.time_seconds for point in found], [point.energy_joules for point in found]
