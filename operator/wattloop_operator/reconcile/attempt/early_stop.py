"""Early stop: when an attempt is asked to stop because it diverged, is at its plateau or exceeds its cost limit.

The policy reviews the cost limit of the decision when the attempt has shown what an epoch costs, and at each later
evaluation of the metric. A review precedes the comparison with the limit. No attempt is stopped for its cost before a
review or its second epoch: its start falls into the first one.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

from wattloop.wire.environment import RunTarget
from wattloop_operator.api.batch_size import DecisionKind, PolicyName
from wattloop_operator.api.field_types import to_decimal
from wattloop_operator.api.training_recurrence import Attribution, TrainingRecurrenceSpec
from wattloop_operator.domain.progress import FinalMetricPrediction, Progress
from wattloop_operator.domain.quantities import epochs_text, metric_text
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.reconcile.energy.attempt_usage import cost_of, max_power_of, plausible_cost, usage_of
from wattloop_operator.reconcile.energy.epoch_usage import epoch_usage, usage_without_trials
from wattloop_operator.reconcile.learning.decision import policy_of, review_context
from wattloop_operator.reconcile.learning.job_observations import sorted_values
from wattloop_planner.bandit.policy import ChoiceKind, Decision, DecisionContext, PartialObservation, reviews
from wattloop_planner.bandit.unreached_target import predicted_final_metric
from wattloop_planner.final_metric import MIN_EVALUATIONS
from wattloop_planner.metric_curve import MetricCurve

ROUNDING = 1e-9
# Digits of a probability in percent.
PERCENT_DIGITS = 3
MIN_PERCENT = 0.001
# The fields of the progress that a review sets.
REVIEWED_FIELDS = ("reviewed_epoch", "stop_cost_joules", "predicted_epoch", "final_metric")
DIVERGED = "its metric diverged"
# A metric that is worse than the first evaluation by this part of its size has not only noise.
MIN_RELATIVE_LOSS = 0.5
# One bad evaluation is common where a training goes well: statistics of normalisation that lag behind the weights, or a
# spike of the loss that heals within an epoch.
EVALUATIONS_AWAY = 3
# Decisions of a policy, which reviews them. The others were made without it.
REVIEWED_KINDS = frozenset(DecisionKind) - {DecisionKind.FIXED, DecisionKind.ADVISE, DecisionKind.COMPARISON}


def with_stop_request(recurrence: TrainingAttempt, progress: Progress) -> Progress:
    """Request a stop of an attempt that diverged, is at its plateau, or has cost its limit; never after the target.

    A request is never withdrawn.
    """
    reason = "" if progress.is_ending else _stop_reason(recurrence, progress)
    return progress.model_copy(update={"stop_requested": True, "stop_reason": reason}) if reason else progress


def _stop_reason(recurrence: TrainingAttempt, progress: Progress) -> str:
    if progress.diverged:
        return divergence_reason(recurrence, progress)
    if is_at_plateau(progress):
        target, found = recurrence.spec.target, progress.final_metric
        assert found is not None, "no prediction"
        return (
            f"{target.metric} is at its plateau after {epochs_text(progress.epoch or 0)}: it is predicted to end at "
            f"{found.metric:.4g} ({found.low:.4g} to {found.high:.4g}) after "
            f"{epochs_text(recurrence.spec.max_epochs)}, and to reach {target.threshold:f} with a probability of "
            f"{found.reach_percent:.2g} %"
        )
    reviewed, limit = progress.reviewed_epoch is not None, cost_limit(recurrence.spec, progress)
    # The first epoch contains the start of the training, which a further attempt would pay again.
    if limit is None or (not reviewed and (progress.epoch or 0) <= 1):
        return ""
    usage = usage_without_trials(progress)
    # The energy of shared GPUs is an upper bound, so the attempt may have cost less.
    if usage is not None and usage.attribution is Attribution.SHARED:
        return ""
    cost = cost_of(recurrence.spec, progress, usage)
    # An attempt that has already cost its limit stops at once, although the limit was rounded when
    # it was written.
    if cost is None or cost < float(limit) * (1 - ROUNDING):
        return ""
    missed = f"after {epochs_text(progress.epoch or 0)} without reaching the target"
    return f"{missed}, going on would cost more than it could save" if reviewed else f"it had cost its limit {missed}"


def divergence_reason(recurrence: TrainingAttempt, progress: Progress) -> str:
    """What an attempt's end is put down to whose metric diverged."""
    epochs, curve = epochs_text(progress.epoch or 0), progress.curve
    if progress.metric is None:
        return f"{DIVERGED}: it was NaN or infinite after {epochs}"
    last = metric_text(float(progress.metric))
    # An evaluation that is not finite is no point of the curve, and no other one ends an attempt.
    if not has_moved_away(curve, recurrence.spec.target.run_target):
        return f"{DIVERGED}: from {last} it became NaN or infinite after {epochs}"
    return f"{DIVERGED} (at last {last}) after {epochs}"


def has_moved_away(curve: MetricCurve | None, target: RunTarget) -> bool:
    """Whether each of the latest evaluations is far worse than the first.

    Each must be worse by more than the distance of the first evaluation from the target, and by more than
    half the size of the first evaluation, so that noise near the target does not count.

    `curve`: the evaluations so far; None if there were none.
    """
    if curve is None or target.reached_by(curve.metrics[0]) or len(curve.metrics) <= EVALUATIONS_AWAY:
        return False
    first = curve.metrics[0]
    allowed = max(abs(target.threshold - first), MIN_RELATIVE_LOSS * abs(first))
    losses = ((first - each) if target.maximize else (each - first) for each in curve.metrics[-EVALUATIONS_AWAY:])
    return all(loss > allowed for loss in losses)


