"""The cost of each recurrence, and the savings against the default configuration."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from wattloop_operator.domain.quantities import JOULES_PER_KILOWATT_HOUR, Unit, saving_text
from wattloop_operator.domain.tariff import Tariff
from wattloop_operator.history.energy_origin import energy_advice
from wattloop_operator.history.job_history import JobHistory, once_per_history
from wattloop_operator.history.rows import RecurrenceRow, rows_of
from wattloop_operator.reconcile.learning.job_savings import JobSavings
from wattloop_planner.bandit.configuration import Configuration
from wattloop_planner.estimate import Estimate

OUTDATED = "an epoch costs another amount than when the default configuration ran last"
UNKNOWN_WEIGHT = (
    "This database has no RecurringTrainingJob, whose weight of energy a cost needs, so no costs are known. The "
    "cluster has it: --context NAME."
)
UNKNOWN_ENERGY = "No energy was measured, so no costs are known."


@dataclass(frozen=True)
class RecurrenceCost:
    """The cost of one recurrence.

    Attributes:
        recurrence: Its index, from 0.
        attempts: Configuration and cost in joules of each attempt with a known cost, in order.
        reached: Whether it reached the target.
    """

    recurrence: int
    attempts: tuple[tuple[Configuration, float], ...]
    reached: bool

    @property
    def cost_joules(self) -> float:
        """Cost of all attempts."""
        return sum(cost for _, cost in self.attempts)


def costs_of(rows: Sequence[RecurrenceRow]) -> tuple[RecurrenceCost, ...]:
    """The recurrences with a known cost, by rising index."""
    ordered = sorted(rows, key=lambda row: (row.recurrence, row.attempt))
    recurrences = []
    for index, group in itertools.groupby(ordered, key=lambda row: row.recurrence):
        attempts = tuple(group)
        known = tuple((row.configuration, row.cost_joules) for row in attempts if row.cost_joules is not None)
        # A recurrence has no cost if that of an attempt that trained is not known.
        if known and not any(row.cost_joules is None and row.epochs > 0 for row in attempts):
            recurrences.append(RecurrenceCost(index, known, any(row.reached for row in attempts)))
    return tuple(recurrences)


def saving_sentence(history: JobHistory) -> str:
    """What a recurrence costs now, what was saved so far and what learning cost: for the end of a run.

    Its figures are those of the live page and of the plots. A cost is a percentage of the default's.
    """
    if history.eta is None:
        return UNKNOWN_WEIGHT
    savings = history.savings
    costs = costs_of(rows_of(history))
    if not costs:
        ran = any(record.epochs for record in history.records)
        return UNKNOWN_ENERGY if ran else "No costs are known yet."
    energy, time, units = history.energy_savings, history.time_savings, history.units
    unknown = f"What was saved is not known yet: {unknown_cause(savings)}."
    if savings.default is None:
        return f"{_latest_text(history, costs[-1])} {unknown}"
    default = (
        f"A run of the default configuration is expected to use {_run_text(energy, units.energy)} in "
        f"{_run_text(time, units.time)}; the intervals contain 90 % of runs."
    )
    if not savings.is_known:
        return f"{default} {unknown}"
    sentences = []
    if savings.latest:
        count = len(savings.latest)
        latest = "the latest one" if count == 1 else f"mean of the latest {count}"
        sentences.append(
            f"A recurrence now uses {_mean_text(energy, units.energy)} in {_mean_text(time, units.time)} ({latest}), "
            f"and costs {saving_text(savings.latest_percent)} than in the default configuration."
        )
    sentences.append(default)
    if energy.learning is not None and time.learning is not None:
        used, took = energy.learning.scaled(-1), time.learning.scaled(-1)
        sentences.append(
            f"Trials and measurements of power limits used {units.energy.saving_text(used)} and took "
            f"{units.time.saving_text(took)} than the default would have."
        )
    sentences.append(
        f"In all{_since_text(savings)}, learning included, {count_text(savings.compared_count)} used "
        f"{units.energy.saving_text(energy.saved)}, took {units.time.saving_text(time.saved)} and cost "
        f"{saving_text(savings.saved_percent)}."
    )
    if history.tariff.currency is not None:
        money = Unit(1.0, history.tariff.currency).saving_text(money_saved(history.tariff, energy.saved))
        sentences.append(f"At its price, that energy cost {money}.")
    if savings.baseline_count:
        sentences.append(f"Not counted in it: {count_text(savings.baseline_count)} in the default configuration.")
    return " ".join(sentences)


def unknown_cause(savings: JobSavings) -> str:
    """Why it is not known what was saved."""
    if savings.outdated:
        return OUTDATED
    # Of shared GPUs the energy is an upper bound.
    unmeasured = any(each.reached and each.paid is None for each in savings.recurrences)
    reached = f"reached the target{' with an energy of its own' if unmeasured else ''}{_since_text(savings)}"
    if savings.default is None:
        return f"the default configuration has not {reached}"
    return f"no other configuration has {reached}"


def _since_text(savings: JobSavings) -> str:
    """From which recurrence on the default's cost is known; empty if of all."""
    if not savings.since:
        return ""
    return f" since run {savings.since} (before, an epoch cost another amount)"


@once_per_history
def summary(history: JobHistory) -> str:
    """The sentences about the savings, what must be known about them, and the advice, or how it came true."""
    advice = (
        f"\nMode Advise: every run has the default configuration. Advised is {history.advice}."
        if history.advice
        else ""
    )
    note = energy_advice([row.energy_origin for row in rows_of(history)])
    check = f"\n{history.advice_check}" if history.advice_check else ""
    return saving_sentence(history) + (f"\n{note}" if note else "") + advice + check


def money_saved(tariff: Tariff, joules: Estimate | None) -> Estimate | None:
    """The price of saved energy; None if that is not known.

    Example:
        >>> money_saved(Tariff(currency="EUR", per_kilowatt_hour="0.36"), Estimate(3.6e6, 1.8e6, 7.2e6))
        Estimate(value=0.36, low=0.18, high=0.72)
    """
    price = tariff.per_kilowatt_hour
    return None if joules is None or price is None else joules.scaled(float(price) / JOULES_PER_KILOWATT_HOUR)


def _latest_text(history: JobHistory, latest: RecurrenceCost) -> str:
    rows = [row for row in rows_of(history) if row.recurrence == latest.recurrence]
    energy = history.units.energy.text(sum(row.energy_joules or 0.0 for row in rows))
    time = history.units.time.text(sum(row.time_seconds or 0.0 for row in rows))
    # One that an interruption ended goes on with the next run, so this is not what it will have used.
    unreached = "" if latest.reached else " and has not reached the target"
    return f"The latest recurrence used {energy} in {time}{unreached}."


def _run_text(savings: JobSavings, unit: Unit) -> str:
    """What a run in the default configuration uses or takes, with the interval of later ones."""
    return unit.interval_text(None if savings.default is None else savings.default.of_run)


def _mean_text(savings: JobSavings, unit: Unit) -> str:
    return unit.text(fmean(each.paid or 0.0 for each in savings.latest))


def count_text(recurrences: int) -> str:
    """A number of recurrences."""
    return "one recurrence" if recurrences == 1 else f"{recurrences} recurrences"
