"""Attempts whose workload waits in a queue: how their status shows the wait, and when they are decided again.

An attempt that waits while other results arrive, and would be decided otherwise with them, is replaced by another one,
and counts as none. The other attempts that have not ended replace none alone, or those that wait would replace each
other for ever.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

from wattloop_operator.api.attempt_state import Result
from wattloop_operator.api.batch_size import DecisionKind
from wattloop_operator.api.meta import Condition
from wattloop_operator.domain.names import MAX_ATTEMPT
from wattloop_operator.domain.snapshot import QueueWait, Snapshot, WorkloadState
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.reconcile.attempt.attempt_conditions import COMPLETE
from wattloop_operator.reconcile.conditions import condition, true_since
from wattloop_operator.reconcile.learning.decision import Attempt, decide, decision_context
from wattloop_operator.reconcile.learning.job_observations import OUTCOMES, sorted_values
from wattloop_planner.bandit.configuration import Configuration
from wattloop_planner.bandit.context_digest import context_digest
from wattloop_planner.bandit.policy import NoFeasibleArmError

QUEUED = "Queued"
ADMITTED, NOT_ADMITTED = "Admitted", "NotAdmitted"


def queue_conditions(
    recurrence: TrainingAttempt, workload: WorkloadState | None, now: datetime, *, admitted: bool = True
) -> Iterator[Condition]:
    """Whether an attempt waits in a queue, why and since when; once it does not, how long it waited.

    Nothing for an attempt that never waited.

    `workload`: that of the attempt; None if the attempt has ended. `admitted`: whether a wait that is over ended by an
    admission.
    """
    before = recurrence.status.conditions
    wait = None if workload is None or not workload.owned else workload.queue
    known = next((each for each in before if each.type == QUEUED), None)
    if wait is not None:
        begun = now if wait.since is None else min(wait.since, now)
        yield condition(before, QUEUED, holds=True, reason=wait.reason, message=_text(wait), now=begun)
        return
    since = true_since(before, QUEUED)
    if since is not None and known is not None:
        queue = known.message.partition(":")[0]
        waited = f"{queue}: it waited {round((now - since).total_seconds())} s"
        reason = ADMITTED if admitted else NOT_ADMITTED
        yield condition(before, QUEUED, holds=False, reason=reason, message=waited, now=now)
    elif known is not None:
        yield known


def outdated(snapshot: Snapshot, recurrence: TrainingAttempt, workload: WorkloadState) -> str:
    """Why an attempt that waits in a queue must be decided again; empty if its decision stands."""
    spec = recurrence.spec
    if workload.queue is None or not workload.owned or recurrence.status.start_time is not None:
        return ""
    is_last = spec.attempt >= MAX_ATTEMPT
    if is_last or spec.decision.kind is DecisionKind.COMPARISON or not _result_arrived(snapshot, recurrence):
        # A comparison needs the default batch size, whatever is known of the others.
        return ""
    others = tuple(each for each in snapshot.recurrences if each.metadata.name != recurrence.metadata.name)
    now_known = replace(snapshot, recurrences=others)
    context = decision_context(now_known, spec.index, spec.attempt)
    if context_digest(context) == spec.decision.digest:
        return ""
    try:
        # The attempt that takes its place is decided as this one: none of them has run.
        replacement = decide(now_known, Attempt(spec.index, spec.attempt, spec.slot, spec.scheduled_time))
    except NoFeasibleArmError:
        # Nothing else could start either.
        return ""
    decided, chosen = _configuration(recurrence), _configuration(replacement)
    if chosen == decided:
        return ""
    return (
        f"it waited in queue {workload.queue.queue} while other results arrived, by which batch size "
        f"{chosen} is chosen instead of {decided}: another attempt takes its place, and this one "
        "counts as none"
    )


def _result_arrived(snapshot: Snapshot, recurrence: TrainingAttempt) -> bool:
    """Whether anything to learn from has become known since an attempt was decided."""
    decided = recurrence.metadata.creation_timestamp
    records = (each for each in (*snapshot.records, *snapshot.source_records) if Result(each.result) in OUTCOMES)
    ended = (each.status.conditions for each in snapshot.recurrences if each.status.result in OUTCOMES)
    # An outcome is written later than the attempt ended, if agents report its energy.
    times = (*(each.finished_at for each in records), *filter(None, (true_since(each, COMPLETE) for each in ended)))
    return decided is not None and any(time > decided for time in times)


def _configuration(recurrence: TrainingAttempt) -> Configuration:
    return Configuration(recurrence.spec.batch_size, sorted_values(recurrence.spec.parameters))


def _text(wait: QueueWait) -> str:
    return f"queue {wait.queue}: {wait.message or wait.reason}"
