"""``cost.png``: the cost of each recurrence by batch size, the energy saved so far, and the final metric.

A cost is a percentage: it weighs energy and time, so it has no unit.

Marks at the top say where a cost is not comparable with the ones before: another target, image or GPU.
"""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from wattloop_operator.domain.quantities import metric_text
from wattloop_operator.history.cost_history import RecurrenceCost, costs_of, count_text, unknown_cause
from wattloop_operator.history.energy_origin import energy_note
from wattloop_operator.history.job_history import JobHistory, Mark, marks_of
from wattloop_operator.history.rows import RecurrenceRow, rows_of
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
    thinned,
)
from wattloop_operator.reconcile.learning.job_savings import JobSavings
from wattloop_planner.estimate import Estimate

# More of them would hide the costs; the latest ones are drawn.
MAX_MARKS = 24


def write_cost_plot(path: str | Path, history: JobHistory) -> None:
    """Draw the cost of each recurrence, with its attempts stacked, above the energy saved and the final metric.

    Args:
        path: The PNG file.
        history: The job's history. It may be empty.

    Raises:
        OperationError: The file cannot be written.
    """
    with style():
        save(_draw(history), path, energy_note([row.energy_origin for row in rows_of(history)]))


def cost_svg(history: JobHistory, theme: Theme) -> bytes:
    """The same figure as SVG."""
    with style(theme):
        return svg_of(_draw(history, theme), theme, energy_note([row.energy_origin for row in rows_of(history)]))


def _draw(history: JobHistory, theme: Theme = LIGHT) -> Figure:
    rows = rows_of(history)
    costs, savings = costs_of(rows), history.savings
    figure = new_figure(8.4)
    above, below, metric = figure.subplots(3, 1, sharex=True, height_ratios=(6, 4, 3))
    if not costs:
        above.set_title(f"{label_of(history.title)}: cost of each recurrence")
        show_text(above, "No recurrence has ended with a known cost yet.", theme)
        below.set_axis_off()
        metric.set_axis_off()
        return figure
    drawn, step = thinned(costs)
    every = "each recurrence" if step == 1 else f"1 in {step} of {len(costs):,} recurrences"
    above.set_title(f"{label_of(history.title)}: cost of {every}")
    _draw_costs(above, drawn, savings, theme, width=0.8 * step)
    _draw_marks(above, marks_of(history), theme)
    below.set_title("energy saved, learning included, with its interval of 90 %")
    if history.energy_savings.is_known:
        _draw_saving(below, history, theme)
    else:
        show_text(below, f"Not known yet: {unknown_cause(savings)}.", theme)
    _draw_metric(metric, history, rows, theme)
    return figure


def _draw_costs(axes: Axes, costs: Sequence[RecurrenceCost], savings: JobSavings, theme: Theme, width: float) -> None:
    default = None if savings.default is None else savings.default.of_run
    size = (costs[0].cost_joules if default is None else default.value) / 100
    largest = max(each.cost_joules for each in costs)
    colours = colours_of((configuration for each in costs for configuration, _ in each.attempts), theme)
    for each in costs:
        bottom = 0.0
        for number, (configuration, cost) in enumerate(each.attempts):
            succeeded = each.reached and number == len(each.attempts) - 1
            axes.bar(
                each.recurrence,
                cost / size,
                bottom=bottom / size,
                width=width,
                color=colours[configuration],
                # Attempts that missed the target are hatched: their cost gave no model.
                hatch=None if succeeded else "////",
                edgecolor=theme.paper,
                linewidth=0.0 if succeeded else 0.4,
            )
            bottom += cost
    handles: list[Artist] = [
        Patch(color=colour, label=label_of(configuration)) for configuration, colour in colours.items()
    ]
    if any(len(each.attempts) > 1 or not each.reached for each in costs):
        handles.append(Patch(facecolor=theme.faint, edgecolor=theme.paper, hatch="////", label="target missed"))
    if default is not None:
        label = "default configuration"
        # From the first recurrence that it is compared with, to the edge.
        known = (max(savings.since - 0.5, costs[0].recurrence - width), costs[-1].recurrence + width)
        axes.fill_between(
            known, default.low / size, default.high / size, color=theme.faint, alpha=0.15, linewidth=0, zorder=0
        )
        level = (default.value / size,) * 2
        handles += axes.plot(known, level, color=theme.ink, linestyle=DASHES, linewidth=1.4, label=label)
    axes.legend(handles=handles, title="batch size", alignment="left", loc="upper left", bbox_to_anchor=(1.0, 1.0))
    axes.grid(visible=False, axis="x")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    # The interval of a cost that is hardly known would leave no room for the bars.
    high = 0.0 if default is None else default.high / size
    axes.set_ylim(0.0, 1.1 * min(max(largest / size, high), 2 * max(largest / size, 100.0)))
    axes.set_xlim(costs[0].recurrence - 0.75 * width, costs[-1].recurrence + 0.75 * width)
    of = "recurrence " + str(costs[0].recurrence) if default is None else "the default"
    axes.set_ylabel(f"cost (% of that of {of})")


