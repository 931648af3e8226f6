"""Failures at the same place: at two batch sizes they are the fault of neither.

An exception or a signal does not tell whether a batch size causes it. So the next attempt runs another batch size,
unless this one has trained for longer, or the job runs no other. A failure at the same place is then a mistake of the
script, and the crash before it does not count.
"""

from wattloop_operator.api.attempt_state import SCRIPT_FAILURES, Result
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.reconcile.learning.guarded_job import excluded_configurations
from wattloop_operator.reconcile.learning.job_observations import default_values, known_records, sorted_values
from wattloop_planner.bandit.configuration import Configuration

# Attempts with these results tell nothing of their batch size, for however long they have trained.
FAILED = frozenset(each.value for each in SCRIPT_FAILURES | {Result.CRASHED})


def places_before(snapshot: Snapshot, attempt: TrainingAttempt) -> frozenset[str]:
    """The places at which a failure of this attempt is not the fault of its batch size.

    They are those of its recurrence's earlier attempts, and of the recurrence before if that failed by such a mistake.
    """
    spec = attempt.spec
    any_size = _cannot_vary(snapshot, attempt)
    latest = max((each.spec.index for each in snapshot.recurrences if each.spec.index < spec.index), default=None)
    places = set()
    for each in snapshot.recurrences:
        if not each.status.failure_place or each.spec.template_digest != spec.template_digest:
            continue
        same = each.spec.index == spec.index and each.spec.attempt < spec.attempt
        other_size = any_size or each.spec.batch_size != spec.batch_size
        before = each.spec.index == latest and each.status.result in SCRIPT_FAILURES
        if (same and other_size) or before:
            places.add(each.status.failure_place)
    return frozenset(places)


def next_configuration(snapshot: Snapshot, attempt: TrainingAttempt) -> Configuration | None:
    """What the attempt after a crash at a known place runs, to find out whether its batch size is the cause.

    The configuration; None if the policy may choose it.
    """
    spec = attempt.spec
    if not attempt.status.failure_place:
        return None
    if _cannot_vary(snapshot, attempt):
        return Configuration(spec.batch_size, sorted_values(spec.parameters))
    excluded = {each.batch_size for each in excluded_configurations(snapshot)}
    others = set(snapshot.job.spec.batch_size.candidates) - excluded - {spec.batch_size}
    values = sorted_values(default_values(snapshot.job.spec))
    return Configuration(_most_telling(others, spec.batch_size, attempt), values) if others else None


def _most_telling(others: set[int], failed: int, attempt: TrainingAttempt) -> int:
    if attempt.epochs:
        # It trains for epochs before it fails, at about the cost of the next size.
        return max((each for each in others if each < failed), default=min(others))
    # The smallest one needs the least memory, and the fewest samples.
    return min(others)


def _cannot_vary(snapshot: Snapshot, attempt: TrainingAttempt) -> bool:
    """Whether another batch size would tell nothing: this one trained for longer before, or the job runs no other."""
    job, spec = snapshot.job.spec, attempt.spec
    if not job.chooses or len(job.batch_size.candidates) == 1:
        return True
    return any(
        record.batch_size == spec.batch_size
        and record.template_digest == spec.template_digest
        and record.epochs > attempt.epochs
        and record.result not in FAILED
        for record in known_records(snapshot)
    )
