"""The status of a job: recurrences, costs, savings, estimates by batch size, frequency plan, next start."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from wattloop_operator.api.attempt_state import Result
from wattloop_operator.api.model_output import CurrentModel
from wattloop_operator.api.recurring_training_job_status import (
    ActiveRecurrence,
    Counts,
    JobTotals,
    Learning,
    RecentRecurrence,
    RecurringTrainingJobStatus,
)
from wattloop_operator.domain.names import slot_of_request
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.reconcile.energy.attempt_usage import carbon_grams, money
from wattloop_operator.reconcile.job.job_conditions import job_conditions, job_frequency_plan
from wattloop_operator.reconcile.job.job_state import job_state, run_failure
from wattloop_operator.reconcile.job.policy_status import policy_status
from wattloop_operator.reconcile.job.recurrences import latest_slot_time, next_index, used_slots
from wattloop_operator.reconcile.job.savings_status import job_figures, recent_saving, savings_of, savings_status
from wattloop_operator.reconcile.job.start import MAX_ACTIVE, Readiness
from wattloop_operator.reconcile.learning import job_observations
from wattloop_operator.reconcile.learning.advice import advice_check
from wattloop_operator.reconcile.learning.changed_job import known_attempts, training_digest
from wattloop_operator.reconcile.learning.costs import Measure, RecurrenceHistory, histories_of
from wattloop_operator.reconcile.learning.job_savings import JobSavings
from wattloop_planner.observations import Observation, Outcome

MAX_RECENT = 10
CRASHES = frozenset(result.value for result, outcome in job_observations.OUTCOMES.items() if outcome is Outcome.CRASHED)


def job_status(
    snapshot: Snapshot, readiness: Readiness, open_indices: frozenset[int], now: datetime
) -> RecurringTrainingJobStatus:
    """The current status of a job; equal to the one written before if nothing has changed.

    Args:
        snapshot: The state of the job.
        readiness: Whether and when its next recurrence starts.
        open_indices: Indices of its open recurrences.
        now: The time.
    """
    before, spec = snapshot.job.status, snapshot.job.spec
    attempts = known_attempts(snapshot)
    histories = histories_of(job_observations.records_with_late_usage(snapshot))
    running = [each for each in snapshot.recurrences if each.status.result is None]
    eta = spec.objective.energy_weight_percent / 100
    costs, energy, time = (savings_of(snapshot, open_indices, measure) for measure in Measure)
    recent = _recent(snapshot, histories, costs)
    ended = _ended(histories, open_indices)
    known = _ended(histories_of(attempts.records), open_indices)
    conditions = job_conditions(snapshot, readiness, known, attempts.current, now)
    state, failure = job_state(snapshot, readiness, run_failure(snapshot, known), conditions)
    return RecurringTrainingJobStatus(
        observed_generation=snapshot.job.metadata.generation,
        conditions=conditions,
        state=state,
        failure=failure,
        active=tuple(
            ActiveRecurrence(name=each.metadata.name)
            for each in sorted(running, key=lambda each: each.metadata.name)[:MAX_ACTIVE]
        ),
        next_schedule_time=readiness.next_start,
        last_schedule_time=_last_schedule_time(snapshot),
        last_missed_time=readiness.last_missed or before.last_missed_time,
        last_run_request=readiness.last_run_request or _started_run_request(snapshot) or before.last_run_request,
        **_ended_run_request(snapshot, ended),
        forgotten=before.forgotten,
        learning=_learning(snapshot),
        counts=Counts(
            recurrences=next_index(snapshot),
            attempts=max(before.counts.attempts, sum(len(each.records) for each in histories) + len(running)),
            reached=max(before.counts.reached, sum(each.reached for each in ended)),
            failed=max(before.counts.failed, sum(not each.reached for each in ended)),
            missed=before.counts.missed + readiness.missed,
        ),
        recent_recurrences=recent,
        frequency_plan=job_frequency_plan(snapshot),
        published=_published(snapshot),
        totals=_totals(snapshot, histories, eta),
        savings=savings_status(spec.objective, costs, energy, time),
        figures=job_figures(ended, costs, energy, time),
        advice_check=advice_check(snapshot.job, attempts.records, costs, next_index(snapshot)),
        **policy_status(snapshot, recent, costs.default),
    )


def _started_run_request(snapshot: Snapshot) -> str | None:
    """The run request if its recurrence exists: the status write of the round that created it may have failed."""
    request = snapshot.job.spec.run_request
    return request if request is not None and slot_of_request(request) in used_slots(snapshot) else None


def _ended_run_request(snapshot: Snapshot, ended: list[RecurrenceHistory]) -> dict[str, Any]:
    """The run request whose recurrence ended last, and the one whose recurrence failed last."""
    before, request = snapshot.job.status, snapshot.job.spec.run_request
    result = _new_result_of(snapshot, request, ended)
    if result is None and request != before.ended_run_request:
        # A newer request, which waits, may have replaced the one that ran.
        request = before.last_run_request
        result = _new_result_of(snapshot, request, ended)
    if result is None:
        request, result = before.ended_run_request, before.ended_run_result
    failed = request if result not in (None, Result.REACHED) else before.failed_run_request
    return {"ended_run_request": request, "ended_run_result": result, "failed_run_request": failed}


def _new_result_of(snapshot: Snapshot, request: str | None, ended: list[RecurrenceHistory]) -> str | None:
    """The result of a run request's recurrence; None if it has not ended, or is in the status already."""
    if request is None or request == snapshot.job.status.ended_run_request:
        return None
    slot = slot_of_request(request)
    for each in ended:
        if each.latest.slot == slot:
            return each.latest.result
    # One that was deleted while it was active leaves no record.
    deleted = snapshot.job.status.last_run_request == request and slot not in used_slots(snapshot)
    return Result.CANCELLED.value if deleted else None


