"""Figures of policies: the posterior (interval, observations and choice in each recurrence), and the regret."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wattloop.files.atomic_write import open_atomic_bytes
from wattloop_planner.bandit.configuration import Configuration
from wattloop_planner.bandit.policy import Arm
from wattloop_planner.observations import ParameterValues
from wattloop_research.simulation.simulation_summary import best_fixed_costs, costs_by_recurrence
from wattloop_research.simulation.simulator import Scenario, SimulatedAttempt

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.titlelocation": "left",
    "grid.color": "#e4e8ec",
    "legend.frameon": False,
}
CHOSEN = "#d1495b"
POSTERIOR = "#30638e"
OBSERVED = "#26323d"
MAX_PANELS = 16
COLUMNS = 4
MAX_TICKS = 6


def regret_curve(scenario: Scenario, attempts: Sequence[SimulatedAttempt]) -> list[float]:
    """Cumulative regret after each recurrence, in expected recurrences of the best fixed choice."""
    costs = costs_by_recurrence(scenario.recurrences, attempts)
    pairs = zip(costs, best_fixed_costs(scenario), strict=True)
    return list(accumulate(cost / expected - 1 for cost, expected in pairs))


def mean_curve(curves: Sequence[Sequence[float]]) -> list[float]:
    """Mean of curves, with the length of the shortest."""
    return [sum(values) / len(values) for values in zip(*curves, strict=False)]


def write_regret_plot(path: str | Path, title: str, curves: Mapping[str, Sequence[float]]) -> None:
    """Draw one curve per policy.

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


@contextmanager
def saved_figure(path: str | Path, width_inches: float, height_inches: float) -> Iterator[Figure]:
    """Yield a figure; save it atomically as a PNG if the block ends without an exception.

    Raises:
        OperationError: The file cannot be written.
    """
    # Deferred, because the import takes half a second and most commands draw nothing.
    from matplotlib import rc_context  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    with rc_context(STYLE):
        figure = Figure(figsize=(width_inches, height_inches), layout="constrained")
        yield figure
        content = io.BytesIO()
        figure.savefig(content, format="png", dpi=144)
    with open_atomic_bytes(path) as stream:
        stream.write(content.getvalue())


@dataclass(frozen=True)
class PosteriorPanel:
    """One decision.

    Attributes:
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
            # The common axis names at most `MAX_TICKS` batch sizes.
            step = -(-len(sizes) // MAX_TICKS)
            grid.flat[0].set_xticks(sizes[::step], labels=[str(size) for size in sizes[::step]])
            grid.flat[0].minorticks_off()
        for axes in grid[-1]:
            axes.set_xlabel("batch size")
        of = "the least expected" if means else "the first run"
        figure.supylabel(f"cost of reaching the target (% of {of})")
        figure.legend(handles=_legend(), loc="outside lower center", ncols=5)


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
