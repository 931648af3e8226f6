"""When an attempt is asked to stop, and the verdict on an epoch: whether its ranks go on after it.

It is asked to stop because it diverged, is at its plateau or exceeds its cost limit.

The policy reviews the cost limit of the decision when the attempt has shown what an epoch costs, and at each later
evaluation of the metric. A review precedes the comparison with the limit. No attempt is stopped for its cost before a
review or its second epoch: its start falls into the first one.

A verdict is part of the progress, is written before it is answered, and never changes. It is decided when rank 0, which
reports the metric, asks; the other ranks wait for it.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from decimal import Decimal

from wattloop.wire import training_messages
from wattloop.wire.environment import RunTarget
from wattloop.wire.training_messages import MAX_REASON_CHARACTERS, Answer, Report
from wattloop_operator.api.batch_size import DecisionKind, PolicyName
from wattloop_operator.api.field_types import to_decimal
from wattloop_operator.api.training_recurrence import Attribution, TrainingRecurrenceSpec
from wattloop_operator.domain.gpu_readings import PowerLimitSchedule
from wattloop_operator.domain.progress import FinalMetricPrediction, Progress
from wattloop_operator.domain.quantities import epochs_text, metric_text
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.reconcile.energy.attempt_usage import cost_of, max_power_of, plausible_cost, usage_of
from wattloop_operator.reconcile.energy.counted_intervals import devices_at_once
from wattloop_operator.reconcile.energy.epoch_usage import epoch_usage, usage_without_trials
from wattloop_operator.reconcile.energy.limit_measurements import complete_points
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
# A verdict covers further epochs if they are short. A stop is late by at most this part of the epochs so far.
MAX_DELAY_DIVISOR = 20


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


def with_verdict(progress: Progress, reports: Iterable[Report]) -> Progress:
    """The progress with the verdicts that rank 0 asks for in these reports; a known verdict stays."""
    for report in reports:
        epoch = report.verdict_epoch
        known = progress.stop_epoch is not None or (epoch or 0) <= progress.decided_epoch
        if report.rank != 0 or epoch is None or known:
            continue
        if progress.reached or progress.stop_requested:
            return progress.model_copy(update={"stop_epoch": epoch})
        further = min(report.epochs_ahead, epoch // MAX_DELAY_DIVISOR)
        progress = _with_schedule(progress.model_copy(update={"decided_epoch": epoch + further}), report)
    return progress


def _with_schedule(progress: Progress, report: Report) -> Progress:
    """The progress with what is decided about power limits together with the verdict.

    At first the schedule that rank 0 proposes, and once all ranks have measured, the end of the measurement. So
    every rank that goes on after the epoch knows what begins with it.
    """
    known, proposed = progress.limit_schedule, report.limit_schedule
    if known is not None and known.choice_epoch is None and _shared_profile(progress, known):
        return progress.model_copy(
            update={"limit_schedule": known.model_copy(update={"choice_epoch": report.verdict_epoch})}
        )
    if known is not None or proposed is None or not proposed.limits_watts:
        return progress
    if proposed.after_epoch != report.verdict_epoch:
        return progress
    decided = PowerLimitSchedule(
        after_epoch=proposed.after_epoch, steps=proposed.steps, limits_watts=proposed.limits_watts
    )
    return progress.model_copy(update={"limit_schedule": decided})


def answer_to(recurrence: TrainingAttempt, report: Report) -> Answer:
    """The answer to a report that is merged into the recurrence.

    For a rank that asks for a verdict, only the verdict decides whether the answer is to stop. The answer to every
    other report is whether the attempt is to stop.
    """
    status = recurrence.status
    progress = recurrence.progress
    stop, reason = progress.stop_requested, progress.stop_reason
    if status.result is not None:
        stop, reason = True, f"the attempt has ended: {status.message}"[:MAX_REASON_CHARACTERS]
    stop_epoch = (
        progress.stop_epoch
        if progress.stop_epoch is not None or status.result is None
        else (progress.decided_epoch + 1)
    )
    if report.verdict_epoch is not None:
        stop = stop_epoch is not None and report.verdict_epoch >= stop_epoch
    answer = Answer(
        stop=stop,
        reason=reason if stop else "",
        reached=progress.reached,
        decided_epoch=progress.decided_epoch,
        stop_epoch=stop_epoch,
    )
    if progress.limit_schedule is None:
        return answer
    schedule = progress.limit_schedule
    decided = training_messages.LimitSchedule(schedule.after_epoch, schedule.steps, schedule.limits_watts)
    if schedule.choice_epoch is None:
        return replace(answer, limit_schedule=decided)
    return replace(
        answer,
        limit_schedule=decided,
        choice_epoch=schedule.choice_epoch,
        profile=_shared_profile(progress, schedule),
        profile_gpus=devices_at_once(progress.gpus),
    )


def _shared_profile(progress: Progress, schedule: PowerLimitSchedule) -> tuple[training_messages.LimitMeasurement, ...]:
    """What all ranks have measured, once they have measured the last limit; it does not change any more.

    Reports repeat all measurements, so with the last limit of a rank its earlier ones are known too.
    """
    points = complete_points(progress)
    if not any(point.power_limit_watts == schedule.limits_watts[-1] for point in points):
        return ()
    return tuple(
        training_messages.LimitMeasurement(
            float(point.power_limit_watts),
            float(point.energy_joules),
            min(float(point.time_seconds), training_messages.MAX_TIME_SECONDS),
            float(point.epochs),
        )
        for point in points
    )
