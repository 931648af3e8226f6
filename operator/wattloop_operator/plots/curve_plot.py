"""The metric of one attempt over its epochs, against the target and where it is expected to stop."""

from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from wattloop.wire.environment import RunTarget
from wattloop_operator.api.attempt_state import ProgressSummary
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.domain.quantities import metric_text
from wattloop_operator.history.job_history import JobHistory
from wattloop_operator.plots.figure_style import DASHES, LIGHT, Theme, label_of, new_figure, show_text, style, svg_of
from wattloop_operator.reconcile.learning.job_observations import sorted_values
from wattloop_planner.bandit.configuration import Configuration
from wattloop_planner.estimate import Estimate
from wattloop_planner.metric_curve import MetricCurve


@dataclass(frozen=True)
class AttemptCurve:
    """The metric of an attempt over its epochs, and where it is expected to end.

    Attributes:
        recurrence: Index of its recurrence.
        attempt: Index of the attempt within it.
        configuration: Batch size and parameters.
        target: The target.
        curve: Its evaluations; None before the first.
        max_epochs: Epochs after which it ends without the target; None if that is not known any more.
        expected_epochs: Mean epochs with which its configuration reached the target before; None if it has not.
        limit_epochs: Epochs at which it exceeds its cost limit, at its mean cost of an epoch so far; None without one.
        final_metric: The metric that it is predicted to have after `max_epochs`; None if that is not known.
        is_running: Whether it has not ended.
    """

    recurrence: int
    attempt: int
    configuration: Configuration
    target: RunTarget
    curve: MetricCurve | None
    max_epochs: float | None = None
    expected_epochs: float | None = None
    limit_epochs: float | None = None
    final_metric: Estimate | None = None
    is_running: bool = False


def curve_of_running(recurrence: TrainingRecurrence, history: JobHistory) -> AttemptCurve:
    """The curve of a running attempt of a job."""
    spec, progress = recurrence.spec, recurrence.status.progress or ProgressSummary()
    configuration = Configuration(spec.batch_size, sorted_values(spec.parameters))
    percent, epoch = float(progress.cost_percent or 0), float(progress.epoch or 0)
    is_comparable = bool(history.records) and history.records[-1].target == spec.target.run_target
    low, mean, high = progress.final_metric or (None,) * 3
    return AttemptCurve(
        spec.index,
        spec.attempt,
        configuration,
        spec.target.run_target,
        progress.curve,
        max_epochs=float(spec.max_epochs),
        expected_epochs=history.expected_epochs(configuration) if is_comparable else None,
        limit_epochs=100 * epoch / percent if percent and epoch else None,
        final_metric=Estimate.if_known(mean, low, high),
        is_running=True,
    )


def latest_curve(history: JobHistory) -> AttemptCurve | None:
    """The curve of the latest attempt that ended with one; None if none did."""
    record = next((each for each in reversed(history.records) if each.curve is not None), None)
    if record is None:
        return None
    configuration = Configuration(record.batch_size, record.parameters)
    return AttemptCurve(record.recurrence, record.attempt, configuration, record.target, record.curve)


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
