"""Conditions of a job: what hinders its runs, and what it learns from them; the state of a job in one word."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from wattloop.pipeline.plan_messages import PLAN
from wattloop_operator.api.attempt_state import Result
from wattloop_operator.api.meta import Condition, ConditionStatus
from wattloop_operator.api.recurring_training_job import Mode, RecurringTrainingJobSpec
from wattloop_operator.api.recurring_training_job_status import JobState
from wattloop_operator.api.training_recurrence import Attribution
from wattloop_operator.domain.job_identity import history_uid, is_restored, is_unseen_restored
from wattloop_operator.domain.names import index_in_name
from wattloop_operator.domain.quantities import number_text
from wattloop_operator.domain.records import MAX_OBSERVATIONS_OF_JOB, ObservationRecord
from wattloop_operator.domain.snapshot import Snapshot, once_per_snapshot
from wattloop_operator.reconcile.actions import EmitEvent
from wattloop_operator.reconcile.attempt.attempt_conditions import RUNNING
from wattloop_operator.reconcile.attempt.queue_wait import QUEUED
from wattloop_operator.reconcile.conditions import condition, true_since
from wattloop_operator.reconcile.energy.attempt_usage import unmeasured_cause
from wattloop_operator.reconcile.job.recurrences import next_index
from wattloop_operator.reconcile.job.start import ALL_STARTED, SUSPENDED, Readiness, is_new_request
from wattloop_operator.reconcile.job.target import (
    FIRST_EVALUATION,
    TARGET_UNREACHABLE,
    first_evaluation_condition,
    target_unreachable,
)
from wattloop_operator.reconcile.learning import job_observations
from wattloop_operator.reconcile.learning.changed_job import not_forgotten, source_observations, training_digest
from wattloop_operator.reconcile.learning.costs import RecurrenceHistory
from wattloop_operator.reconcile.learning.guarded_job import guard_of, shortfall_text, sorted_configurations
from wattloop_planner.bandit.metric_guard import MIN_DEFAULT_RUNS, MIN_RUNS

READY = "Ready"
LAST_RUN = "LastRunSucceeded"
LEARNS = "Learns"
METRIC = "MetricKept"
TRANSFER = "Transferred"
RUN_REQUEST = "RunRequestWaits"
PLAN_AVAILABLE = "PlanAvailable"
# Reasons with which it is False; each is an Event, too.
NOT_FOUND, NO_PLAN = "FrequencyPlanNotFound", "NoFrequencyPlan"
HOLDS = {ConditionStatus.TRUE: True, ConditionStatus.FALSE: False, ConditionStatus.UNKNOWN: None}
# A message names at most this many batch sizes.
MAX_SHORTFALLS_NAMED = 16
SHORTFALL_REMEDY = (
    "It is not chosen until the target, the template, its training runtime, objective.target.tolerance or "
    "spec.learnSince changes"
)
SAME_TRAINING = "this target, template and training runtime"
BATCH_SIZE_PASSED = "BatchSizePassed"
VARIABLES = ("WATTLOOP_BATCH_SIZE", "WATTLOOP_PER_DEVICE_BATCH_SIZE")
HISTORY_LOST = "HistoryLost"
# Type of a condition of a job.
PODS_STARTED = "PodsStarted"
# Results of attempts that trained as asked and did not reach the target.
MISSED_RESULTS = frozenset(each.value for each in (Result.STOPPED, Result.PLATEAUED, Result.EXHAUSTED, Result.DIVERGED))
# Reasons for starting nothing that are no failure.
INTENDED_REASONS = frozenset({SUSPENDED, ALL_STARTED})
MAX_OUTCOME_CHARACTERS = 1024
# Whether a condition as it was before and as it is now is an Event, by its type: while it holds, there is no second.
BEGINS: dict[str, Callable[[Condition | None, Condition], bool]] = {
    PODS_STARTED: lambda before, after: before is None or before.reason != after.reason,
    RUN_REQUEST: lambda before, after: before is None or before.message != after.message,
    TARGET_UNREACHABLE: lambda before, after: _is_true(after) and (before is None or not _is_true(before)),
    FIRST_EVALUATION: lambda before, _: before is None,
    BATCH_SIZE_PASSED: lambda before, _: before is None,
    HISTORY_LOST: lambda before, _: before is None,
}


def job_conditions(
    snapshot: Snapshot,
    readiness: Readiness,
    ended: Sequence[RecurrenceHistory],
    records: Sequence[ObservationRecord],
    now: datetime,
) -> tuple[Condition, ...]:
    """The conditions of a job. Those that do not apply are left out.

    `readiness`: whether and when its next recurrence starts.
    """
    before = snapshot.job.status.conditions
    found: list[tuple[str, bool | None, str, str]] = []
    failure = run_failure(snapshot, ended)
    found += [_ready(readiness, failure)]
    found += _run_request(snapshot, readiness)
    if unpassed := unpassed_batch_size(snapshot.job.spec):
        found.append((BATCH_SIZE_PASSED, False, "NotInTemplate", unpassed))
    found += _pods_started(snapshot)
    found += _last_run(snapshot, ended)
    found += _learns(snapshot, ended)
    found += target_unreachable(snapshot, ended, records)
    found += first_evaluation_condition(snapshot)
    found += _metric(snapshot)
    found += _transfer(snapshot)
    found += history_lost(snapshot)
    found += plan_available(snapshot)
    return tuple(
        condition(before, kind, holds=holds, reason=reason, message=message, now=now)
        for kind, holds, reason, message in found
    )


def _pods_started(snapshot: Snapshot) -> Iterator[tuple[str, bool, str, str]]:
    active = (each for each in snapshot.recurrences if each.status.result is None)
    for each in sorted(active, key=lambda each: each.order):
        workload = snapshot.workloads.get(each.metadata.name)
        if workload is None or not workload.owned:
            continue
        reason = workload.wait_reason or ("" if workload.queue is None else QUEUED)
        if reason:
            text = (
                f"recurrence {each.spec.index} ({each.metadata.name}) waits and spends no attempt: {workload.message}"
            )
            yield PODS_STARTED, False, reason, text
            return


def condition_events(snapshot: Snapshot, conditions: Iterable[Condition]) -> Iterator[EmitEvent]:
    """The events of conditions that begin: each tells once what has come to hinder the job."""
    name = snapshot.job.metadata.full_name
    before = {each.type: each for each in snapshot.job.status.conditions}
    after = {each.type: each for each in conditions}
    for kind, begins in BEGINS.items():
        found = after.get(kind)
        if found is not None and found.message and begins(before.get(kind), found):
            reason = found.reason if kind == PODS_STARTED else kind
            yield EmitEvent(kind != RUN_REQUEST and reason != QUEUED, reason, f"{name}: {found.message}")
    known = before[METRIC].message if METRIC in before else ""
    texts = [text for text in _shortfalls(snapshot)[:MAX_SHORTFALLS_NAMED] if text not in known]
    if texts:
        yield EmitEvent(True, "MetricFallsShort", f"{name}: {'; '.join(texts)}. {SHORTFALL_REMEDY}")


def _run_request(snapshot: Snapshot, readiness: Readiness) -> Iterator[tuple[str, bool, str, str]]:
    request = snapshot.job.spec.run_request
    if readiness.last_run_request == request or not is_new_request(snapshot):
        return
    if readiness.message:
        reason = "RunActive" if readiness.ready else readiness.reason
        yield RUN_REQUEST, True, reason, f"spec.runRequest {request!r} waits: {readiness.message}"


def _ready(readiness: Readiness, failure: RunFailure | None) -> tuple[str, bool, str, str]:
    if failure is None or not (readiness.ready or readiness.reason == failure.reason):
        return READY, readiness.ready, readiness.reason, readiness.message
    parts = (readiness.message, failure.message)
    return READY, False, failure.reason, "; ".join(filter(None, parts))


def _last_run(snapshot: Snapshot, ended: Sequence[RecurrenceHistory]) -> Iterator[tuple[str, bool, str, str]]:
    if ended:
        latest, reached = ended[-1].latest, ended[-1].reached
        text = f"recurrence {latest.recurrence} ({latest.recurrence_name}), batch size {latest.batch_size}"
        message = "" if reached else outcome_message(snapshot, latest)
        yield LAST_RUN, reached, latest.result, f"{text}: {message}" if message else text


def _learns(snapshot: Snapshot, ended: Sequence[RecurrenceHistory]) -> Iterator[tuple[str, bool, str, str]]:
    """Why nothing is learned from the last run although it reached its target: the job keeps its default then."""
    latest = ended[-1].latest if ended and snapshot.job.spec.mode is not Mode.FIXED else None
    if latest is None or latest.result != Result.REACHED.value or job_observations.observations([latest]):
        return
    text = f"nothing is learned from recurrence {latest.recurrence} ({latest.recurrence_name}): "
    if latest.attribution == Attribution.SHARED.value:
        yield LEARNS, False, "SharedGpus", f"{text}others used its GPUs too, or could, so their energy is not its own"
        return
    if latest.resumed:
        cause = "it went on from what its attempt before had trained, so its energy is that of a part of its epochs"
        yield LEARNS, False, "Resumed", f"{text}{cause}"
        return
    causes = (
        unmeasured_cause(each, Result.REACHED, each.status.usage)
        for each in snapshot.recurrences
        if each.metadata.name == latest.recurrence_name
    )
    remedy = (
        "check that it has a GPU, and that an agent runs on its node (the chart's agent.enabled; without "
        "agent.mountSocket it must run for the whole attempt)"
    )
    yield LEARNS, False, "CostNotKnown", f"{text}it has no cost: {next(causes, '') or remedy}"


def _metric(snapshot: Snapshot) -> Iterator[tuple[str, bool | None, str, str]]:
    """Whether the final metrics of all batch sizes in use keep up with the default's, if the job has a guard."""
    guard = guard_of(snapshot)
    if guard is None:
        return
    default = snapshot.job.spec.batch_size.default
    if guard.short:
        short = _shortfalls(snapshot)
        more = len(short) - MAX_SHORTFALLS_NAMED
        text = "; ".join(short[:MAX_SHORTFALLS_NAMED]) + (f"; {more} more batch sizes too" if more > 0 else "")
        yield (METRIC, False, "FallsShort", f"{text}. {SHORTFALL_REMEDY}")
    elif guard.default_runs < MIN_DEFAULT_RUNS:
        text = f"the default batch size {default} has {guard.default_runs} of {MIN_DEFAULT_RUNS} final metrics needed"
        yield METRIC, None, "WaitsForDefault", f"{text} with {SAME_TRAINING}; nothing is excluded until then"
    elif not guard.comparable:
        text = f"no other batch size has the {MIN_RUNS} final metrics needed with {SAME_TRAINING}"
        yield METRIC, None, "WaitsForOthers", f"{text}; nothing is excluded until then"
    else:
        sizes = ", ".join(str(each) for each in sorted_configurations(guard.comparable))
        yield METRIC, True, "Compared", f"batch sizes {sizes} do not fall short of the default batch size {default}"


