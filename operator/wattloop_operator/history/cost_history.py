"""The cost of each recurrence, and the savings against the default configuration."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from wattloop_operator.domain.quantities import energy_estimate_text, energy_text, money_text, saving_text
from wattloop_operator.history.energy_origin import energy_advice
from wattloop_operator.history.job_history import JobHistory, once_per_history
from wattloop_operator.history.rows import RecurrenceRow, rows_of
from wattloop_operator.reconcile.energy.attempt_usage import money
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
    """What a recurrence costs now, what was saved so far and what learning cost: for the end of a run."""
    if history.eta is None:
        return UNKNOWN_WEIGHT
    savings = history.savings
    costs = costs_of(rows_of(history))
    if not costs:
        ran = any(record.epochs for record in history.records)
        return UNKNOWN_ENERGY if ran else "No costs are known yet."
    default, latest = savings.default, savings.latest_percent
    if default is None:
        # One that an interruption ended goes on with the next run, so this is not what it will have cost.
        unreached = "" if costs[-1].reached else " and has not reached the target"
        return (
            f"The latest recurrence cost {energy_text(costs[-1].cost_joules)}{unreached}. What was saved is not known "
            f"yet: {unknown_cause(savings)}."
        )
    baseline = energy_estimate_text(default.of_run, "90 % of runs: ")
    if not savings.is_known:
        return (
            f"A recurrence in the default configuration costs {baseline}. What was saved is not known yet: "
            f"{unknown_cause(savings)}."
        )
    sentences = []
    if latest is not None:
        mean = fmean(each.cost_joules or 0.0 for each in savings.latest)
        sentences.append(
            f"A recurrence costs {energy_text(mean)} now ({_mean_of(len(savings.latest))}): {saving_text(latest)} than "
            f"in the default configuration, where it costs {baseline}."
        )
    else:
        sentences.append(f"A recurrence in the default configuration costs {baseline}.")
    learning, saved, percent = savings.learning_joules, savings.saved_joules, savings.saved_percent
    if learning is not None:
        sentences.append(
            "What tried a configuration or measured power limits cost "
            f"{_more_text(learning)} than the default would have."
        )
    if saved is not None and percent is not None:
        known = (
            f"{energy_text(abs(saved.value))} {'saved' if saved.value >= 0 else 'lost'}{_money(history)}"
            if saved.has_known_sign
            else "what was saved is not known yet"
        )
        sentences.append(
            f"In all{_since_text(savings)}, learning included, "
            f"{count_text(savings.compared_count)} cost {saving_text(percent)}: {known}."
        )
        if savings.baseline_count:
            sentences.append(f"Not counted in it: {count_text(savings.baseline_count)} in the default configuration.")
    return " ".join(sentences)


def unknown_cause(savings: JobSavings) -> str:
    """Why it is not known what was saved."""
    if savings.outdated:
        return OUTDATED
    # Of shared GPUs the energy is an upper bound.
    unmeasured = any(each.reached and each.cost_joules is None for each in savings.recurrences)
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


def _more_text(joules: Estimate) -> str:
    if not joules.has_known_sign:
        return f"between {energy_text(-joules.low)} less and {energy_text(joules.high)} more"
    return f"{energy_text(abs(joules.value))} {'more' if joules.value >= 0 else 'less'}"


def _money(history: JobHistory) -> str:
    """The price of the energy that was saved; empty if the job has no price."""
    saved = None if history.price is None else history.savings_at(1.0).saved_joules
    if history.price is None or saved is None:
        return ""
    found = money(saved.value, history.price)
    return "" if found is None else f", energy for {money_text(float(found.amount), found.currency)}"


def _mean_of(recurrences: int) -> str:
    return "the latest one" if recurrences == 1 else f"mean of the latest {recurrences}"


def count_text(recurrences: int) -> str:
    """A number of recurrences."""
    return "one recurrence" if recurrences == 1 else f"{recurrences} recurrences"
