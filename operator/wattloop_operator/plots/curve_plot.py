"""The metric of one attempt over its epochs, against the target and where it is expected to stop."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from wattloop_operator.domain.quantities import metric_text
from wattloop_operator.history.running_attempt import AttemptCurve
from wattloop_operator.plots.figure_style import (
    DASHES,
    LIGHT,
    Theme,
    label_of,
    new_figure,
    show_text,
    style,
    svg_of,
)


def curve_svg(title: str, curve: AttemptCurve | None, theme: Theme) -> bytes:
    """Draw an attempt as SVG.

    Args:
        title: The job's name.
        curve: The attempt; None if no attempt has reported its metric yet.
        theme: The colours.
    """
    with style(theme):
        return svg_of(_draw(title, curve, theme), theme)


def _draw(title: str, curve: AttemptCurve | None, theme: Theme = LIGHT) -> Figure:
    figure = new_figure(4.2)
    axes = figure.subplots()
    if curve is None or curve.curve is None:
        axes.set_title(f"{label_of(title)}: metric of an attempt")
        show_text(axes, "No evaluation of the metric was reported yet.", theme)
        return figure
    state = "running" if curve.is_running else "ended"
    axes.set_title(f"{label_of(title)}: recurrence {curve.recurrence}, attempt {curve.attempt} ({state})")
    target, metric = curve.target, curve.curve
    label = f"batch size {label_of(curve.configuration)}"
    axes.plot(metric.epochs, metric.metrics, color=theme.saved, linewidth=1.8, marker="o", markersize=3, label=label)
    label = f"target, {metric_text(target.threshold)}"
    axes.axhline(target.threshold, color=theme.ink, linestyle=DASHES, linewidth=1.2, label=label)
    _draw_ends(axes, curve, theme)
    axes.set_xlim(left=0.0)
    axes.set_xlabel("epochs")
    axes.set_ylabel(label_of(target.metric))
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def _draw_ends(axes: Axes, curve: AttemptCurve, theme: Theme) -> None:
    """Where the attempt is expected to reach its target, to exceed its cost limit, and to end at the latest."""
    ends = (
        (curve.expected_epochs, theme.ink, ":", "target reached before,\nmean of earlier runs"),
        (curve.limit_epochs, theme.lost, "-.", "cost limit exceeded,\nat the cost so far"),
    )
    for epochs, colour, line, text in ends:
        if epochs is not None and (curve.max_epochs is None or epochs <= curve.max_epochs):
            axes.axvline(epochs, color=colour, linestyle=line, linewidth=1.4, label=f"{text}: epoch {epochs:.3g}")
    predicted = curve.final_metric
    if predicted is not None and curve.max_epochs is not None:
        errors = [[predicted.value - predicted.low], [predicted.high - predicted.value]]
        label = f"predicted after all epochs,\n{metric_text(predicted.value)}, interval of 90 %"
        axes.errorbar(
            [curve.max_epochs],
            [predicted.value],
            errors,
            fmt="o",
            color=theme.ink,
            capsize=4,
            linewidth=1.4,
            label=label,
        )