def cost_limit(spec: TrainingRecurrenceSpec, progress: Progress) -> Decimal | None:
    """Cost in joules at which an attempt is stopped, by its latest review or by its decision; None: no limit."""
    return spec.stop_cost_joules if progress.reviewed_epoch is None else progress.stop_cost_joules


def is_review_due(recurrence: TrainingAttempt, progress: Progress) -> bool:
    """Whether the policy reviews attempts, and has not reviewed the latest evaluation of this one.

    The first review of the cost limit is due once the cost of an epoch is known, also without an evaluation. The
    final metric is predicted without the cost.
    """
    if not _is_reviewed(recurrence, progress):
        return False
    return is_prediction_due(progress) or _observation_to_review(recurrence, progress) is not None


def review_cost_limit(
    read_snapshot: Callable[[], Snapshot | None], recurrence: TrainingAttempt, progress: Progress
) -> Progress:
    """Have the policy review the cost limit of a running attempt, and predict its final metric.

    `read_snapshot`: reads the state of the job; None if it is not available. Called only if a review is due, because
    most reports need none.

    Returns:
        The progress with the new limit and prediction; the same object if there is no review.
    """
    snapshot = read_snapshot() if is_review_due(recurrence, progress) else None
    if snapshot is None:
        return progress
    spec, parameters = recurrence.spec, sorted_values(recurrence.spec.parameters)
    context = review_context(snapshot, recurrence)
    if context.space.index(spec.batch_size, parameters) is None:
        # The job no longer offers the parameters of the attempt.
        return progress
    progress = _with_prediction(recurrence, context, progress)
    measured = _observation_to_review(recurrence, progress)
    if measured is None:
        return progress
    limit = None if spec.stop_cost_joules is None else float(spec.stop_cost_joules)
    kind = ChoiceKind(spec.decision.kind.value.lower())
    decision = Decision(spec.batch_size, kind, spec.decision.reason, limit, parameters=parameters)
    with policy_of(snapshot, context) as policy:
        if not reviews(policy):
            # The job has another policy than the one that decided the attempt.
            return progress
        return with_reviewed_limit(progress, policy.review(context, decision, measured))


def with_reviewed_limit(progress: Progress, limit_joules: float | None) -> Progress:
    """The progress with the limit of a review that includes its latest evaluation; None: no limit."""
    limit = None if limit_joules is None else plausible_cost(limit_joules)
    return progress.model_copy(
        update={
            "reviewed_epoch": evaluated_epoch(progress),
            "stop_cost_joules": None if limit is None else to_decimal(limit),
        }
    )


def _is_reviewed(recurrence: TrainingAttempt, progress: Progress) -> bool:
    """Whether a policy that reviews its attempts decided this one, and it has not ended."""
    decision = recurrence.spec.decision
    if decision.policy is not PolicyName.THOMPSON_SAMPLING or decision.kind not in REVIEWED_KINDS:
        return False
    return not progress.is_ending


def _observation_to_review(recurrence: TrainingAttempt, progress: Progress) -> PartialObservation | None:
    if not _is_reviewed(recurrence, progress):
        return None
    if progress.reviewed_epoch is not None and evaluated_epoch(progress) <= progress.reviewed_epoch:
        return None
    usage = usage_without_trials(progress)
    max_power_watts = max_power_of(progress, usage)
    if usage is None or usage.attribution is Attribution.SHARED or not max_power_watts or (progress.epoch or 0) < 1:
        return None
    epoch = epoch_usage(recurrence.spec, progress, usage_of(progress), progress.epoch)
    measured = epoch.energy_joules is not None or epoch.start_up is not None
    # Agents' energy has the start of the container, which is not known before the second epoch.
    if not measured and (recurrence.spec.profile_power_limits or not progress.gpus):
        return None
    return PartialObservation(
        batch_size=recurrence.spec.batch_size,
        epochs=float(progress.epoch or 0),
        energy_joules=float(usage.gpu_energy_joules),
        time_seconds=float(usage.duration_seconds),
        max_power_watts=float(max_power_watts),
        epoch_energy_joules=epoch.energy_joules,
        epoch_time_seconds=epoch.time_seconds,
        curve=progress.curve,
        parameters=sorted_values(recurrence.spec.parameters),
        start_up=epoch.start_up,
    )


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


def _with_prediction(recurrence: TrainingAttempt, context: DecisionContext, progress: Progress) -> Progress:
    if progress.curve is None or not is_prediction_due(progress):
        return progress
    found = predicted_final_metric(
        context,
        progress.curve,
        float(progress.epoch or evaluated_epoch(progress)),
        template_digest=recurrence.spec.template_digest or "",
        image_digest=recurrence.status.image_digest or "",
    )
    prediction = (
        None
        if found is None
        else FinalMetricPrediction(
            metric=to_decimal(found.metric),
            low=to_decimal(found.low),
            high=to_decimal(found.high),
            reach_percent=to_decimal(max(round(100 * found.reach_probability, PERCENT_DIGITS), MIN_PERCENT)),
            plateau=found.is_plateau,
        )
    )
    return progress.model_copy(update={"predicted_epoch": evaluated_epoch(progress), "final_metric": prediction})