def _draw_marks(axes: Axes, marks: Sequence[Mark], theme: Theme) -> None:
    """A line before each recurrence from which on something is different, with a word at its top."""
    for each in marks[-MAX_MARKS:]:
        position = each.recurrence - 0.5
        axes.axvline(position, color=theme.faint, linestyle=":", linewidth=1.2)
        axes.annotate(
            each.kind.value,
            (position, 1.0),
            xycoords=axes.get_xaxis_transform(),
            xytext=(2, -2),
            textcoords="offset points",
            rotation=90,
            va="top",
            fontsize=8.0,
            color=theme.faint,
        )


def _draw_saving(axes: Axes, history: JobHistory, theme: Theme) -> None:
    savings, unit = history.energy_savings, history.units.energy
    running, _ = thinned(savings.running())
    indices = [index for index, _ in running]
    low, heights, high = ([getattr(each, end) / unit.size for _, each in running] for end in ("low", "value", "high"))
    axes.fill_between(indices, low, high, color=theme.faint, alpha=0.25, linewidth=0)
    axes.plot(indices, heights, color=theme.ink, linewidth=1.4, marker="o", markersize=3 if len(running) <= 60 else 0)
    axes.axhline(0, color=theme.faint, linewidth=0.8)
    if savings.saved is not None:
        axes.annotate(
            f"{unit.interval_text(savings.saved)}\nby {count_text(savings.compared_count)}",
            (1.01, heights[-1]),
            xycoords=axes.get_yaxis_transform(),
            color=_saving_color(savings.saved, theme),
            fontweight="bold",
            va="center",
            annotation_clip=False,
        )
    axes.set_ylabel(f"energy saved ({unit.name})")


def _saving_color(saved: Estimate, theme: Theme) -> str:
    if not saved.has_known_sign:
        return theme.ink
    return theme.saved if saved.value >= 0 else theme.lost


def _draw_metric(axes: Axes, history: JobHistory, rows: Sequence[RecurrenceRow], theme: Theme) -> None:
    axes.set_title("final metric of each recurrence")
    axes.set_xlabel("recurrence")
    last = {row.recurrence: row for row in rows if row.metric is not None}
    shown, _ = thinned(tuple(last.values()))
    for reached in (True, False):
        points = [(row.recurrence, row.metric) for row in shown if row.reached is reached]
        axes.plot(
            *zip(*points, strict=True) if points else ([], []),
            "o",
            color=theme.ink if reached else theme.faint,
            markersize=4,
        )
    target = history.records[-1].target
    label = f"target, {metric_text(target.threshold)}"
    axes.axhline(target.threshold, color=theme.ink, linestyle=DASHES, linewidth=1.0, label=label)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    axes.set_ylabel(label_of(target.metric))
