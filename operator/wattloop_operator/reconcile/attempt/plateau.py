"""Plateau: when an attempt ends early because its metric is predicted to end below the target."""

from __future__ import annotations

from decimal import Decimal

from wattloop_operator.api.attempt_state import FinalMetricPrediction, Progress
from wattloop_operator.api.field_types import to_decimal
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.domain.quantities import epochs_text
from wattloop_planner.bandit.policy import DecisionContext
from wattloop_planner.bandit.unreached_target import predicted_final_metric
from wattloop_planner.final_metric import MIN_EVALUATIONS

# Digits of a probability in percent.
PERCENT_DIGITS = 3
MIN_PERCENT = 0.001


def is_at_plateau(progress: Progress) -> bool:
    """Whether the attempt is at its plateau, below the target."""
    return progress.final_metric is not None and progress.final_metric.plateau


def evaluated_epoch(progress: Progress) -> Decimal:
    """Epochs run at the latest evaluation of the metric; 0 before the first."""
    return Decimal(0) if progress.curve is None else to_decimal(progress.curve.epochs[-1])


def is_prediction_due(progress: Progress) -> bool:
    """Whether the final metric has not been predicted since the latest evaluation, and could be."""
    if progress.curve is None or len(progress.curve.epochs) < MIN_EVALUATIONS:
        return False
    return progress.predicted_epoch is None or evaluated_epoch(progress) > progress.predicted_epoch


def with_prediction(recurrence: TrainingRecurrence, context: DecisionContext, progress: Progress) -> Progress:
    """The progress with the prediction of its final metric, if one is due.

    Args:
        recurrence: The attempt.
        context: The context of its review.
        progress: Its progress.
    """
    if not is_prediction_due(progress):
        return progress
    update = {
        "predicted_epoch": evaluated_epoch(progress),
        "final_metric": _final_metric(recurrence, context, progress),
    }
    return progress.model_copy(update=update)


def _final_metric(
    recurrence: TrainingRecurrence, context: DecisionContext, progress: Progress
) -> FinalMetricPrediction | None:
    if progress.curve is None:
        return None
    found = predicted_final_metric(
        context,
        progress.curve,
        float(progress.epoch or evaluated_epoch(progress)),
        template_digest=recurrence.spec.template_digest or "",
        image_digest=recurrence.status.image_digest or "",
    )
    if found is None:
        return None
    return FinalMetricPrediction(
        metric=to_decimal(found.metric),
        low=to_decimal(found.low),
        high=to_decimal(found.high),
        reach_percent=to_decimal(max(round(100 * found.reach_probability, PERCENT_DIGITS), MIN_PERCENT)),
        plateau=found.is_plateau,
    )


def plateau_reason(recurrence: TrainingRecurrence, progress: Progress) -> str:
    """Why an attempt at its plateau is stopped."""
    target, found = recurrence.spec.target, progress.final_metric
    assert found is not None, "no prediction"
    return (
        f"{target.metric} is at its plateau after {epochs_text(progress.epoch or 0)}: it is predicted to end at "
        f"{found.metric:.4g} ({found.low:.4g} to {found.high:.4g}) after "
        f"{epochs_text(recurrence.spec.max_epochs)}, and to reach {target.threshold:f} with a probability of "
        f"{found.reach_percent:.2g} %"
    )