def _published(snapshot: Snapshot) -> CurrentModel | None:
    """The model that was published last; kept when its recurrence is deleted."""
    found = [each for each in (snapshot.job.status.published,) if each is not None]
    for each in snapshot.recurrences:
        progress = each.status.progress
        if each.status.result is None or progress is None or progress.published is None:
            continue
        found.append(
            CurrentModel(
                path=progress.published.path,
                digest=progress.published.digest,
                recurrence=each.metadata.name,
                batch_size=each.spec.batch_size,
                metric=progress.metric,
                time=job_observations.ended_at(each),
            )
        )
    return max(found, key=lambda model: (model.time, model.recurrence), default=None)


def _learning(snapshot: Snapshot) -> Learning | None:
    """The observations that the policy learns from, also after a change of the job."""
    known = known_attempts(snapshot)
    if not known.records:
        return None
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
    other_training = _with_other_training(training_digest(snapshot), found)
    parts = (
        (other_training, "{} with another image, template or training runtime count until later runs differ from them"),
        (converted, "{} with another target count through the curve of their metric"),
        (other_target, "of {} with another target, only the cost of an epoch counts"),
        (other_template, "{} that crashed with another template or training runtime do not count"),
        (len(known.records) - len(kept), "{} are forgotten"),
    )
    return Learning(
        since_recurrence=None if first is None else first.recurrence,
        attempts=len(found) - crashes - other_target,
        carried_over="; ".join(text.format(f"{count} attempt(s)") for count, text in parts if count),
    )


def _with_other_training(template_digest: str, found: tuple[Observation, ...]) -> int:
    """Number of observations of epochs whose template or image is known to differ from the present ones."""
    image = next((each.image_digest for each in reversed(found) if each.image_digest), "")
    return sum(
        each.template_digest not in ("", template_digest) or each.image_digest not in ("", image)
        for each in found
        if each.gives_epochs
    )


def _ended(histories: list[RecurrenceHistory], open_indices: frozenset[int]) -> list[RecurrenceHistory]:
    return [each for each in histories if each.index not in open_indices]


def _last_schedule_time(snapshot: Snapshot) -> datetime | None:
    latest, missed = latest_slot_time(snapshot), snapshot.job.status.last_missed_time
    return snapshot.job.status.last_schedule_time if latest == missed else latest


def _recent(snapshot: Snapshot, histories: list[RecurrenceHistory], costs: JobSavings) -> tuple[RecentRecurrence, ...]:
    eta = snapshot.job.spec.objective.energy_weight_percent / 100
    entries: dict[int, RecentRecurrence] = {}
    for each in histories[-MAX_RECENT:]:
        latest, cost, energy = each.latest, each.cost_joules(eta), each.cost_joules(1.0)
        entries[each.index] = RecentRecurrence.model_validate(
            {
                "name": latest.recurrence_name,
                "index": each.index,
                "attempts": latest.attempt + 1,
                "batch_size": latest.batch_size,
                "result": latest.result,
                "gpu_energy_joules": None if energy is None else round(energy, 3),
                "duration_seconds": round(each.time_seconds, 3) or None,
                "cost_joules": None if cost is None else round(cost, 3),
                "cost_saving_percent": recent_saving(costs, each.index),
            }
        )
    for running in snapshot.recurrences:
        if running.status.result is None:
            entries[running.spec.index] = RecentRecurrence(
                name=running.metadata.name,
                index=running.spec.index,
                attempts=running.spec.attempt + 1,
                batch_size=running.spec.batch_size,
            )
    newest = sorted(entries, reverse=True)[:MAX_RECENT]
    return tuple(entries[index] for index in newest)


def _totals(snapshot: Snapshot, histories: list[RecurrenceHistory], eta: float) -> JobTotals | None:
    if not histories:
        return None
    objective = snapshot.job.spec.objective
    energy = sum(each.energy_joules for each in histories)
    return JobTotals.model_validate(
        {
            "gpu_energy_joules": round(energy, 3),
            "duration_seconds": round(sum(each.time_seconds for each in histories), 3),
            "cost_joules": round(sum(each.cost_joules(eta) or 0.0 for each in histories), 3),
            "money": money(energy, objective.price),
            "carbon_grams": carbon_grams(energy, objective.carbon),
        }
    )
