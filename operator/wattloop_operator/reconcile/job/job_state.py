"""The state of a job in one word, and why its runs fail."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from wattloop_operator.api.attempt_state import Result
from wattloop_operator.api.meta import Condition, ConditionStatus
from wattloop_operator.api.recurring_training_job_status import JobState
from wattloop_operator.domain.records import ObservationRecord
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.reconcile.attempt.attempt_conditions import RUNNING
from wattloop_operator.reconcile.conditions import true_since
from wattloop_operator.reconcile.job.start import ALL_STARTED, SUSPENDED, Readiness
from wattloop_operator.reconcile.job.target import TARGET_UNREACHABLE
from wattloop_operator.reconcile.learning.changed_job import not_forgotten, training_digest
from wattloop_operator.reconcile.learning.costs import RecurrenceHistory

# Type of a condition of a job.
PODS_STARTED = "PodsStarted"
# Results of attempts that trained as asked and did not reach the target.
MISSED_RESULTS = frozenset(each.value for each in (Result.STOPPED, Result.PLATEAUED, Result.EXHAUSTED, Result.DIVERGED))
# Reasons for starting nothing that are no failure.
INTENDED_REASONS = frozenset({SUSPENDED, ALL_STARTED})
MAX_OUTCOME_CHARACTERS = 1024


@dataclass(frozen=True)
class RunFailure:
    """Why a recurrence failed.

    Attributes:
        reason: The result of its last attempt.
        message: The recurrence, and the message of that attempt.
    """

    reason: str
    message: str


def run_failure(snapshot: Snapshot, ended: Sequence[RecurrenceHistory]) -> RunFailure | None:
    """Why the last recurrence failed by all its attempts; None if it reached the target, or none has ended.

    A cancelled recurrence is neither. One with another target or template, or that is forgotten, says nothing about
    the next one.
    """
    last = next((each for each in reversed(ended) if each.latest.result != Result.CANCELLED.value), None)
    if last is None or last.reached or not _is_present(snapshot, last.latest):
        return None
    latest, count = last.latest, last.latest.attempt + 1
    attempts = "by its only attempt" if count == 1 else f"by all its {count} attempts, the last time"
    text = (
        f"recurrence {latest.recurrence} failed {attempts} with batch size {latest.batch_size} "
        f"({latest.recurrence_name}): {outcome_message(snapshot, latest) or latest.result}"
    )
    return RunFailure(latest.result, text)


def outcome_message(snapshot: Snapshot, record: ObservationRecord) -> str:
    """Why an attempt ended as it did; empty once its object is deleted."""
    messages = (each.status.message for each in snapshot.recurrences if each.metadata.name == record.recurrence_name)
    return next(messages, "")[:MAX_OUTCOME_CHARACTERS]


def _is_present(snapshot: Snapshot, record: ObservationRecord) -> bool:
    """Whether an attempt trained what the next one trains."""
    job = snapshot.job
    present = (training_digest(snapshot, warm_start=False), training_digest(snapshot))
    same_template = record.template_digest in (None, *present)
    same_target = record.target == job.spec.objective.target.run_target
    return same_template and same_target and bool(not_forgotten(job, (record,)))


def job_state(
    snapshot: Snapshot, readiness: Readiness, failure: RunFailure | None, conditions: Iterable[Condition]
) -> tuple[JobState, str]:
    """The state of a job, and the reason of its failure or of what hinders its pods; empty if there is none.

    Args:
        snapshot: The state of the job.
        readiness: Whether and when its next recurrence starts.
        failure: Why its last recurrence failed.
        conditions: Its conditions.
    """
    if readiness.reason == SUSPENDED:
        return JobState.SUSPENDED, ""
    if not readiness.ready and readiness.reason not in INTENDED_REASONS:
        return JobState.FAILING, readiness.reason
    states = {each.type: each for each in conditions}
    target, pods = states.get(TARGET_UNREACHABLE), states.get(PODS_STARTED)
    unreachable = target is not None and target.status is ConditionStatus.TRUE
    if unreachable and (failure is None or failure.reason in MISSED_RESULTS):
        return JobState.UNREACHABLE, "" if failure is None else failure.reason
    if failure is not None:
        return JobState.FAILING, failure.reason
    if pods is not None:
        return JobState.WAITING, pods.reason
    return _state_without_trouble(snapshot, readiness), ""


def _state_without_trouble(snapshot: Snapshot, readiness: Readiness) -> JobState:
    active = [each.status.conditions for each in snapshot.recurrences if each.status.result is None]
    if any(true_since(conditions, RUNNING) for conditions in active):
        return JobState.RUNNING
    return JobState.COMPLETE if readiness.reason == ALL_STARTED and not active else JobState.WAITING
