"""Builds the view of a job, from the functions of `wattloop history`, `wattloop plot` and the status."""

from __future__ import annotations

from collections.abc import Sequence

from wattloop_operator.api.recurring_training_job import Mode, RecurringTrainingJob
from wattloop_operator.api.recurring_training_job_status import ArmStatus, RecurringTrainingJobStatus
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.domain.names import JobKey
from wattloop_operator.domain.quantities import Unit, optional_float, target_text
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.domain.tariff import Tariff
from wattloop_operator.history.cost_history import money_saved, summary
from wattloop_operator.history.job_history import JobHistory
from wattloop_operator.history.job_overview import NO_JOB, JobOverview, units_of_jobs
from wattloop_operator.history.marks import marks_of
from wattloop_operator.history.rows import RecurrenceRow, outcome_text, rows_of
from wattloop_operator.history.running_attempt import RunningAttempt, running_attempt
from wattloop_operator.page.job_source import JobSource, SourcedJob
from wattloop_operator.page.jobs_view import job_line, page_of
from wattloop_operator.page.views import (
    AttemptView,
    BeliefView,
    DecisionView,
    Interval,
    JobView,
    MarkView,
    RecurrenceView,
    TradeoffView,
)
from wattloop_operator.plots.tradeoff import pareto_front, tradeoff_points
from wattloop_operator.reconcile.attempt.attempt_conditions import refused_limit_in_status, stop_reason_in_status
from wattloop_operator.reconcile.job.recurrences import next_index
from wattloop_operator.reconcile.learning.advice import advice_text, next_configuration
from wattloop_operator.reconcile.learning.policy_configurations import default_configuration
from wattloop_planner.bandit.configuration import Configuration
from wattloop_planner.estimate import Estimate

ATTEMPTS_OF_PAGE = 50
NONE_LEFT = "No batch size is left that could run; the conditions say why."
NOT_YET = "Not known yet; it comes with the next status of the job."


def job_view(source: JobSource, key: JobKey, page: int = 1) -> JobView | None:
    """The view of a job; None if there is none of this name.

    Args:
        source: The jobs.
        key: The job.
        page: Page of its attempts, from 1; one beyond the last is the last.

    Raises:
        WattloopError: The job cannot be read.
    """
    version, job = source.version(), source.job(key)
    if job is None:
        return None
    history, snapshot = job.history, job.snapshot
    rows = rows_of(history)
    page, pages, shown = page_of(rows[::-1], ATTEMPTS_OF_PAGE, page)
    overviews = source.overviews((key,))
    # A cluster may keep no recurrence as an object; the status has the figures of all.
    units = history.units if history.records else units_of_jobs(overviews)
    reference = None if snapshot is None else _default_arm(snapshot.job)
    following, unknown = next_decision_view(snapshot)
    return JobView(
        namespace=key.namespace,
        name=key.name,
        version=version,
        history_version=job.version,
        command=source.command(("history",), key),
        plot_command=source.command(("plot",), key),
        energy_unit=units.energy.name,
        time_unit=units.time.name,
        overview=job_line(overviews[0]) if overviews else None,
        missing=list(job.missing),
        money_saved=_money_saved(history.tariff, overviews),
        summary=[job.note] if job.note else summary(history).splitlines(),
        last_decision=_last_decision(job, rows),
        next_decision=following,
        next_unknown=unknown,
        beliefs=[]
        if snapshot is None
        else [_belief(each, snapshot.job.status, reference) for each in snapshot.job.status.arms],
        cost_percent_of="" if reference is None else str(_configuration(reference)),
        running=[_attempt(each) for each in running_attempts(job)],
        marks=[MarkView(recurrence=each.recurrence, kind=each.kind, text=each.text) for each in marks_of(history)],
        tradeoff=_tradeoff(history),
        total=len(rows),
        page=page,
        pages=pages,
        recurrences=[_recurrence(row) for row in shown],
    )


def running_attempts(job: SourcedJob) -> tuple[RunningAttempt, ...]:
    """The running attempts of a job, the oldest first."""
    recurrences = () if job.snapshot is None else job.snapshot.recurrences
    running = sorted((each for each in recurrences if each.status.result is None), key=lambda each: each.order)
    return tuple(running_attempt(each, job.history) for each in running)


def next_decision_view(snapshot: Snapshot | None) -> tuple[DecisionView | None, str]:
    """The decision of the next recurrence by what the status knows, or why it is not known."""
    if snapshot is None:
        return None, NO_JOB
    job, status = snapshot.job, snapshot.job.status
    found = status.next
    if found is None or found.batch_size is None:
        return None, NOT_YET if status.observed_generation is None else NONE_LEFT
    # The status counts the recurrences up to its decision.
    if status.totals.recurrences < next_index(snapshot):
        return None, NOT_YET
    advised = job.spec.mode is Mode.ADVISE
    runs = default_configuration(job.spec) if advised else next_configuration(found)
    reason = f"mode Advise runs the default configuration; advised is {advice_text(found)}"
    return (
        DecisionView(
            recurrence=status.totals.recurrences,
            attempt=0,
            batch_size=runs.batch_size,
            parameters=dict(runs.parameters),
            power_limit_watts=None if advised else found.power_limit_watts,
            kind="" if found.kind is None else found.kind.value,
            reason=reason if advised else found.reason,
        ),
        "",
    )


