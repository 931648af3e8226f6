"""Retries: which results another attempt of the same recurrence follows, how many, and what they run.

A disruption says nothing of the attempt that it ended. So the attempt is repeated as it was decided, with its seed,
unless it had not started, or its job would not decide so any more. Other retries are decided again. What decides raises
NoFeasibleArmError if no feasible batch size is left.
"""

import itertools
from collections.abc import Iterable
from datetime import datetime, timedelta

from wattloop_operator.api.attempt_state import SCRIPT_FAILURES, Result
from wattloop_operator.api.batch_size import DecisionKind
from wattloop_operator.api.power_fields import PowerMode
from wattloop_operator.api.training_recurrence import TrainingRecurrenceSpec
from wattloop_operator.domain.names import MAX_ATTEMPT
from wattloop_operator.domain.records import ObservationRecord
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.reconcile.actions import CreateRecurrence
from wattloop_operator.reconcile.job.recurrences import Attempts, last_end, recurrences_of
from wattloop_operator.reconcile.learning import job_observations
from wattloop_operator.reconcile.learning.changed_job import TELLS_CAUSE, training_digest
from wattloop_operator.reconcile.learning.decision import (
    MAX_REASON_CHARACTERS,
    Attempt,
    Prescribed,
    decide,
    decision_context,
    may_run,
)
from wattloop_operator.reconcile.learning.known_inputs import inputs_of
from wattloop_operator.reconcile.learning.same_place import next_configuration
from wattloop_planner.bandit.configuration import Configuration

RETRIED_RESULTS = frozenset(
    {
        Result.STOPPED,
        Result.EXHAUSTED,
        Result.PLATEAUED,
        Result.DIVERGED,
        Result.CRASHED,
        Result.HUNG,
        Result.DEADLINE_EXCEEDED,
        Result.DISRUPTED,
    }
)
# Results after which a retry follows even if the decision ends the recurrence with the attempt.
ALWAYS_RETRIED_RESULTS = frozenset({Result.CRASHED, Result.HUNG, Result.DISRUPTED})
# Results of which every attempt costs as much and tells nothing, until the user corrects a mistake.
MISTAKES = frozenset(each.value for each in SCRIPT_FAILURES | {Result.MISSING_METRIC})
# After them a job without a calendar waits, twice as long after each.
FIRST_WAIT_SECONDS = 30
MAX_WAIT_SECONDS = 3600
# What an attempt is decided for. If the job has another value by now, its disrupted attempts are not repeated.
DECIDED_FOR = (
    "batch_size",
    "parameters",
    "learning_rate_scale",
    "template_digest",
    "warm_start",
    "target",
    "max_epochs",
    "energy_weight_percent",
    "reporting",
)
REPEATS = "; this repeats attempt "


def is_retry_due(snapshot: Snapshot, attempts: Attempts) -> bool:
    """Whether another attempt of this recurrence must start.

    A failure at the start is retried once, since a file system may have been away. If the recurrence before failed
    there too, with the same template, it is not retried: the mistake is still there. An error in the script that shows
    after epochs is not retried: it would cost a training again.
    """
    latest = attempts[-1]
    retries = latest.spec.attempt - sum(_never_started(each) for each in attempts)
    if latest.status.result is None or retries >= snapshot.job.spec.retries:
        return False
    # Attempts that never started count as no retry, so no other limit bounds their number.
    if latest.spec.attempt >= MAX_ATTEMPT:
        return False
    if latest.status.result is Result.START_FAILED:
        failed = sum(_failed_alike(each, latest) for each in attempts)
        return failed == 1 and not _failed_at_start_before(snapshot, attempts)
    return latest.status.result in (ALWAYS_RETRIED_RESULTS if latest.spec.decision.last_attempt else RETRIED_RESULTS)


def open_recurrences(snapshot: Snapshot) -> tuple[Attempts, ...]:
    """The recurrences with a running attempt or a retry that is due, by rising index."""
    return tuple(
        each for each in recurrences_of(snapshot) if each[-1].status.result is None or is_retry_due(snapshot, each)
    )


def retry_actions(snapshot: Snapshot, recurrences: Iterable[Attempts]) -> list[CreateRecurrence]:
    """Create the next attempt of each recurrence for which a retry is due."""
    due = (retry_of(snapshot, each) for each in recurrences if is_retry_due(snapshot, each))
    return [CreateRecurrence(each, inputs_of(snapshot, each)) for each in due]


def decided_again(snapshot: Snapshot, decided: TrainingAttempt) -> TrainingAttempt:
    """What is decided for an attempt from this state of its job: the same if it is what the decision was made from."""
    spec = decided.spec
    earlier = next((each for each in recurrences_of(snapshot) if each[0].spec.index == spec.index), None)
    if earlier is None:
        return decide(snapshot, Attempt(spec.index, spec.attempt, spec.slot, spec.scheduled_time))
    return retry_of(snapshot, earlier)


