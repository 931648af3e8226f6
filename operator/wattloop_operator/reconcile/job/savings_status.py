"""The savings in the status of a job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from wattloop_operator.api.batch_size import DecisionKind
from wattloop_operator.api.meta import Condition
from wattloop_operator.api.recurring_training_job import Mode
from wattloop_operator.api.recurring_training_job_status import Saving, SavingName
from wattloop_operator.domain.quantities import (
    JOULES,
    JOULES_PER_KILOWATT_HOUR,
    KILOWATT_HOURS,
    MINUTES,
    NOT_KNOWN_YET,
    SECONDS,
    Unit,
    percent_text,
    saving_text,
)
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.domain.tariff import Tariff
from wattloop_operator.reconcile.conditions import condition
from wattloop_operator.reconcile.energy.attempt_usage import DECIMALS, MONEY_DECIMALS
from wattloop_operator.reconcile.learning import job_observations
from wattloop_operator.reconcile.learning.advice import next_configuration, next_saving
from wattloop_operator.reconcile.learning.changed_job import known_attempts
from wattloop_operator.reconcile.learning.costs import Measure, RecurrenceHistory, comparable_records
from wattloop_operator.reconcile.learning.job_observations import default_configuration, known_records
from wattloop_operator.reconcile.learning.job_savings import JobSavings, Purpose, job_savings
from wattloop_operator.reconcile.learning.outdated_default import comparable_default
from wattloop_planner.bandit.configuration import Configuration
from wattloop_planner.estimate import Estimate

ADVICE_CHECKED = "AdviceChecked"
MEASURED = "; measured: "


def advice_checked(snapshot: Snapshot, savings: JobSavings, now: datetime) -> tuple[Condition, ...]:
    """The condition with the expected and the measured saving of the advised configuration.

    Its message keeps what was expected. A job that was never in mode Advise, or is, has none.
    """
    expected = _expected(snapshot)
    if not expected:
        return ()
    records = known_records(snapshot)
    last = max((each.recurrence for each in records if each.decision_kind == DecisionKind.ADVISE.value), default=-1)
    ran = {
        each.recurrence
        for each in records
        if each.recurrence > last and expected.startswith(_subject(Configuration(each.batch_size, each.parameters)))
    }
    found = [each for each in savings.recurrences if each.has_saving and each.index in ran]
    held = [each.index for each in found if each.purpose is Purpose.CHOSEN]
    indices = tuple(held or [each.index for each in found])
    measured = savings.of_all(indices)
    text = NOT_KNOWN_YET if measured is None else f"{saving_text(measured)} over {len(indices)} recurrence(s)"
    holds, reason = (None, "NotMeasured") if measured is None else (True, "Measured")
    message, before = f"{expected}{MEASURED}{text}.", snapshot.job.status.conditions
    return (condition(before, ADVICE_CHECKED, holds=holds, reason=reason, message=message, now=now),)


def _expected(snapshot: Snapshot) -> str:
    status = snapshot.job.status
    if snapshot.job.spec.mode is Mode.ADVISE:
        return ""
    if status.next is not None and status.next.kind is DecisionKind.ADVISE:
        saving = next_saving(status.next)
        return "" if saving is None else f"{_subject(next_configuration(status.next))}{saving_text(saving)}"
    messages = (each.message for each in status.conditions if each.type == ADVICE_CHECKED)
    return next(messages, "").partition(MEASURED)[0]


def _subject(configuration: Configuration) -> str:
    ordered = Configuration(configuration.batch_size, tuple(sorted(configuration.parameters)))
    return f"Mode Advise expected batch size {ordered} to cost "


PERCENT_DECIMALS = 2
PERCENT, GRAMS = Unit(1.0, "percent"), Unit(1.0, "g")


def savings_of(
    snapshot: Snapshot, left_out: frozenset[int] = frozenset(), measure: Measure = Measure.COST
) -> JobSavings:
    """The recurrences towards the present target, compared with the default configuration."""
    spec = snapshot.job.spec
    configuration, eta = default_configuration(spec), spec.objective.energy_weight_percent / 100
    default = comparable_default(
        comparable_records(snapshot), known_attempts(snapshot).profiles, configuration, eta=eta, measure=measure
    )
    return job_savings(
        job_observations.records_with_late_usage(snapshot),
        job_observations.known_profiles(snapshot),
        target=spec.objective.target.run_target,
        configuration=configuration,
        eta=eta,
        default=default,
        measure=measure,
        left_out=left_out,
    )


def savings_status(
    tariff: Tariff, ended: Sequence[RecurrenceHistory], costs: JobSavings, energy: JobSavings, time: JobSavings
) -> tuple[Saving, ...]:
    """The savings so far, with units; nothing before a recurrence has ended."""
    if not ended:
        return ()
    energy_text, time_text = KILOWATT_HOURS.interval_text, MINUTES.interval_text
    found = [
        _saving(SavingName.COST, PERCENT, percent_text, costs.saved_percent),
        _saving(SavingName.ENERGY, JOULES, energy_text, energy.saved),
        _saving(SavingName.TIME, SECONDS, time_text, time.saved),
    ]
    default = None if costs.default is None else costs.default.of_run
    further: list[tuple[SavingName, Unit, Callable[[Estimate | None], str], Estimate | None]] = [
        (SavingName.LATEST_COST, PERCENT, percent_text, costs.latest_percent),
        (SavingName.LEARNING_ENERGY, JOULES, energy_text, energy.learning),
        (SavingName.LEARNING_TIME, SECONDS, time_text, time.learning),
        (SavingName.DEFAULT_COST, JOULES, JOULES.interval_text, default),
    ]
    for name, rate in ((SavingName.MONEY, _price(tariff)), (SavingName.CARBON, _emissions(tariff))):
        if rate is not None and energy.saved is not None:
            unit, per_joule = rate
            further.append((name, unit, unit.interval_text, energy.saved.scaled(per_joule)))
    return *found, *(_saving(*each) for each in further if each[-1] is not None)


def _price(tariff: Tariff) -> tuple[Unit, float] | None:
    if tariff.currency is None or tariff.per_kilowatt_hour is None:
        return None
    return Unit(1.0, tariff.currency), float(tariff.per_kilowatt_hour) / JOULES_PER_KILOWATT_HOUR


def _emissions(tariff: Tariff) -> tuple[Unit, float] | None:
    grams = tariff.grams_per_kilowatt_hour
    return None if grams is None else (GRAMS, float(grams) / JOULES_PER_KILOWATT_HOUR)


def _saving(name: SavingName, unit: Unit, text: Callable[[Estimate | None], str], estimate: Estimate | None) -> Saving:
    decimals = PERCENT_DECIMALS if unit is PERCENT else DECIMALS if unit in (JOULES, SECONDS) else MONEY_DECIMALS
    values = {} if estimate is None else {"value": estimate.value, "low": estimate.low, "high": estimate.high}
    rounded = {end: round(value, decimals) for end, value in values.items()}
    return Saving.model_validate({"name": name, "unit": unit.name, "text": text(estimate), **rounded})


def recent_saving(costs: JobSavings, index: int) -> float | None:
    """The saving of one recurrence in percent for its summary in the status; None if it is not known."""
    saving = costs.of(index)
    return None if saving is None else round(saving.value, PERCENT_DECIMALS)