def _shortfalls(snapshot: Snapshot) -> list[str]:
    guard = guard_of(snapshot)
    short = {} if guard is None else guard.short
    return [shortfall_text(each, short[each], snapshot) for each in sorted_configurations(short)]


def is_source_known(snapshot: Snapshot) -> bool:
    """Whether the job that this one learns from exists, or has existed and left records."""
    return snapshot.source_job is not None or bool(snapshot.source_records)


def transfer_problem(snapshot: Snapshot) -> str:
    """Why nothing is learned from the job of `spec.batchSize.learnFrom`; empty if something is, or none is named."""
    name = snapshot.job.spec.batch_size.learn_from
    if name is None or source_observations(snapshot):
        return ""
    if not is_source_known(snapshot):
        namespace = snapshot.job.metadata.namespace
        return f"spec.batchSize.learnFrom: there is no RecurringTrainingJob {name} in namespace {namespace}"
    others = f"; its {len(snapshot.source_records)} attempt(s) have another target, crashed or are forgotten"
    return f"{name} has no runs to learn from yet{others if snapshot.source_records else ''}"


def _transfer(snapshot: Snapshot) -> Iterator[tuple[str, bool, str, str]]:
    name = snapshot.job.spec.batch_size.learn_from
    if name is None:
        return
    known = source_observations(snapshot)
    if not known:
        yield TRANSFER, False, "NothingKnown" if is_source_known(snapshot) else "UnknownJob", transfer_problem(snapshot)
        return
    sizes = ", ".join(str(size) for size in sorted({each.batch_size for each in known}))
    text = (
        f"{len(known)} attempts of {name} (batch sizes {sizes}) are a prior for the epochs to the target; "
        "the cost of an epoch is transferred up to a factor, which is measured here"
    )
    yield TRANSFER, True, "LearnedFrom", text


