"""The cost of each recurrence, and the savings against the default configuration."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from wattloop_operator.history.energy_origin import energy_note, energy_remedy
from wattloop_operator.history.job_history import JobHistory
from wattloop_operator.history.rows import RecurrenceRow
from wattloop_planner.bandit.configuration import Configuration


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
        if known:
            recurrences.append(RecurrenceCost(index, known, any(row.reached for row in attempts)))
    return tuple(recurrences)


def comparable_rows(rows: Sequence[RecurrenceRow]) -> tuple[RecurrenceRow, ...]:
    """The rows that are compared with the default configuration; all rows if its cost is not known.

    Earlier rows may have another target.
    """
    if not rows or rows[-1].default_cost_joules is None:
        return tuple(rows)
    return tuple(row for row in rows if row.default_cost_joules is not None)


def running_saving_joules(costs: Sequence[RecurrenceCost], default_cost_joules: float) -> tuple[float, ...]:
    """Joules saved up to and including each recurrence.

    They are negative while learning has cost more than it saved.

    Example:
        >>> first = RecurrenceCost(0, ((Configuration(8), 150.0),), True)
        >>> costs = [first, RecurrenceCost(1, ((Configuration(16), 40.0),), True)]
        >>> running_saving_joules(costs, 100.0)
        (-50.0, 10.0)
    """
    return tuple(itertools.accumulate(default_cost_joules - each.cost_joules for each in costs))


def saving_sentence(rows: Sequence[RecurrenceRow]) -> str:
    """One sentence for the end of a run.

    The current cost of a recurrence against the default configuration.

    The current cost is the mean of the last five recurrences, which reduces the effect of chance.
    """
    default = rows[-1].default_cost_joules if rows else None
    costs = costs_of(comparable_rows(rows))
    if not costs:
        return "No costs are known yet."
    latest = costs[-5:]
    now = sum(each.cost_joules for each in latest) / len(latest)
    if not any(each.cost_joules for each in costs):
        return (
            "The recurrences cost 0 J: no time passed on the simulated GPUs. Add --simulated-load cpu, or --time-scale "
            "1, or simulate the work of the training with nvml_simulator.occupy."
        )
    if default is None:
        return (
            f"A recurrence costs {now:,.0f} J now (mean of the last {len(latest)}); the cost of the default "
            "configuration is not known before its batch size has reached the target once."
        )
    saved = 100 * running_saving_joules(costs, default)[-1] / (default * len(costs))
    return (
        f"A recurrence costs {now:,.0f} J now (mean of the last {len(latest)}), {100 * now / default:.0f} % of the "
        f"{default:,.0f} J in the default configuration; over {_count(len(costs))}, learning included, "
        f"{abs(saved):.0f} % was {'saved' if saved >= 0 else 'lost'}."
    )


def summary(history: JobHistory, rows: Sequence[RecurrenceRow]) -> str:
    """The sentence about the savings, what must be known about it, and, in mode Advise, the advice for the next run."""
    advice = (
        f"\nMode Advise: every run has the default configuration. Advised is {history.advice}."
        if history.advice
        else ""
    )
    origins = [row.energy_origin for row in rows]
    note = f"\n{energy_note(origins)}; {energy_remedy(origins)}" if energy_note(origins) else ""
    return saving_sentence(rows) + note + advice


def _count(recurrences: int) -> str:
    return "its one recurrence" if recurrences == 1 else f"all {recurrences} recurrences"
