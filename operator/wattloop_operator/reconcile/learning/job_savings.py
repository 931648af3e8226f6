"""What a job saved against its default configuration: the one definition that all views show.

The saving of a recurrence is the expected cost of the default configuration (`default_cost_of`) less what all its
attempts cost; its interval is that of the expected cost. A run of the default saves nothing, whatever chance makes of
it. Runs that try a configuration or measure power limits, and recurrences that missed their target, are what learning
cost; the saving of a job includes them.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import takewhile

from wattloop.wire.environment import RunTarget
from wattloop_operator.api.batch_size import DecisionKind
from wattloop_operator.api.training_recurrence import Attribution
from wattloop_operator.domain.records import ObservationRecord, PowerProfileRecord
from wattloop_operator.reconcile.energy.attempt_usage import plausible_cost
from wattloop_operator.reconcile.learning.costs import (
    ComparableDefault,
    Measure,
    RecurrenceHistory,
    histories_of,
    known_cost,
    ran,
)
from wattloop_planner.bandit.configuration import Configuration
from wattloop_planner.estimate import Estimate, RunCost

# Recurrences over which the present saving is a mean, which reduces the effect of chance.
LATEST = 5
SEARCHES = frozenset({DecisionKind.TRIAL.value, DecisionKind.PRUNE.value, DecisionKind.DEFAULT.value})


class Purpose(StrEnum):
    """What a recurrence ran for.

    BASELINE: the default configuration. LEARNING: a trial, or a measurement of power limits. CHOSEN: the
    configuration that was learned.
    """

    BASELINE = "baseline"
    LEARNING = "learning"
    CHOSEN = "chosen"


@dataclass(frozen=True)
class RecurrenceSaving:
    """One recurrence, compared with the default configuration.

    Attributes:
        of_default: Whether all its attempts ran the default batch size and parameters.
        paid: Cost, energy in joules or time in seconds of all its attempts; None if that of one is not known.
        lost: What of it was without result: of attempts with another configuration, if it missed the target.
    """

    index: int
    purpose: Purpose
    reached: bool
    of_default: bool
    paid: float | None
    lost: float = 0.0

    @property
    def is_compared(self) -> bool:
        """Whether it is compared with the default configuration."""
        return self.reached and self.paid is not None and self.purpose is not Purpose.BASELINE

    @property
    def has_saving(self) -> bool:
        """Whether it has a saving of its own: a default run that measures power limits is a cost of learning alone."""
        return self.is_compared and not (self.of_default and self.purpose is Purpose.LEARNING)


@dataclass(frozen=True)
class JobSavings:
    """The recurrences of a job towards one target, compared with its default configuration.

    Attributes:
        default: What a recurrence in the default configuration is expected to cost, to use in joules, or to take in
            seconds; None if not known yet.
        outdated: Whether it is not known because the cost of an epoch has changed since that configuration ran.
        since: Index of the first recurrence of which an epoch of that configuration costs what it costs now.
    """

    default: RunCost | None
    recurrences: tuple[RecurrenceSaving, ...] = ()
    outdated: bool = False
    since: int = 0

    @cached_property
    def is_known(self) -> bool:
        """Whether a saving can be stated: the default's cost and that of another configuration are known."""
        return self.default is not None and any(each.has_saving for each in self.recurrences)

    def of(self, index: int) -> Estimate | None:
        """Saving of one recurrence in percent of the default's cost; None for a baseline, or if it is not known."""
        return self.of_all((index,))

    def of_all(self, indices: Iterable[int]) -> Estimate | None:
        """Saving of some recurrences in percent of the default's cost; None if none has one."""
        found = [self._by_index[index] for index in sorted(set(indices)) if index in self._by_index]
        return self._percent([each for each in found if each.has_saving])

    @cached_property
    def _by_index(self) -> dict[int, RecurrenceSaving]:
        return {each.index: each for each in self.recurrences}

    @cached_property
    def saved(self) -> Estimate | None:
        """Saved so far, learning included, in joules or seconds; None if not known yet."""
        return self._difference(self.compared) if self.is_known else None

    @cached_property
    def saved_percent(self) -> Estimate | None:
        """Saved so far, learning included, in percent of what the default would have cost; None if not known yet."""
        return self._percent(self.compared) if self.is_known else None

    @cached_property
    def learning(self) -> Estimate | None:
        """What trials and measurements of power limits used or took more than the default; None if not known yet.

        It is negative if they used or took less.
        """
        learning = [each for each in self.compared if each.purpose is Purpose.LEARNING or each.lost]
        saved = self._difference(learning) if learning else None
        return None if saved is None else saved.scaled(-1)

    @cached_property
    def latest(self) -> tuple[RecurrenceSaving, ...]:
        """The latest recurrences in the configuration that was learned; none after a return to the default."""
        decided = [each for each in reversed(self.recurrences) if each.reached and each.purpose is not Purpose.LEARNING]
        chosen = [each for each in takewhile(lambda each: each.purpose is Purpose.CHOSEN, decided) if each.is_compared]
        return tuple(reversed(chosen[:LATEST]))

    @cached_property
    def latest_percent(self) -> Estimate | None:
        """Saving of the latest recurrences with the configuration that was learned; None if there is none yet."""
        return self._percent(self.latest) if self.latest else None

    @cached_property
    def compared(self) -> tuple[RecurrenceSaving, ...]:
        """The recurrences that the saving is about: those that reached the target, and trials in vain."""
        return tuple(each for each in self.recurrences if each.is_compared or each.lost)

    @cached_property
    def compared_count(self) -> int:
        """Number of recurrences that would have cost the default's cost."""
        return sum(each.is_compared for each in self.recurrences)

    @cached_property
    def baseline_count(self) -> int:
        """Number of recurrences in the default configuration, which the others are compared with."""
        return sum(each.purpose is Purpose.BASELINE for each in self.recurrences)

    def running(self) -> tuple[tuple[int, Estimate], ...]:
        """Index of each compared recurrence, and what was saved up to and including it."""
        found, count, paid = [], 0, 0.0
        for each in self.compared:
            more, cost = _paid((each,))
            count, paid = count + more, paid + cost
            saved = self._saved(count, paid)
            if saved is not None:
                found.append((each.index, saved))
        return tuple(found)

    def _difference(self, recurrences: Sequence[RecurrenceSaving]) -> Estimate | None:
        return self._saved(*_paid(recurrences))

    def _saved(self, count: int, paid: float) -> Estimate | None:
        return self._of_default(lambda default: count * default - paid)

    def _percent(self, recurrences: Sequence[RecurrenceSaving]) -> Estimate | None:
        count, paid = _paid(recurrences)
        default = self.default
        # With a default's cost near zero, a percentage says nothing.
        least = None if default is None else default.expected.low
        if not count or not least or plausible_cost(paid / least) is None:
            return None
        return self._of_default(lambda cost: 100 * (1 - paid / (count * cost)))

    def _of_default(self, function: Callable[[float], float]) -> Estimate | None:
        """A rising function of the default's expected cost."""
        if self.default is None:
            return None
        default = self.default.expected
        return Estimate(function(default.value), function(default.low), function(default.high))


