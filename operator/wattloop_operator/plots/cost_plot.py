"""``cost.png``: the cost of each recurrence by batch size, and the cumulative savings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from wattloop_operator.domain.quantities import energy_unit
from wattloop_operator.history.energy_origin import energy_note
from wattloop_operator.history.rows import RecurrenceRow
from wattloop_operator.history.savings import RecurrenceCost, comparable_rows, costs_of, running_saving_joules
from wattloop_operator.plots.style import (
    DASHES,
    FAINT,
    INK,
    LOST,
    SAVED,
    colours_of,
    new_figure,
    save,
    show_text,
    style,
)


def write_cost_plot(path: str | Path, title: str, rows: Sequence[RecurrenceRow]) -> None:
    """Draw the cost of each recurrence, with its attempts stacked, above the cumulative savings.

    Args:
        path: The PNG file.
        title: The job's name.
        rows: Its history. It may be empty.

    Raises:
        OperationError: The file cannot be written.
    """
    with style():
        figure = _draw(title, rows, rows[-1].default_cost_joules if rows else None)
        save(figure, path, energy_note([row.energy_origin for row in rows]))


def _draw(title: str, rows: Sequence[RecurrenceRow], default_cost_joules: float | None) -> Figure:
    costs, compared = costs_of(rows), costs_of(comparable_rows(rows))
    figure = new_figure(6.4)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    above.set_title(f"{title}: cost of each recurrence")
    if not costs:
        show_text(above, "No recurrence has ended with a known cost yet.")
        below.set_axis_off()
        return figure
    _draw_costs(above, costs, default_cost_joules)
    below.set_title("cumulative savings against the default configuration")
    if default_cost_joules is None or not compared:
        show_text(below, "The default batch size has not reached the target yet, so there is nothing to compare with.")
        above.tick_params(labelbottom=True)
        above.set_xlabel("recurrence")
    else:
        _draw_saving(below, compared, default_cost_joules)
        below.set_xlabel("recurrence")
    return figure


def _draw_costs(axes: Axes, costs: tuple[RecurrenceCost, ...], default_cost_joules: float | None) -> None:
    largest = max(*(each.cost_joules for each in costs), default_cost_joules or 0.0)
    size, unit = energy_unit(largest)
    colours = colours_of(configuration for each in costs for configuration, _ in each.attempts)
    for each in costs:
        bottom = 0.0
        for number, (configuration, cost) in enumerate(each.attempts):
            succeeded = each.reached and number == len(each.attempts) - 1
            axes.bar(
                each.recurrence,
                cost / size,
                bottom=bottom / size,
                width=0.8,
                color=colours[configuration],
                # Attempts that missed the target are hatched: their cost gave no model.
                hatch=None if succeeded else "////",
                edgecolor="white",
                linewidth=0.0 if succeeded else 0.4,
            )
            bottom += cost
    handles: list[Artist] = [Patch(color=colour, label=str(configuration)) for configuration, colour in colours.items()]
    if any(len(each.attempts) > 1 or not each.reached for each in costs):
        handles.append(Patch(facecolor=FAINT, edgecolor="white", hatch="////", label="target missed"))
    if default_cost_joules is not None:
        label = f"default configuration,\n{default_cost_joules / size:.3g} {unit}"
        handles.append(
            axes.axhline(default_cost_joules / size, color=INK, linestyle=DASHES, linewidth=1.4, label=label)
        )
    axes.legend(handles=handles, title="batch size", alignment="left", loc="upper left", bbox_to_anchor=(1.0, 1.0))
    axes.grid(visible=False, axis="x")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlim(costs[0].recurrence - 0.6, costs[-1].recurrence + 0.6)
    axes.set_ylabel(f"cost ({unit})")


def _draw_saving(axes: Axes, costs: tuple[RecurrenceCost, ...], default_cost_joules: float) -> None:
    saved = running_saving_joules(costs, default_cost_joules)
    size, unit = energy_unit(max(abs(each) for each in saved))
    indices = [each.recurrence for each in costs]
    heights = [each / size for each in saved]
    axes.fill_between(
        indices, heights, 0, where=[each >= 0 for each in saved], interpolate=True, color=SAVED, alpha=0.2
    )
    axes.fill_between(indices, heights, 0, where=[each < 0 for each in saved], interpolate=True, color=LOST, alpha=0.2)
    axes.plot(indices, heights, color=INK, linewidth=1.4, marker="o", markersize=3 if len(costs) <= 60 else 0)
    axes.axhline(0, color=FAINT, linewidth=0.8)
    percent = 100 * saved[-1] / (default_cost_joules * len(costs))
    axes.annotate(
        f"{abs(percent):.0f} % {'saved' if percent >= 0 else 'lost'}\nover {len(costs)} recurrences",
        (1.01, heights[-1]),
        xycoords=axes.get_yaxis_transform(),
        color=SAVED if percent >= 0 else LOST,
        fontweight="bold",
        va="center",
        annotation_clip=False,
    )
    axes.set_ylabel(f"saved ({unit})")