def _last_decision(job: SourcedJob, rows: tuple[RecurrenceRow, ...]) -> DecisionView | None:
    recurrences = () if job.snapshot is None else job.snapshot.recurrences
    newest = max(recurrences, key=lambda each: each.order, default=None)
    record = job.history.records[-1] if job.history.records else None
    if newest is not None and newest.status.result is None:
        return _decision(newest)
    if record is None:
        return None
    return DecisionView(
        recurrence=record.recurrence,
        attempt=record.attempt,
        batch_size=record.batch_size,
        parameters=dict(record.parameters),
        power_limit_watts=record.power_limit_watts,
        kind=record.decision_kind,
        reason=record.reason,
        outcome=outcome_text(record.result),
        energy_joules=rows[-1].energy_joules,
        time_seconds=rows[-1].time_seconds,
    )


def _decision(recurrence: TrainingRecurrence) -> DecisionView:
    spec = recurrence.spec
    return DecisionView(
        recurrence=spec.index,
        attempt=spec.attempt,
        batch_size=spec.batch_size,
        parameters=spec.parameters,
        power_limit_watts=spec.power_limit_watts,
        measures_limits=spec.profile_power_limits,
        kind=spec.decision.kind.value,
        reason=spec.decision.reason,
    )


def _default_arm(job: RecurringTrainingJob) -> ArmStatus | None:
    """What is believed of the default configuration, whose expected cost is 100 %; None if that is not known."""
    default = default_configuration(job.spec)
    return next((arm for arm in job.status.arms if _configuration(arm) == default and arm.mean_cost_joules), None)


def _configuration(arm: ArmStatus) -> Configuration:
    return Configuration(arm.batch_size, tuple(sorted(arm.parameters.items())))


def _money_saved(tariff: Tariff, overviews: Sequence[JobOverview]) -> str:
    if tariff.currency is None or not overviews:
        return ""
    return Unit(1.0, tariff.currency).interval_text(money_saved(tariff, overviews[0].saved_energy))


def _belief(arm: ArmStatus, status: RecurringTrainingJobStatus, default: ArmStatus | None) -> BeliefView:
    best = status.best
    is_best = best is not None and (arm.batch_size, arm.parameters) == (best.batch_size, best.parameters)
    missed = bool(arm.observations) and arm.missed == arm.observations
    ran = "missed" if missed else "tried" if arm.observations else "untried"
    state = "excluded" if arm.pruned else "incumbent" if is_best else ran
    return BeliefView(
        batch_size=arm.batch_size,
        parameters=arm.parameters,
        state=state,
        observations=arm.observations,
        missed=arm.missed,
        cost_percent=None if default is None else Interval.of(_cost_percent(arm, default)),
        crashes=arm.crashes,
        note=arm.note,
    )


def _cost_percent(arm: ArmStatus, default: ArmStatus) -> Estimate | None:
    cost = Estimate.if_known(arm.mean_cost_joules, arm.low_cost_joules, arm.high_cost_joules)
    return None if cost is None else cost.scaled(100 / float(default.mean_cost_joules or 1))


def _attempt(running: RunningAttempt) -> AttemptView:
    recurrence, curve, progress = running.recurrence, running.curve, running.progress
    status = recurrence.status
    return AttemptView(
        name=recurrence.metadata.name,
        recurrence=curve.recurrence,
        attempt=curve.attempt,
        configuration=str(curve.configuration),
        started_at=status.start_time,
        epoch=optional_float(progress.epoch),
        max_epochs=recurrence.spec.max_epochs,
        expected_epochs=curve.expected_epochs,
        limit_epochs=curve.limit_epochs,
        target=target_text(curve.target),
        metric=optional_float(progress.metric),
        final_metric=Interval.of(curve.final_metric),
        energy_joules=optional_float(progress.energy_joules),
        time_seconds=optional_float(progress.time_seconds),
        limit_percent=running.limit_percent,
        power_limit_watts=progress.power_limit_watts,
        refused_limit=refused_limit_in_status(recurrence),
        gpus=status.devices,
        pods=[f"{each.uid} on {each.node}" for each in status.pods],
        stop_reason=stop_reason_in_status(recurrence),
    )


def _recurrence(row: RecurrenceRow) -> RecurrenceView:
    return RecurrenceView(
        recurrence=row.recurrence,
        attempt=row.attempt,
        configuration=str(row.configuration),
        power_limit_watts=row.power_limit_watts,
        epochs=row.epochs,
        outcome=row.outcome,
        energy_joules=row.energy_joules,
        time_seconds=row.time_seconds,
        metric=row.metric,
        cost_saving_percent=Interval.of(row.saving),
        purpose=row.purpose,
        reason=row.reason,
    )


def _tradeoff(history: JobHistory) -> list[TradeoffView]:
    points = tradeoff_points(history) if history.records else ()
    front = set(pareto_front(points))
    return [
        TradeoffView(
            configuration=str(each.configuration),
            power_limit_watts=each.power_limit_watts,
            energy_joules=each.energy_joules,
            time_seconds=each.time_seconds,
            runs=each.runs,
            on_front=each in front,
        )
        for each in points
    ]
