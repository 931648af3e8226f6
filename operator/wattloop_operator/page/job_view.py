"""Builds the views of jobs, from the functions of `wattloop history`, `wattloop plot` and the status.

The functions raise `WattloopError` if what they show cannot be read. A page beyond the last is the last.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from wattloop_operator.api.attempt_state import ProgressSummary, Result
from wattloop_operator.api.meta import Condition
from wattloop_operator.api.recurring_training_job import Mode, RecurringTrainingJob
from wattloop_operator.api.recurring_training_job_status import ArmStatus, RecurringTrainingJobStatus
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.domain.names import JobKey
from wattloop_operator.domain.quantities import Unit, optional_float, target_text
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.domain.tariff import Tariff
from wattloop_operator.history.cost_history import money_saved, summary
from wattloop_operator.history.job_history import JobHistory, marks_of
from wattloop_operator.history.job_overview import NO_JOB, JobLine, units_of_jobs
from wattloop_operator.history.lines import Interval
from wattloop_operator.history.rows import RecurrenceRow, outcome_text, rows_of
from wattloop_operator.page.job_source import JobSource, SourcedJob
from wattloop_operator.page.views import (
    AttemptView,
    BeliefView,
    ConditionsView,
    ConditionView,
    DecisionView,
    FailureView,
    JobsView,
    JobView,
    MarkView,
    RecurrenceView,
    TradeoffView,
)
from wattloop_operator.plots.curve_plot import curve_of_running
from wattloop_operator.plots.tradeoff import pareto_front, tradeoff_points
from wattloop_operator.reconcile.attempt.attempt_conditions import refused_limit_in_status, stop_reason_in_status
from wattloop_operator.reconcile.job.recurrences import next_index
from wattloop_operator.reconcile.learning.advice import advice_text, next_configuration
from wattloop_operator.reconcile.learning.job_observations import default_configuration
from wattloop_planner.bandit.configuration import Configuration
from wattloop_planner.estimate import Estimate

JOBS_OF_PAGE = ATTEMPTS_OF_PAGE = 50
MAX_FAILURES = 5
NONE_LEFT = "No batch size is left that could run; the conditions say why."
NOT_YET = "Not known yet; it comes with the next status of the job."

Item = TypeVar("Item")


def jobs_view(source: JobSource, search: str = "", page: int = 1) -> JobsView:
    """One page of the jobs whose namespace and name contain a text."""
    # What is missing first: more may be known by the time that the keys are read.
    version, missing, keys = source.version(), source.missing(), source.keys()
    found = [key for key in keys if search.casefold() in str(key).casefold()]
    page, pages, shown = page_of(found, JOBS_OF_PAGE, page)
    overviews = source.overviews(shown)
    units = units_of_jobs(overviews)
    return JobsView(
        database=source.name,
        version=version,
        command=source.command(("history", "--jobs")),
        viewer=source.viewer,
        missing=list(missing),
        no_jobs_reason="" if keys else source.no_jobs_reason(),
        first_step=source.first_step,
        search=search,
        total=len(found),
        page=page,
        pages=pages,
        energy_unit=units.energy.name,
        time_unit=units.time.name,
        jobs=list(overviews),
    )


def page_of(items: Sequence[Item], size: int, page: int) -> tuple[int, int, Sequence[Item]]:
    """The page that is shown instead of one beyond the last, the number of pages, and the items of the page.

    Nothing is one empty page.

    Example:
        >>> page_of("abcde", 2, 9), page_of("", 2, 1)
        ((3, 3, 'e'), (1, 1, ''))
    """
    pages = max(-(-len(items) // size), 1)
    page = min(page, pages)
    return page, pages, items[(page - 1) * size : page * size]


def job_view(source: JobSource, key: JobKey, page: int = 1) -> JobView | None:
    """The view of a job, with one page of its attempts; None if there is none of this name."""
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
        overview=next(iter(overviews), None),
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
        running=[_attempt(each, history) for each in running_attempts(job)],
        marks=[MarkView.model_validate(each) for each in marks_of(history)],
        tradeoff=_tradeoff(history),
        total=len(rows),
        page=page,
        pages=pages,
        recurrences=[RecurrenceView.model_validate(row) for row in shown],
    )


def running_attempts(job: SourcedJob) -> list[TrainingRecurrence]:
    """The running attempts of a job, the oldest first."""
    recurrences = () if job.snapshot is None else job.snapshot.recurrences
    return sorted((each for each in recurrences if each.status.result is None), key=lambda each: each.order)


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


def _money_saved(tariff: Tariff, overviews: Sequence[JobLine]) -> str:
    if tariff.currency is None or not overviews:
        return ""
    return Unit(1.0, tariff.currency).interval_text(money_saved(tariff, overviews[0].saved_energy_joules))


def _belief(arm: ArmStatus, status: RecurringTrainingJobStatus, default: ArmStatus | None) -> BeliefView:
    best = status.best
    is_best = best is not None and (arm.batch_size, arm.parameters) == (best.batch_size, best.parameters)
    missed = bool(arm.observations) and arm.missed == arm.observations
    ran = "missed" if missed else "tried" if arm.observations else "untried"
    state = "excluded" if arm.pruned else "incumbent" if is_best else ran
    cost = Estimate.if_known(arm.mean_cost_joules, arm.low_cost_joules, arm.high_cost_joules)
    if cost is not None:
        cost = None if default is None else cost.scaled(100 / float(default.mean_cost_joules or 1))
    return BeliefView(
        batch_size=arm.batch_size,
        parameters=arm.parameters,
        state=state,
        observations=arm.observations,
        missed=arm.missed,
        cost_percent=Interval.of(cost),
        crashes=arm.crashes,
        note=arm.note,
    )


def _attempt(recurrence: TrainingRecurrence, history: JobHistory) -> AttemptView:
    status, curve = recurrence.status, curve_of_running(recurrence, history)
    progress = status.progress or ProgressSummary()
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
        limit_percent=optional_float(progress.cost_percent),
        power_limit_watts=progress.power_limit_watts,
        refused_limit=refused_limit_in_status(recurrence),
        gpus=status.devices,
        pods=[f"{each.uid} on {each.node}" for each in status.pods],
        stop_reason=stop_reason_in_status(recurrence),
    )


def _tradeoff(history: JobHistory) -> list[TradeoffView]:
    points = tradeoff_points(history) if history.records else ()
    front = set(pareto_front(points))
    return [TradeoffView.model_validate(vars(each) | {"on_front": each in front}) for each in points]


def conditions_view(source: JobSource, key: JobKey) -> ConditionsView | None:
    """The view of a job; None if there is none of this name."""
    version, job = source.version(), source.job(key)
    if job is None:
        return None
    overviews, snapshot = source.overviews((key,)), job.snapshot
    return ConditionsView(
        namespace=key.namespace,
        name=key.name,
        version=version,
        command=source.conditions_command(key),
        overview=next(iter(overviews), None),
        missing=list(job.missing),
        conditions=[] if snapshot is None else list(_conditions(snapshot)),
        failures=[] if snapshot is None else list(_failures(snapshot))[:MAX_FAILURES],
    )


def _conditions(snapshot: Snapshot) -> Iterator[ConditionView]:
    yield from _of("job", snapshot.job.status.conditions)
    for each in sorted(snapshot.recurrences, key=lambda each: each.order):
        if each.status.result is None:
            yield from _of(each.metadata.name, each.status.conditions)


def _of(subject: str, conditions: Iterable[Condition]) -> Iterator[ConditionView]:
    for each in conditions:
        yield ConditionView(
            subject=subject,
            type=each.type,
            status=each.status.value,
            reason=each.reason,
            message=each.message,
            since=each.last_transition_time,
        )


def _failures(snapshot: Snapshot) -> Iterator[FailureView]:
    for each in sorted(snapshot.recurrences, key=lambda each: each.order, reverse=True):
        result = each.status.result
        if result not in (None, Result.REACHED):
            yield FailureView(name=each.metadata.name, outcome=outcome_text(result.value), message=each.status.message)
