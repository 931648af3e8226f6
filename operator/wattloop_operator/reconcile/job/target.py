"""The conditions of a job about its target: whether it is out of reach, and whether it is met at once.

If the first evaluation of an untrained model meets the target, its direction may be the wrong one. The decision keeps
the stated direction: one evaluation cannot tell a wrong direction from an easy target.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

from wattloop_operator.api.attempt_state import Result
from wattloop_operator.api.meta import Condition, ConditionStatus
from wattloop_operator.api.objective import HIGHER_IS_BETTER_PATTERN, Direction, Target
from wattloop_operator.domain.quantities import epochs_text, metric_text
from wattloop_operator.domain.records import ObservationRecord
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.reconcile.job.recurrences import next_index
from wattloop_operator.reconcile.learning import job_observations
from wattloop_operator.reconcile.learning.changed_job import known_attempts
from wattloop_operator.reconcile.learning.costs import RecurrenceHistory
from wattloop_operator.reconcile.learning.decision import decision_context
from wattloop_planner.bandit.unreached_target import closest_arm
from wattloop_planner.observations import Outcome

TARGET_UNREACHABLE = "TargetUnreachable"
FIRST_EVALUATION = "TargetMetAtOnce"
HIGHER_IS_BETTER = re.compile(HIGHER_IS_BETTER_PATTERN)
OPPOSITE = {Direction.MAXIMIZE: Direction.MINIMIZE, Direction.MINIMIZE: Direction.MAXIMIZE}
# An evaluation after the first epoch counts only if it is beyond the threshold by this part of it: a training that is
# evaluated once, at its end, reaches its target at the first evaluation too.
FAR = 0.5


def target_unreachable(
    snapshot: Snapshot, ended: Sequence[RecurrenceHistory], records: Sequence[ObservationRecord]
) -> Iterator[tuple[str, bool, str, str]]:
    """Whether no batch size reaches the target; not before a recurrence has ended without it.

    An attempt with another target has reached it too if its curve has.
    """
    converted = known_attempts(snapshot).converted
    if any(record.result == Result.REACHED.value for record in records) or any(
        each.outcome is Outcome.REACHED for each in converted
    ):
        yield TARGET_UNREACHABLE, False, "Reached", ""
        return
    tried = [each for each in job_observations.observations(records) if each.epochs > 0]
    if not tried or not ended:
        return
    sizes = ", ".join(str(size) for size in sorted({each.batch_size for each in tried}))
    objective = snapshot.job.spec.objective
    text = (
        f"none of {len(tried)} attempts (batch sizes {sizes}) reached {objective.target.metric} "
        f"{objective.target.threshold} within {epochs_text(objective.max_epochs)}{_best_metric(snapshot, records)}"
    )
    if not _is_given_up(snapshot):
        yield TARGET_UNREACHABLE, False, "NotReachedYet", f"{text}; the next recurrences try further batch sizes"
        return
    easier = "lower" if objective.target.direction is Direction.MAXIMIZE else "raise"
    longer = _longer_training(records, objective.max_epochs)
    remedy = f"{easier} objective.target.threshold, {longer}, or fix the training"
    yield TARGET_UNREACHABLE, True, "NeverReached", f"{text}{_easier_threshold(snapshot)}; {remedy}"


def _longer_training(records: Iterable[ObservationRecord], max_epochs: int) -> str:
    """How the attempts would train longer: a limit that they do not come to does not end them."""
    longest = max((each.epochs for each in records if each.result == Result.EXHAUSTED.value), default=max_epochs)
    if longest >= max_epochs:
        return "raise objective.maxEpochs"
    return f"let the script train for more than the {epochs_text(longest)} after which it ends by itself"


def unreachable_message(conditions: Iterable[Condition]) -> str:
    """The message of the condition if the target is unreachable; empty otherwise."""
    holds = (each for each in conditions if each.type == TARGET_UNREACHABLE and each.status is ConditionStatus.TRUE)
    return next((each.message for each in holds), "")


def _is_given_up(snapshot: Snapshot) -> bool:
    """Whether no batch size is expected to reach the present target, as a decision has said.

    Later decisions may try further sizes nevertheless, to find the one that comes closest. Policy Zeus, and the modes
    Advise and Fixed, run what they run whatever it reaches.
    """
    spec = snapshot.job.spec
    if not spec.chooses or not spec.models_cost:
        return True
    present = [each.spec for each in snapshot.recurrences if each.spec.target == spec.objective.target.of_attempt]
    said = unreachable_message(snapshot.job.status.conditions) and present
    return bool(said) or any(each.decision.last_attempt for each in present)


def _best_metric(snapshot: Snapshot, records: Sequence[ObservationRecord]) -> str:
    sign = 1.0 if snapshot.job.spec.objective.target.direction is Direction.MAXIMIZE else -1.0
    known = [
        (metric, epochs, record.batch_size)
        for record in records
        for epochs, metric in (
            *(() if record.curve is None else zip(record.curve.epochs, record.curve.metrics, strict=True)),
            (record.epochs, record.metric),
        )
        if metric is not None
    ]
    if not known:
        return ""
    best, epochs, batch_size = max(known, key=lambda each: sign * each[0])
    return f"; the best was {best:g} with batch size {batch_size} after {epochs_text(epochs)}"


def _easier_threshold(snapshot: Snapshot) -> str:
    context = decision_context(snapshot, next_index(snapshot), 0)
    closest = closest_arm(context, range(len(context.space)))
    if closest is None:
        return ""
    chosen = context.space.configurations[closest.arm]
    return f"; a threshold of {closest.threshold:.12g} would be reached, at the lowest cost with batch size {chosen}"


def first_evaluation_condition(snapshot: Snapshot) -> Iterator[tuple[str, bool, str, str]]:
    """That an attempt met the target at its first evaluation: the latest such one; nothing if there is none.

    Nothing either once an attempt missed the target at first and reached it later: training leads to it.
    """
    target = snapshot.job.spec.objective.target.of_attempt
    met = [each for each in snapshot.recurrences if _met_at_once(each, target)]
    latest = max(met, key=lambda each: each.order, default=None)
    if latest is None or latest.progress.curve is None:
        return
    if any(
        (
            not (each.curve is None or each.target != target.run_target or each.result != Result.REACHED.value)
            and (_beyond(each.curve.metrics[0], target) < 0)
        )
        for each in known_attempts(snapshot).records
    ):
        return
    curve, threshold = latest.progress.curve, float(target.threshold)
    epochs, metric = curve.epochs[0], curve.metrics[0]
    is_far = _beyond(metric, target) >= FAR * abs(threshold)
    text = (
        f"recurrence {latest.spec.index} ({latest.metadata.name}): {target.metric} reached the target at its first "
        f"evaluation: after {epochs_text(epochs)} at {metric_text(metric)}, threshold "
        f"{target.threshold}, direction {target.direction.value}{_question(target)}"
    )
    yield FIRST_EVALUATION, True, "FarBeyondThreshold" if is_far else "FirstEvaluation", text


def _question(target: Target) -> str:
    """What the user may have meant; not the other direction where the metric's name leaves no doubt of this one."""
    change = "raise" if target.direction is Direction.MAXIMIZE else "lower"
    easy = f"the target asks for no training, so {change} the threshold"
    if target.direction is Direction.MAXIMIZE and HIGHER_IS_BETTER.search(target.metric):
        return f": {easy} if a better model is wanted"
    opposite = OPPOSITE[target.direction].value
    return f": is it {opposite}? If so, write spec.objective.target.direction: {opposite}; otherwise {easy}"


def _met_at_once(recurrence: TrainingAttempt, target: Target) -> bool:
    """Whether an attempt trained a new model towards this target, and its first evaluation met it."""
    progress = recurrence.progress
    if progress.curve is None or recurrence.spec.warm_start or recurrence.spec.target != target:
        return False
    beyond = _beyond(progress.curve.metrics[0], target)
    # One that trains for one epoch is evaluated at its end alone, as one whose first evaluation is late.
    is_early = progress.curve.epochs[0] <= 1 < recurrence.spec.max_epochs
    return beyond >= 0 if is_early else beyond > FAR * abs(float(target.threshold))


def _beyond(metric: float, target: Target) -> float:
    """How far a metric is beyond the threshold; negative if it misses the target."""
    margin = metric - float(target.threshold)
    return margin if target.direction is Direction.MAXIMIZE else -margin