def _is_true(each: Condition) -> bool:
    return each.status is ConditionStatus.TRUE


def plan_available(snapshot: Snapshot) -> Iterator[tuple[str, bool | None, str, str]]:
    """Whether there is a plan for the job's pipeline; only for a job that plans it and whose ranks have registered.

    The FrequencyPlan that a job names is looked for by the writer of these statuses while an attempt runs. When it
    appears, the ranks run it without a restart. When the attempt is deleted, the condition stays as it was.
    """
    power = snapshot.job.spec.power
    if power.clocks_by_plan is None:
        return
    planned = (each for each in snapshot.recurrences if each.status.frequency_plan is not None)
    newest = max(planned, key=lambda each: each.order, default=None)
    if newest is None or (applied := newest.status.frequency_plan) is None:
        for each in snapshot.job.status.conditions:
            if each.type == PLAN_AVAILABLE:
                yield PLAN_AVAILABLE, HOLDS[each.status], each.reason, each.message
        return
    of_recurrence = f"recurrence {newest.metadata.name}"
    if power.named_plan is not None and not applied.name:
        text = (
            f"{of_recurrence}: the job names FrequencyPlan {power.named_plan}, which does not exist in namespace "
            f"{snapshot.job.metadata.namespace}, so its ranks run at free clocks; create it, and running ranks get its "
            "clocks, or leave power.frequencyPlan.name out"
        )
        yield PLAN_AVAILABLE, False, NOT_FOUND, text
    elif applied.problem:
        yield PLAN_AVAILABLE, False, NO_PLAN, f"{of_recurrence} runs at free clocks: {applied.problem}"
    elif applied.name or applied.mode == PLAN:
        plan = f"FrequencyPlan {applied.name}" if applied.name else "a plan from its profile"
        if applied.saving_percent is not None:
            plan = f"{plan}, which saves {number_text(float(applied.saving_percent))} % of the energy"
        yield PLAN_AVAILABLE, True, "Planned", f"{of_recurrence}: {plan}"
    else:
        yield PLAN_AVAILABLE, None, "NotProfiled", f"{of_recurrence}: {applied.reason}"


