"""Energy and time to the target for every configuration and power limit, with their Pareto front: ``tradeoff.png``."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from wattloop_operator.domain.quantities import Units
from wattloop_operator.history.job_history import JobHistory, once_per_history
from wattloop_operator.plots.figure_style import (
    DASHES,
    LIGHT,
    Theme,
    colours_of,
    label_of,
    new_figure,
    save,
    show_text,
    style,
    svg_of,
)
from wattloop_operator.reconcile.learning import job_observations
from wattloop_operator.reconcile.learning.power_profiles import applicable_profile
from wattloop_planner.bandit.configuration import Configuration
from wattloop_planner.observations import Observation, Outcome

# Of points of the front that are nearer than this fraction of the axis, only one is labelled, so
# that labels do not overlap.
LABEL_HEIGHT = 0.045
# Ticks of a logarithmic axis with a range of less than one or two decades.
TICKS = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0)


@dataclass(frozen=True)
class TradeoffPoint:
    """Energy and time to the target with one configuration at one power limit.

    Attributes:
        configuration: Batch size and parameters.
        power_limit_watts: The limit of each GPU; None if there was none.
        energy_joules: Mean energy to the target.
        time_seconds: Mean time to the target.
        runs: Number of runs that reached the target at this limit. 0 if energy and time follow from
            the power profile.
    """

    configuration: Configuration
    power_limit_watts: float | None
    energy_joules: float
    time_seconds: float
    runs: int


@once_per_history
def tradeoff_points(history: JobHistory) -> tuple[TradeoffPoint, ...]:
    """The points of configurations that reached the latest attempt's target on its GPUs.

    With a power profile, each of its limits is a point: the mean epochs to the target times the
    energy and time of an epoch at that limit. Without one, a point is the mean of the runs at that
    limit.

    Returns:
        The points, ordered by configuration and limit.
    """
    records = history.comparable_records
    gpu_model, _ = job_observations.latest_gpus(records)
    limits = {(record.recurrence, record.attempt): record.power_limit_watts for record in records}
    reached: dict[Configuration, list[Observation]] = {}
    for observation in job_observations.observations(records):
        measured = observation.gpu_model == gpu_model and observation.energy_joules > 0
        if measured and observation.outcome is Outcome.REACHED:
            reached.setdefault(Configuration(observation.batch_size, observation.parameters), []).append(observation)
    points: list[TradeoffPoint] = []
    for configuration, runs in sorted(reached.items()):
        by_limit: dict[float | None, list[Observation]] = {}
        for run in runs:
            by_limit.setdefault(limits[run.recurrence, run.attempt], []).append(run)
        points += _profiled(history, configuration, fmean(run.epochs for run in runs), by_limit)
        known = {point.power_limit_watts for point in points if point.configuration == configuration}
        points += [_observed(configuration, limit, held) for limit, held in by_limit.items() if limit not in known]
    return tuple(sorted(points, key=lambda point: (point.configuration, point.power_limit_watts or 0.0)))


def pareto_front(points: Iterable[TradeoffPoint]) -> tuple[TradeoffPoint, ...]:
    """The points that no other point dominates in energy and time, the fastest first.

    Example:
        >>> small, large = Configuration(8), Configuration(16)
        >>> fast, efficient = TradeoffPoint(small, 300, 9.0, 1.0, 1), TradeoffPoint(small, 100, 5.0, 2.0, 1)
        >>> dominated = TradeoffPoint(large, 300, 9.5, 2.0, 1)
        >>> pareto_front([dominated, efficient, fast]) == (fast, efficient)
        True
    """
    front: list[TradeoffPoint] = []
    for point in sorted(points, key=lambda point: (point.time_seconds, point.energy_joules)):
        if not front or point.energy_joules < front[-1].energy_joules:
            front.append(point)
    return tuple(front)


def _profiled(
    history: JobHistory, configuration: Configuration, epochs: float, by_limit: dict[float | None, list[Observation]]
) -> list[TradeoffPoint]:
    profile = applicable_profile(history.records, history.profiles, configuration.batch_size)
    return [
        TradeoffPoint(
            configuration,
            measured.power_limit_watts,
            epochs * measured.energy_joules / measured.epochs,
            epochs * measured.time_seconds / measured.epochs,
            len(by_limit.get(measured.power_limit_watts, [])),
        )
        for measured in (profile.measurements if profile is not None else ())
        if measured.energy_joules > 0
    ]


def _observed(configuration: Configuration, limit: float | None, runs: list[Observation]) -> TradeoffPoint:
    return TradeoffPoint(
        configuration,
        limit,
        fmean(run.energy_joules for run in runs),
        fmean(run.time_seconds for run in runs),
        len(runs),
    )


def write_tradeoff_plot(
    path: str | Path, title: str, points: Sequence[TradeoffPoint], units: Units, footer: str = ""
) -> None:
    """Draw energy and time to the target.

    Args:
        path: The PNG file.
        title: The job's name.
        points: From `tradeoff_points`. There may be none.
        units: Those of the job.
        footer: A line below the plot; empty for none.

    Raises:
        OperationError: The file cannot be written.
    """
    with style():
        save(_draw(title, points, units), path, footer)


def tradeoff_svg(title: str, points: Sequence[TradeoffPoint], units: Units, theme: Theme, footer: str = "") -> bytes:
    """The same figure as SVG."""
    with style(theme):
        return svg_of(_draw(title, points, units, theme), theme, footer)


def _draw(title: str, points: Sequence[TradeoffPoint], units: Units, theme: Theme = LIGHT) -> Figure:
    figure = new_figure(6.0)
    axes = figure.subplots()
    axes.set_title(f"{label_of(title)}: energy and time to the target")
    if not points:
        show_text(axes, "No batch size has reached the target yet.", theme)
        return figure
    scale = (units.time.size, units.energy.size)
    colours = colours_of((point.configuration for point in points), theme)
    for configuration, group in itertools.groupby(points, key=lambda point: point.configuration):
        of_configuration = list(group)
        axes.plot(
            *_coordinates(of_configuration, scale),
            color=colours[configuration],
            linewidth=1.2,
            alpha=0.7,
            label=label_of(configuration),
        )
        for point in of_configuration:
            # Filled if runs were measured, open if it follows from the profile. Measured points are
            # on top.
            colour = colours[configuration]
            axes.plot(
                *_coordinates([point], scale),
                "o",
                color=colour,
                markerfacecolor=colour if point.runs else theme.paper,
                zorder=4 if point.runs else 3,
            )
    _make_logarithmic(axes)
    _draw_front(axes, pareto_front(points), scale, theme)
    axes.set_xlabel(f"time to the target ({units.time.name})")
    axes.set_ylabel(f"energy to the target ({units.energy.name})")
    handles = [Line2D([], [], color=colour, marker="o", label=label_of(each)) for each, colour in colours.items()]
    handles += [
        Line2D([], [], color=theme.ink, linestyle=DASHES, linewidth=1.6, label="Pareto front"),
        Line2D([], [], color=theme.ink, marker="o", linestyle="", label="runs measured"),
        Line2D(
            [], [], color=theme.ink, marker="o", markerfacecolor=theme.paper, linestyle="", label="from the profile"
        ),
    ]
    axes.legend(handles=handles, title="batch size", alignment="left", loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def _make_logarithmic(axes: Axes) -> None:
    """Use logarithmic axes, so that very expensive points do not compress the others."""
    # The labels of the front are to the left of it.
    axes.margins(x=0.15, y=0.1)
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=TICKS))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())


def _draw_front(axes: Axes, front: Sequence[TradeoffPoint], scale: tuple[float, float], theme: Theme) -> None:
    times, energies = _coordinates(front, scale)
    axes.plot(times, energies, color=theme.ink, linestyle=DASHES, linewidth=1.6, zorder=5)
    for point in _points_to_label(axes, front, scale[1]):
        axes.annotate(
            _label(point),
            (point.time_seconds / scale[0], point.energy_joules / scale[1]),
            xytext=(-7, -3),
            textcoords="offset points",
            ha="right",
            va="top",
            fontsize=8.5,
        )


def _points_to_label(axes: Axes, front: Sequence[TradeoffPoint], energy_scale: float) -> list[TradeoffPoint]:
    """The points of the front whose labels do not overlap.

    The fastest first, and the most efficient if possible.
    """

    def height(point: TradeoffPoint) -> float:
        position = axes.transLimits.transform(axes.transScale.transform((1.0, point.energy_joules / energy_scale)))
        return float(position[1])

    labelled = [front[0]]
    for point in front[1:]:
        is_last = point is front[-1]
        if height(labelled[-1]) - height(point) >= LABEL_HEIGHT and (
            is_last or height(point) - height(front[-1]) >= LABEL_HEIGHT
        ):
            labelled.append(point)
    return labelled


def _label(point: TradeoffPoint) -> str:
    limit = "no limit" if point.power_limit_watts is None else f"{point.power_limit_watts:g} W"
    return f"{label_of(point.configuration)} at {limit}"


def _coordinates(points: Sequence[TradeoffPoint], scale: tuple[float, float]) -> tuple[list[float], list[float]]:
    return [point.time_seconds / scale[0] for point in points], [point.energy_joules / scale[1] for point in points]
