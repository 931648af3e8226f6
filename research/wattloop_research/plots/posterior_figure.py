"""A figure of a policy's posterior: interval, observations and choice in each recurrence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from wattloop_planner.bandit.configuration import Configuration
from wattloop_planner.bandit.policy import Arm
from wattloop_planner.observations import ParameterValues
from wattloop_research.plots.saved_figures import CHOSEN, OBSERVED, POSTERIOR, saved_figure

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

MAX_PANELS = 16
COLUMNS = 4
MAX_TICKS = 6


@dataclass(frozen=True)
class PosteriorPanel:
    """One decision.

    Attributes:
        recurrence: The recurrence of the decision.
        arms: The policy's estimates at the decision.
        chosen: The chosen configuration.
        runs: (batch size, cost in joules, whether it reached the target) of each earlier run.
    """

    recurrence: int
    arms: tuple[Arm, ...]
    chosen: Configuration
    runs: tuple[tuple[int, float, bool], ...]


def write_posterior_plot(path: str | Path, title: str, panels: Sequence[PosteriorPanel]) -> None:
    """Draw at most 16 decisions, with increasing distances between them.

    Raises:
        OperationError: The file cannot be written.
    """
    shown = [panels[i] for i in spread_indices(len(panels), MAX_PANELS)]
    rows = max(1, -(-len(shown) // COLUMNS))
    with saved_figure(path, 11.0, 0.9 + 2.3 * rows) as figure:
        figure.suptitle(title)
        grid = figure.subplots(rows, COLUMNS, sharex=True, sharey=True, squeeze=False)
        means = [arm.mean_cost_joules for arm in shown[-1].arms if arm.mean_cost_joules] if shown else []
        paid = [cost for panel in shown for _, cost, _ in panel.runs if cost > 0]
        # A cost weighs energy and time, so it has no unit.
        size = min(means or paid[:1], default=100.0) / 100
        for axes, panel in zip(grid.flat, shown, strict=False):
            _draw(axes, panel, size)
        if means:
            grid.flat[0].set_ylim(5, 20_000)
        for axes in grid.flat[len(shown) :]:
            axes.set_visible(False)
        sizes = sorted({arm.batch_size for panel in shown for arm in panel.arms})
        if sizes:
            _set_ticks(grid.flat[0], sizes)
        for axes in grid[-1]:
            axes.set_xlabel("batch size")
        of = "the least expected" if means else "the first run"
        figure.supylabel(f"cost of reaching the target (% of {of})")
        figure.legend(handles=_legend(), loc="outside lower center", ncols=5)


def _set_ticks(axes: Axes, sizes: Sequence[int]) -> None:
    """Name batch sizes on the common axis, at most `MAX_TICKS` of them."""
    step = -(-len(sizes) // MAX_TICKS)
    axes.set_xticks(sizes[::step], labels=[str(size) for size in sizes[::step]])
    axes.minorticks_off()


def _legend() -> list[Artist]:
    from matplotlib.lines import Line2D  # noqa: PLC0415 - deferred, as in `saved_figure`
    from matplotlib.patches import Patch  # noqa: PLC0415 - as above

    return [
        Line2D([], [], color=POSTERIOR, label="expected cost"),
        Patch(color=POSTERIOR, alpha=0.2, linewidth=0, label="90 % of runs"),
        Line2D([], [], color=OBSERVED, marker="o", markersize=4, linestyle="", label="run that reached the target"),
        Line2D([], [], color=OBSERVED, marker="x", markersize=4, linestyle="", label="run that did not"),
        Line2D([], [], color=CHOSEN, linestyle=(0, (4, 3)), label="chosen batch size"),
    ]


def spread_indices(count: int, max_count: int) -> list[int]:
    """At most ``max_count`` of ``count`` indices, including the first and the last, with increasing distances.

    Example:
        >>> spread_indices(100, 5)
        [0, 2, 9, 31, 99]
    """
    if count <= max_count:
        return list(range(count))
    wanted = [round(count ** (i / (max_count - 1))) - 1 for i in range(max_count)]
    for i in range(1, max_count):
        wanted[i] = max(wanted[i], wanted[i - 1] + 1)
    return [*wanted[:-1], count - 1]


def _draw(axes: Axes, panel: PosteriorPanel, size: float) -> None:
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_title(f"recurrence {panel.recurrence}: chosen {panel.chosen}")
    known: dict[ParameterValues, list[tuple[int, float, float, float]]] = {}
    for arm in panel.arms:
        if not arm.pruned and arm.low_cost_joules and arm.mean_cost_joules and arm.high_cost_joules:
            costs = (arm.low_cost_joules / size, arm.mean_cost_joules / size, arm.high_cost_joules / size)
            known.setdefault(arm.parameters, []).append((arm.batch_size, *costs))
    # One line for each combination of parameters; the chosen one has the interval.
    for parameters, estimates in known.items():
        sizes, low, mean, high = zip(*estimates, strict=True)
        chosen = parameters == panel.chosen.parameters
        # A single batch size has no line.
        marker = "." if len(sizes) == 1 else ""
        axes.plot(sizes, mean, marker=marker, color=POSTERIOR, linewidth=1.4 if chosen else 0.5)
        if chosen:
            axes.fill_between(sizes, low, high, color=POSTERIOR, alpha=0.2, linewidth=0)
    for marker, reached in (("o", True), ("x", False)):
        points = [(batch, cost / size) for batch, cost, arrived in panel.runs if arrived is reached and cost > 0]
        if points:
            sizes, costs = zip(*points, strict=True)
            axes.scatter(sizes, costs, s=12, marker=marker, color=OBSERVED, linewidth=0.8, zorder=3)
    axes.axvline(panel.chosen.batch_size, color=CHOSEN, linewidth=1.2, linestyle=(0, (4, 3)))