def repeated(snapshot: Snapshot, disrupted: TrainingAttempt, attempt: Attempt) -> TrainingAttempt | None:
    """An attempt with the decision of a disrupted one: its configuration, power limit, cost limit, seed and kind.

    `disrupted`: the disrupted attempt, which had started.

    Returns:
        The attempt. None if it must be decided again: the job trains something else by now, has another objective or
        policy, no longer offers the configuration, or has excluded it by other results.
    """
    spec, decision = disrupted.spec, disrupted.spec.decision
    reason = decision.reason.partition(REPEATS)[0]
    found = decide(snapshot, attempt, Prescribed(_configuration(spec), reason))
    if _decided_for(found.spec) != _decided_for(spec):
        return None
    if not may_run(snapshot, decision_context(snapshot, attempt.index, attempt.attempt), _configuration(spec)):
        return None
    told = f"{REPEATS}{spec.attempt}, which was disrupted"
    reason = f"{reason[: MAX_REASON_CHARACTERS - len(told)]}{told}"
    update: dict[str, object] = {
        "stop_cost_joules": spec.stop_cost_joules,
        "decision": decision.model_copy(update={"reason": reason}),
    }
    if spec.profile_power_limits and snapshot.job.spec.power.mode is PowerMode.AUTO:
        # Another recurrence may have measured meanwhile.
        update |= {"power_limit_watts": None, "profile_power_limits": True}
    return found.model_copy(update={"spec": found.spec.model_copy(update=update)})


def wait_after_mistakes(snapshot: Snapshot) -> tuple[Result, datetime] | None:
    """When a job without a calendar may start again after mistakes of its user, and the latest result; None: at once.

    A backend that began to observe the job after the last failure tries at once: somebody started it again.
    """
    digest, ended, records = training_digest(snapshot), last_end(snapshot), job_observations.known_records(snapshot)
    mistakes = list(itertools.takewhile(lambda each: _is_mistake(each, digest), reversed(records)))
    if not mistakes or ended is None or (snapshot.observed_since is not None and ended < snapshot.observed_since):
        return None
    # The bound of the exponent keeps the number small; the wait has its maximum long before.
    seconds = min(FIRST_WAIT_SECONDS * 2 ** min(len(mistakes), 10), MAX_WAIT_SECONDS)
    return Result(mistakes[0].result), ended + timedelta(seconds=seconds)


def _is_mistake(record: ObservationRecord, digest: str) -> bool:
    """Whether an attempt with this template ended by a mistake, of most kinds before it had reported an epoch."""
    is_mistake = record.result in MISTAKES and (record.epochs == 0 or record.result == Result.SCRIPT_ERROR.value)
    return is_mistake and record.template_digest == digest


def _never_started(attempt: TrainingAttempt) -> bool:
    """Whether an attempt ended before anything of it had started; it counts as none."""
    return attempt.status.result is Result.DISRUPTED and attempt.status.start_time is None


def retry_of(snapshot: Snapshot, attempts: Attempts) -> TrainingAttempt:
    """The next attempt of a recurrence."""
    spec = attempts[-1].spec
    latest, attempt = attempts[-1], Attempt(spec.index, spec.attempt + 1, spec.slot, spec.scheduled_time)
    if latest.status.result is Result.DISRUPTED and not _never_started(latest):
        again = repeated(snapshot, latest, attempt)
        if again is not None:
            return again
    return decide(snapshot, attempt, _prescribed(snapshot, attempts))


def _configuration(spec: TrainingRecurrenceSpec) -> Configuration:
    return Configuration(spec.batch_size, job_observations.sorted_values(spec.parameters))


def _decided_for(spec: TrainingRecurrenceSpec) -> tuple[object, ...]:
    """What an attempt is decided for, by which policy, with which seed and in which mode."""
    decision = spec.decision
    is_default = decision.kind is DecisionKind.ADVISE
    return *(getattr(spec, each) for each in DECIDED_FOR), decision.policy, decision.seed, is_default


def _prescribed(snapshot: Snapshot, attempts: Attempts) -> Prescribed | None:
    """The same configuration again after a mistake; after a first crash at a known place, one that tells its cause."""
    spec, status = attempts[-1].spec, attempts[-1].status
    other: Configuration | None = _configuration(spec)
    if status.result is not Result.START_FAILED:
        known = sum(bool(each.status.failure_place) for each in attempts)
        first = status.result is Result.CRASHED and known == 1
        other = next_configuration(snapshot, attempts[-1]) if first else None
    if other is None:
        return None
    if status.result is Result.START_FAILED:
        return Prescribed(other, f"batch size {other} again: attempt {spec.attempt} failed at its start")
    if other.batch_size == spec.batch_size:
        return Prescribed(other, f"batch size {other} again, {TELLS_CAUSE} {spec.attempt} failed by chance")
    text = f"batch size {other}, {TELLS_CAUSE} {spec.attempt} failed by its batch size {spec.batch_size}"
    return Prescribed(other, text)


def _failed_alike(attempt: TrainingAttempt, latest: TrainingAttempt) -> bool:
    """Whether an attempt failed at its start, or at the same place as the latest one, which did."""
    place = attempt.status.failure_place
    return attempt.status.result is Result.START_FAILED or (bool(place) and place == latest.status.failure_place)


def _failed_at_start_before(snapshot: Snapshot, attempts: Attempts) -> bool:
    records = reversed(job_observations.known_records(snapshot))
    before = next((each for each in records if each.recurrence < attempts[-1].spec.index), None)
    if before is None or before.template_digest != attempts[-1].spec.template_digest:
        return False
    return before.result == Result.START_FAILED.value
