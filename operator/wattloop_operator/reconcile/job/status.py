"""The status of a job: recurrences, costs, savings, estimates by batch size, frequency plan, next start."""

from datetime import datetime
from typing import Any

from wattloop_operator.api.attempt_state import Result
from wattloop_operator.api.model_output import CurrentModel
from wattloop_operator.api.recurring_training_job_status import (
    JobTotals,
    RecentRecurrence,
    RecurringTrainingJobStatus,
    RunRequestStatus,
)
from wattloop_operator.domain.job_identity import is_unseen_restored
from wattloop_operator.domain.names import slot_of_request
from wattloop_operator.domain.quantities import KILOWATT_HOURS, metric_text
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.reconcile.energy.attempt_usage import carbon_grams, money_status
from wattloop_operator.reconcile.job.job_conditions import job_conditions, job_state, run_failure, unobserved
from wattloop_operator.reconcile.job.policy_status import (
    advice_checked,
    policy_status,
    recent_saving,
    savings_of,
    savings_status,
)
from wattloop_operator.reconcile.job.recurrences import latest_slot_time, next_index, used_slots
from wattloop_operator.reconcile.job.start import MAX_ACTIVE, Readiness
from wattloop_operator.reconcile.learning import job_observations
from wattloop_operator.reconcile.learning.changed_job import known_attempts, training_digest
from wattloop_operator.reconcile.learning.costs import Measure, RecurrenceHistory, histories_of
from wattloop_operator.reconcile.learning.job_savings import JobSavings
from wattloop_planner.observations import Outcome

MAX_RECENT = 10
CRASHES = frozenset(result.value for result, outcome in job_observations.OUTCOMES.items() if outcome is Outcome.CRASHED)


def job_status(
    snapshot: Snapshot, readiness: Readiness, open_indices: frozenset[int], now: datetime
) -> RecurringTrainingJobStatus:
    """The current status of a job; equal to the one written before if nothing has changed.

    `readiness`: whether and when its next recurrence starts.
    """
    before = snapshot.job.status
    attempts = known_attempts(snapshot)
    histories = histories_of(job_observations.records_with_late_usage(snapshot))
    running = [each for each in snapshot.recurrences if each.status.result is None]
    costs, energy, time = (savings_of(snapshot, open_indices, measure) for measure in Measure)
    recent = _recent(snapshot, histories, costs)
    ended = _ended(histories, open_indices)
    known = _ended(histories_of(attempts.records), open_indices)
    conditions = job_conditions(snapshot, readiness, known, attempts.current, now)
    conditions += advice_checked(snapshot, costs, now)
    deleted, lost = unobserved(snapshot)
    state, failure = job_state(snapshot, readiness, run_failure(snapshot, known), conditions)
    return RecurringTrainingJobStatus(
        observed_generation=snapshot.job.metadata.generation,
        conditions=conditions,
        state=state,
        failure=failure,
        active=tuple(sorted(each.metadata.name for each in running)[:MAX_ACTIVE]),
        last_schedule_time=max(filter(None, (latest_slot_time(snapshot), readiness.last_missed)), default=None),
        run_request=_run_request(snapshot, readiness, ended),
        learn_since=before.learn_since,
        learning=_learning(snapshot),
        recent_recurrences=recent,
        published=_published(snapshot),
        totals=JobTotals(
            recurrences=next_index(snapshot),
            reached=max(before.totals.reached, sum(each.reached for each in ended)),
            failed=max(before.totals.failed, sum(not each.reached for each in ended)),
            missed=before.totals.missed + readiness.missed,
            deleted=deleted,
            lost=lost,
            **_used(snapshot, histories),
        ),
        savings=savings_status(snapshot.tariff, ended, costs, energy, time),
        **policy_status(snapshot, recent, costs.default, readiness.next_start),
    )


def _started_run_request(snapshot: Snapshot) -> str | None:
    """The run request if its recurrence exists: the status write of the round that created it may have failed."""
    request = snapshot.job.spec.run_request
    return request if request and slot_of_request(request) in used_slots(snapshot) else None


def _run_request(snapshot: Snapshot, readiness: Readiness, ended: list[RecurrenceHistory]) -> RunRequestStatus | None:
    before, request = snapshot.job.status.run_request or RunRequestStatus(), snapshot.job.spec.run_request or None
    result = _new_result_of(snapshot, request, ended)
    if result is None and request != before.ended:
        # A newer request, which waits, may have replaced the one that ran.
        request = before.value
        result = _new_result_of(snapshot, request, ended)
    if result is None:
        request, result = before.ended, before.result
    value = readiness.last_run_request or _started_run_request(snapshot) or before.value
    if is_unseen_restored(snapshot.job):
        # It counts as done. Without its record, its result is not known.
        value = request = snapshot.job.spec.run_request or None
    if value is None and request is None:
        return None
    failed = request if result not in (None, Result.REACHED) else before.failed
    return RunRequestStatus.model_validate({"value": value, "ended": request, "result": result, "failed": failed})


