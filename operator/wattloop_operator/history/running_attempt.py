"""A running attempt as a reader sees it: how far it is, what it has cost, and where it is expected to stop."""

from __future__ import annotations

from dataclasses import dataclass

from wattloop.wire.environment import RunTarget
from wattloop_operator.api.attempt_state import ProgressSummary
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.history.job_history import JobHistory
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


@dataclass(frozen=True)
class RunningAttempt:
    """A running attempt.

    Attributes:
        recurrence: Its object.
        progress: How far it is.
        curve: Its curve.
        limit_percent: Its cost so far, without the trials of probes, in percent of that at which it is stopped; None
            if it has no limit, or if its cost is not known.
    """

    recurrence: TrainingRecurrence
    progress: ProgressSummary
    curve: AttemptCurve
    limit_percent: float | None


def running_attempt(recurrence: TrainingRecurrence, history: JobHistory) -> RunningAttempt:
    """What is known of a running attempt.

    Args:
        recurrence: The attempt, which has no result.
        history: The history of its job.
    """
    spec, progress = recurrence.spec, recurrence.status.progress or ProgressSummary()
    configuration = Configuration(spec.batch_size, sorted_values(spec.parameters))
    percent = None if progress.cost_percent is None else float(progress.cost_percent)
    epoch = float(progress.epoch or 0)
    is_comparable = bool(history.records) and history.records[-1].target == spec.target.run_target
    curve = AttemptCurve(
        spec.index,
        spec.attempt,
        configuration,
        spec.target.run_target,
        progress.curve,
        max_epochs=float(spec.max_epochs),
        expected_epochs=history.expected_epochs(configuration) if is_comparable else None,
        limit_epochs=100 * epoch / percent if percent and epoch else None,
        final_metric=_predicted(progress),
        is_running=True,
    )
    return RunningAttempt(recurrence, progress, curve, percent)


def _predicted(progress: ProgressSummary) -> Estimate | None:
    if not progress.final_metric:
        return None
    low, mean, high = map(float, progress.final_metric)
    return Estimate(mean, low, high)


def latest_curve(history: JobHistory) -> AttemptCurve | None:
    """The curve of the latest attempt that ended with one; None if none did."""
    record = next((each for each in reversed(history.records) if each.curve is not None), None)
    if record is None:
        return None
    configuration = Configuration(record.batch_size, record.parameters)
    return AttemptCurve(record.recurrence, record.attempt, configuration, record.target, record.curve)