def job_savings(
    records: Sequence[ObservationRecord],
    profiles: Sequence[PowerProfileRecord],
    *,
    target: RunTarget,
    configuration: Configuration,
    eta: float,
    default: ComparableDefault,
    measure: Measure = Measure.COST,
    left_out: frozenset[int] = frozenset(),
) -> JobSavings:
    """Compare the recurrences of a job with its default configuration.

    `records`: records of the job, ordered by (recurrence, attempt). `target`: the target; recurrences with another one
    are not compared. `eta`: the job's weight of energy in the cost, 0 to 1.
    """
    purposes = _Purposes(profiles, configuration)
    compared = []
    records, weight, size = measure.weighted(records, eta)
    for history in histories_of(records):
        purpose = purposes.add(history)
        if history.latest.target != target or history.index in left_out or history.index < default.since:
            continue
        # The energy of shared GPUs is an upper bound.
        is_shared = any(each.attribution == Attribution.SHARED.value for each in history.records)
        cost = None if is_shared else history.cost_joules(weight)
        others = [each for each in history.records if not purposes.is_default(each)]
        lost = 0.0 if history.reached else known_cost(others, weight) or 0.0
        of_default = all(ran(each, configuration) for each in history.records)
        compared.append(
            RecurrenceSaving(
                history.index, purpose, history.reached, of_default, None if cost is None else cost / size, lost / size
            )
        )
    return JobSavings(default.cost, tuple(compared), default.outdated, default.since)


class _Purposes:
    """Finds what recurrences ran for, in their order.

    A power limit is Wattloop's choice if there is a profile of the batch size; a fixed one is part of the default
    configuration. The first attempt of a batch size with such a profile that was to measure limits is the one that did.
    """

    def __init__(self, profiles: Iterable[PowerProfileRecord], default: Configuration) -> None:
        self._highest: dict[tuple[int, str, int], float] = {}
        for profile in profiles:
            key = profile.key.batch_size, profile.key.gpu_product, profile.key.gpu_count
            self._highest[key] = max(each.power_limit_watts for each in profile.measurements)
        self._default = default
        self._measured: set[tuple[int, str, int]] = set()

    def is_default(self, record: ObservationRecord) -> bool:
        """Whether an attempt ran the default configuration, without a power limit that Wattloop chose."""
        highest = self._highest.get(_key(record))
        limit = record.power_limit_watts
        return ran(record, self._default) and (limit is None or highest is None or round(limit) >= round(highest))

    def add(self, history: RecurrenceHistory) -> Purpose:
        """The purpose of the next recurrence."""
        learns = [self._learns(record) for record in history.records]
        if any(learns):
            return Purpose.LEARNING
        return Purpose.BASELINE if all(map(self.is_default, history.records)) else Purpose.CHOSEN

    def _learns(self, record: ObservationRecord) -> bool:
        key = _key(record)
        measures = key in self._highest and key not in self._measured and _is_measurement(record)
        if measures:
            self._measured.add(key)
        searches = record.decision_kind in SEARCHES and not ran(record, self._default)
        return measures or searches or record.decision_kind == DecisionKind.COMPARISON.value


def _is_measurement(record: ObservationRecord) -> bool:
    """Whether an attempt was to measure limits; of a record that does not say so, whether a limit was set at all."""
    says = record.measures_power_limits
    return record.power_limit_watts is not None if says is None else says


def _key(record: ObservationRecord) -> tuple[int, str, int]:
    return record.batch_size, record.gpu_product, record.gpu_count


def _paid(recurrences: Iterable[RecurrenceSaving]) -> tuple[int, float]:
    count, paid = 0, 0.0
    for each in recurrences:
        if each.is_compared:
            count += 1
            paid += each.paid or 0.0
        else:
            paid += each.lost
    return count, paid