def unpassed_batch_size(spec: RecurringTrainingJobSpec) -> str:
    """That nothing of a job passes the batch size to a training without the client, and what to do; empty otherwise.

    A job that always runs one batch size has no choice to pass.
    """
    is_one = spec.mode is Mode.FIXED or len(set(spec.batch_size.candidates)) == 1
    if spec.reporting.uses_client or is_one:
        return ""
    if any(name.encode() in spec.template.spec.text for name in VARIABLES):
        return ""
    return (
        f"nothing in spec.template names {VARIABLES[0]} or {VARIABLES[1]}: a script that does not read one of these "
        "variables by itself trains with a batch size of its own, whatever is decided; pass it, such as "
        f"args: [--batch-size=$({VARIABLES[0]})]"
    )


@once_per_snapshot
def unobserved(snapshot: Snapshot) -> tuple[int, int]:
    """How many recurrences were deleted while they were active, and of how many the observation is lost.

    Indices have no gaps. Those below the oldest attempt that the store keeps of a job with many are left out.
    """
    before = snapshot.job.status
    records = snapshot.records
    oldest = records[0].recurrence if len(records) >= MAX_OBSERVATIONS_OF_JOB else 0
    known = {each.spec.index for each in snapshot.recurrences} | {each.recurrence for each in records}
    missing = next_index(snapshot) - oldest - sum(each >= oldest for each in known)
    if is_unseen_restored(snapshot.job):
        # How many were deleted is lost with the status.
        lost = len({each.spec.index for each in snapshot.restored_recurrences} - known) if records else missing
        return missing - lost, lost
    if before.totals.deleted is None:
        # An earlier version did not tell them apart.
        return missing, 0
    of_names = (index_in_name(snapshot.job.metadata.name, each) for each in before.active)
    recent = {*of_names, *range(before.totals.recurrences, next_index(snapshot))}
    deleted = before.totals.deleted + len(recent - known - {None})
    return deleted, max(missing - deleted, 0)


def history_lost(snapshot: Snapshot) -> Iterator[tuple[str, bool, str, str]]:
    """That observations are lost, and what that costs; nothing if none is."""
    (_, lost), uid = unobserved(snapshot), history_uid(snapshot.job)
    if is_restored(snapshot.job) and not snapshot.records and not lost:
        text = (
            f"the job was restored, and the database has nothing of its history, which has the UID {uid}: nothing is "
            "learned from the recurrences before; restore a backup of the database, which ends this condition"
        )
        yield HISTORY_LOST, True, "NotRestored", text
    if lost:
        text = (
            f"the database has no observation of {lost} recurrence(s) any more, as after its loss: nothing is learned "
            "from them, totals and savings lack what they used, and batch sizes and power limits that they tried may "
            "be tried again; restore a backup of the database, which ends this condition"
        )
        yield HISTORY_LOST, True, "ObservationsMissing", text


@dataclass(frozen=True)
class RunFailure:
    """Why a recurrence failed."""

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
    job = snapshot.job
    present = (training_digest(snapshot, warm_start=False), training_digest(snapshot))
    same_template = record.template_digest in (None, *present)
    same_target = record.target == job.spec.objective.target.run_target
    return same_template and same_target and bool(not_forgotten(job, (record,)))


def job_state(
    snapshot: Snapshot, readiness: Readiness, failure: RunFailure | None, conditions: Iterable[Condition]
) -> tuple[JobState, str]:
    """The state of a job, and the reason of its failure or of what hinders its pods; empty if there is none.

    `readiness`: whether and when its next recurrence starts.
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