def _new_result_of(snapshot: Snapshot, request: str | None, ended: list[RecurrenceHistory]) -> str | None:
    before = snapshot.job.status.run_request or RunRequestStatus()
    if not request or request == before.ended:
        return None
    slot = slot_of_request(request)
    for each in ended:
        if each.latest.slot == slot:
            return each.latest.result
    # One that was deleted while it was active leaves no record.
    deleted = before.value == request and slot not in used_slots(snapshot)
    return Result.CANCELLED.value if deleted else None


def _published(snapshot: Snapshot) -> CurrentModel | None:
    """The model that was published last; kept when its recurrence is deleted."""
    found = [each for each in (snapshot.job.status.published,) if each is not None]
    for each in snapshot.recurrences:
        progress = each.progress
        if each.status.result is None or progress.published is None:
            continue
        name, ended = each.metadata.name, job_observations.ended_at(each)
        found.append(CurrentModel(path=progress.published.path, recurrence=name, time=ended))
    return max(found, key=lambda model: (model.time, model.recurrence), default=None)


def _learning(snapshot: Snapshot) -> str:
    """What the policy learns from, also after a change of the job; empty before the first attempt has ended."""
    known = known_attempts(snapshot)
    if not known.records:
        return ""
    found, kept, converted = known.observations, known.kept, len(known.converted)
    crashes = sum(each.outcome is Outcome.CRASHED for each in found)
    other_target = sum(each.other_target for each in found)
    other_template = sum(each.result in CRASHES for each in kept) - crashes
    other = {(each.recurrence, each.attempt) for each in known.converted}
    first = next(
        (
            each
            for each in found
            if not (each.outcome is Outcome.CRASHED or each.other_target or (each.recurrence, each.attempt) in other)
        ),
        None,
    )
    template_digest = training_digest(snapshot)
    image = next((each.image_digest for each in reversed(found) if each.image_digest), "")
    other_training = sum(
        each.template_digest not in ("", template_digest) or each.image_digest not in ("", image)
        for each in found
        if each.gives_epochs
    )
    since = "" if first is None else f"; the first with the present target is of recurrence {first.recurrence}"
    parts = (
        (other_training, "{} with another image, template or training runtime count until later runs differ from them"),
        (converted, "{} with another target count through the curve of their metric"),
        (other_target, "of {} with another target, only the cost of an epoch counts"),
        (other_template, "{} that crashed with another template or training runtime do not count"),
        (len(known.records) - len(kept), "{} are forgotten"),
    )
    attempts = len(found) - crashes - other_target
    texts = (text.format(f"{count} attempt(s)") for count, text in parts if count)
    return "; ".join((f"epochs to the target are learned from {attempts} attempt(s){since}", *texts))


def _ended(histories: list[RecurrenceHistory], open_indices: frozenset[int]) -> list[RecurrenceHistory]:
    return [each for each in histories if each.index not in open_indices]


def _recent(snapshot: Snapshot, histories: list[RecurrenceHistory], costs: JobSavings) -> tuple[RecentRecurrence, ...]:
    entries: dict[int, RecentRecurrence] = {}
    for each in histories[-MAX_RECENT:]:
        latest, energy = each.latest, each.cost_joules(1.0)
        entries[each.index] = RecentRecurrence.model_validate(
            {
                "name": latest.recurrence_name,
                "index": each.index,
                "batch_size": latest.batch_size,
                "result": latest.result,
                "gpu_energy_joules": None if energy is None else round(energy, 3),
                "duration_seconds": round(each.time_seconds, 3) or None,
                "energy": KILOWATT_HOURS.text(energy),
                "metric": metric_text(latest.metric),
                "cost_saving_percent": recent_saving(costs, each.index),
            }
        )
    for running in snapshot.recurrences:
        if running.status.result is None:
            entries[running.spec.index] = RecentRecurrence(
                name=running.metadata.name, index=running.spec.index, batch_size=running.spec.batch_size
            )
    newest = sorted(entries, reverse=True)[:MAX_RECENT]
    return tuple(entries[index] for index in newest)


def _used(snapshot: Snapshot, histories: list[RecurrenceHistory]) -> dict[str, Any]:
    if not histories:
        return {}
    energy = sum(each.energy_joules for each in histories)
    return {
        "gpu_energy_joules": round(energy, 3),
        "duration_seconds": round(sum(each.time_seconds for each in histories), 3),
        "money": money_status(energy, snapshot.tariff),
        "carbon_grams": carbon_grams(energy, snapshot.tariff),
    }
