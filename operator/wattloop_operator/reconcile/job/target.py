"""The condition TargetUnreachable of a job: what its attempts got to, and which threshold would be reached."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from wattloop_operator.api.attempt_state import Result
from wattloop_operator.api.meta import Condition, ConditionStatus
from wattloop_operator.api.objective import Direction
from wattloop_operator.api.recurring_training_job import Mode
from wattloop_operator.domain.quantities import energy_text, epochs_text
from wattloop_operator.domain.records import ObservationRecord
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.reconcile.job.recurrences import next_index
from wattloop_operator.reconcile.learning import job_observations
from wattloop_operator.reconcile.learning.changed_job import known_attempts
from wattloop_operator.reconcile.learning.costs import RecurrenceHistory
from wattloop_operator.reconcile.learning.decision import decision_context
from wattloop_planner.bandit.unreached_target import closest_arm
from wattloop_planner.metric_curve import MetricCurve
from wattloop_planner.observations import Outcome

TARGET_UNREACHABLE = "TargetUnreachable"


def target_unreachable(
    snapshot: Snapshot, ended: Sequence[RecurrenceHistory], records: Sequence[ObservationRecord]
) -> Iterator[tuple[str, bool, str, str]]:
    """Whether no batch size reaches the target; not before a recurrence has ended without it.

    An attempt with another target has reached it too if its curve has.

    Args:
        snapshot: The state of the job.
        ended: Its recurrences that have ended.
        records: The records of its attempts with the present target.
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
    remedy = f"{easier} objective.target.threshold, raise objective.maxEpochs, or fix the training"
    yield TARGET_UNREACHABLE, True, "NeverReached", f"{text}{_easier_threshold(snapshot)}; {remedy}"


def unreachable_message(conditions: Iterable[Condition]) -> str:
    """The message of the condition if the target is unreachable; empty otherwise."""
    holds = (each for each in conditions if each.type == TARGET_UNREACHABLE and each.status is ConditionStatus.TRUE)
    return next((each.message for each in holds), "")


def _is_given_up(snapshot: Snapshot) -> bool:
    """Whether no batch size is expected to reach the present target, as a decision has said.

    Later decisions may try further sizes nevertheless, to find the one that comes closest. Other policies, and mode
    Advise, run what they run whatever it reaches.
    """
    spec = snapshot.job.spec
    if spec.mode is Mode.ADVISE or not spec.policy.name.models_cost:
        return True
    said = unreachable_message(snapshot.job.status.conditions) and any(
        each.spec.target == spec.objective.target for each in snapshot.recurrences
    )
    return bool(said) or any(
        each.spec.decision.last_attempt and each.spec.target == spec.objective.target for each in snapshot.recurrences
    )


def _best_metric(snapshot: Snapshot, records: Sequence[ObservationRecord]) -> str:
    """The best metric that any attempt has evaluated, with its batch size and epochs."""
    sign = 1.0 if snapshot.job.spec.objective.target.direction is Direction.MAXIMIZE else -1.0
    known = [
        (metric, epochs, record.batch_size)
        for record in records
        for epochs, metric in (*_points(record.curve), (record.epochs, record.metric))
        if metric is not None
    ]
    if not known:
        return ""
    best, epochs, batch_size = max(known, key=lambda each: sign * each[0])
    return f"; the best was {best:g} with batch size {batch_size} after {epochs_text(epochs)}"


def _easier_threshold(snapshot: Snapshot) -> str:
    """The threshold that would be reached, and at which cost."""
    context = decision_context(snapshot, next_index(snapshot), 0)
    closest = closest_arm(context, range(len(context.space)))
    if closest is None:
        return ""
    chosen = context.space.configurations[closest.arm]
    return (
        f"; a threshold of {closest.threshold:.12g} would be reached with batch size {chosen}, whose runs cost "
        f"{energy_text(closest.cost_joules)} until then"
    )


def _points(curve: MetricCurve | None) -> Iterable[tuple[float, float]]:
    return () if curve is None else zip(curve.epochs, curve.metrics, strict=True)
