"""Costs of a job's attempts and recurrences, and the expected cost of its default configuration.

What the default cost on the data of the first night says nothing of a saving on those of today, nor the other way
round. Configurations that ran several times show a change.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from wattloop.energy.cost import CostModel
from wattloop_operator.api.attempt_state import Result
from wattloop_operator.api.batch_size import DecisionKind
from wattloop_operator.domain.records import ObservationRecord, PowerProfileRecord, once_per_record
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.reconcile.energy.attempt_usage import measured_cost, plausible_cost
from wattloop_operator.reconcile.learning import job_observations
from wattloop_operator.reconcile.learning.changed_job import known_attempts
from wattloop_operator.reconcile.learning.job_observations import default_configuration
from wattloop_operator.reconcile.learning.power_profiles import applicable_profile, differs_from
from wattloop_planner.bandit.configuration import Configuration
from wattloop_planner.estimate import RunCost
from wattloop_planner.observations import Outcome

if TYPE_CHECKING:
    pass
import math
from statistics import median

from wattloop_planner.observations import WHOLE_RUNS

# Attempts in mode Advise whose mean epoch cost is that of the default configuration.
MAX_ADVISE_ATTEMPTS = 10
# Smaller changes may be those of a node, or of what else runs on it.
CHANGE = math.log(1.25)
# Of few runs, which chance may have made differ.
CHANGE_OF_FEW = math.log(1.5)
FEW = 5
MAX_COMPARED = 3
EpochCosts = Sequence[tuple[ObservationRecord, float]]


class Measure(StrEnum):
    """What of a recurrence is compared with the default configuration.

    COST: its cost, which has no unit that a person knows. ENERGY: its energy in joules. TIME: its time in seconds.
    """

    COST = "cost"
    ENERGY = "energy"
    TIME = "time"

    def weighted(
        self, records: Sequence[ObservationRecord], eta: float
    ) -> tuple[Sequence[ObservationRecord], float, float]:
        """The records, and the weight of energy with which a cost, divided by the last value, is this measure.

        `eta`: the job's weight of energy in the cost, 0 to 1.
        """
        if self is not Measure.TIME:
            return records, 1.0 if self is Measure.ENERGY else eta, 1.0
        # C = η·energy + (1−η)·power·time, so at η = 0 the cost by the power is the time.
        powers = {record.max_power_watts for record in records if record.max_power_watts > 0}
        if len(powers) > 1:
            return [_with_power(record, 1.0) for record in records], 0.0, 1.0
        return records, 0.0, powers.pop() if powers else 1.0


@once_per_record
def _with_power(record: ObservationRecord, max_power_watts: float) -> ObservationRecord:
    return replace(record, max_power_watts=max_power_watts) if record.max_power_watts > 0 else record


@dataclass(frozen=True)
class RecurrenceHistory:
    """The recorded attempts of one recurrence.

    Attributes:
        records: Its attempts, ordered; at least one.
    """

    index: int
    records: tuple[ObservationRecord, ...]

    @property
    def latest(self) -> ObservationRecord:
        """Its latest attempt."""
        return self.records[-1]

    @property
    def reached(self) -> bool:
        """Whether it reached the target."""
        return any(record.result == Result.REACHED.value for record in self.records)

    @property
    def energy_joules(self) -> float:
        """Energy of all attempts."""
        return sum(record.energy_joules for record in self.records)

    @property
    def time_seconds(self) -> float:
        """Time of all attempts."""
        return sum(record.time_seconds for record in self.records)

    def cost_joules(self, eta: float) -> float | None:
        """Cost of all attempts; see `known_cost`."""
        return known_cost(self.records, eta)


def histories_of(records: Sequence[ObservationRecord]) -> list[RecurrenceHistory]:
    """The records grouped by recurrence, by rising index."""
    by_index: dict[int, list[ObservationRecord]] = {}
    for record in records:
        by_index.setdefault(record.recurrence, []).append(record)
    return [RecurrenceHistory(index, tuple(by_index[index])) for index in sorted(by_index)]


def attempt_cost_joules(record: ObservationRecord, eta: float) -> float | None:
    """Cost of an attempt; None if it never had a GPU, or if its energy or time is not known.

    `eta`: weight of energy against time, 0 to 1.
    """
    return measured_cost(eta, record.max_power_watts, record.energy_joules, record.time_seconds)


def known_cost(records: Iterable[ObservationRecord], eta: float) -> float | None:
    """Cost of some attempts in joules; None if none is known, or if that of one that trained is not."""
    known = []
    for record in records:
        cost = attempt_cost_joules(record, eta)
        if cost is not None:
            known.append(cost)
        elif record.epochs > 0:
            return None
    return sum(known) if known else None


def default_cost(snapshot: Snapshot) -> RunCost | None:
    """Expected cost in joules of one recurrence in the default configuration, for the job's present target.

    None if not known yet.
    """
    profiles, spec = known_attempts(snapshot).profiles, snapshot.job.spec
    eta = spec.objective.energy_weight_percent / 100
    return default_cost_of(comparable_records(snapshot), profiles, default_configuration(spec), eta)


def comparable_records(snapshot: Snapshot) -> list[ObservationRecord]:
    """The records that count towards the job's present target, ordered by (recurrence, attempt)."""
    known = known_attempts(snapshot)
    return [record for record in known.records if record.target == known.target]


def has_parameters_of(record: ObservationRecord, configuration: Configuration) -> bool:
    """Whether an attempt ran with the values of a configuration; one without a value of a parameter did."""
    values = dict(configuration.parameters)
    return all(values.get(name) == value for name, value in record.parameters)


def ran(record: ObservationRecord, configuration: Configuration) -> bool:
    """Whether an attempt ran a configuration."""
    return record.batch_size == configuration.batch_size and has_parameters_of(record, configuration)


def default_cost_of(
    records: Sequence[ObservationRecord], profiles: Sequence[PowerProfileRecord], default: Configuration, eta: float
) -> RunCost | None:
    """Expected cost in joules of one recurrence in the default configuration.

    `records`: of one job and one target, ordered by (recurrence, attempt). `eta`: weight of energy in the cost, 0 to 1.
    """
    # Here, because it needs NumPy, which an operator without costs does not.
    from wattloop_planner.bandit.run_costs import PaidAttempt, RunCosts  # noqa: PLC0415

    default_records = [record for record in records if ran(record, default)]
    known = [
        (record, PaidAttempt(_configuration(record, default), each, record.power_limit_watts))
        for record in records
        for each in job_observations.observations((record,))
    ]
    of_default = [(record, attempt) for record, attempt in known if attempt.configuration == default]
    if not of_default:
        return None
    costs, gpus = RunCosts((attempt for _, attempt in known), eta), job_observations.latest_gpus(records)
    latest = [
        attempt
        for record, attempt in of_default
        if record.decision_kind == DecisionKind.ADVISE.value
        and (record.gpu_product, record.gpu_count) == gpus
        and attempt.observation.outcome is not Outcome.CRASHED
    ][-MAX_ADVISE_ATTEMPTS:]
    epochs = sum(each.observation.epochs for each in latest)
    epoch_cost = sum(costs.epochs_joules(each) for each in latest) / epochs if epochs else None
    if epoch_cost is None:
        profile = applicable_profile(records, profiles, default.batch_size)
        searched = not all(has_parameters_of(record, default) for record in records)
        # Other values of the parameters may have been profiled, and their epochs may cost something else.
        foreign = searched and profile is not None and any(differs_from(profile, record) for record in default_records)
        if profile is not None and not foreign:
            highest = max(profile.measurements, key=lambda each: each.power_limit_watts)
            model = CostModel(eta, of_default[-1][1].observation.max_power_watts)
            epoch_cost = model.cost_joules(highest.energy_joules, highest.time_seconds) / highest.epochs
    cost = costs.of(default, gpus[0], epoch_cost)
    return None if cost is None or plausible_cost(cost.of_run.value) is None else cost


def _configuration(record: ObservationRecord, default: Configuration) -> Configuration:
    """What an attempt ran. One without a value of a parameter had its default."""
    return default if ran(record, default) else Configuration(record.batch_size, record.parameters)


@dataclass(frozen=True)
class ComparableDefault:
    """What the default configuration costs, and what that can be compared with.

    Attributes:
        cost: What one recurrence is expected to cost, or its energy in joules or time in seconds; None if not known
            yet, also while it is outdated.
        since: Index of the first recurrence since which an epoch has cost what it did when the default ran last.
        outdated: Whether the cost is not known because that of an epoch has changed since the default ran.
    """

    cost: RunCost | None
    since: int = 0
    outdated: bool = False


def comparable_default(
    records: Sequence[ObservationRecord],
    profiles: Sequence[PowerProfileRecord],
    default: Configuration,
    *,
    eta: float,
    measure: Measure = Measure.COST,
) -> ComparableDefault:
    """The default configuration of a job and the recurrences that it can be compared with.

    `records`: of one job and one target, ordered by (recurrence, attempt). `eta`: the job's weight of energy in the
    cost, 0 to 1. `measure`: what is compared. Which recurrences are is the same for each: the cost decides it.
    """
    known = known_epoch_costs(records, default, eta)
    since = first_comparable(known, default)
    recent, weight, size = measure.weighted([record for record in records if record.recurrence >= since], eta)
    # A power profile does not say on which data it was measured.
    cost = default_cost_of(recent, () if since else profiles, default, weight)
    if cost is None:
        return ComparableDefault(None, since)
    if is_default_outdated([each for each in known if each[0].recurrence >= since], default):
        return ComparableDefault(None, since, outdated=True)
    return ComparableDefault(cost.scaled(1 / size), since)


def known_epoch_costs(records: Sequence[ObservationRecord], default: Configuration, eta: float) -> EpochCosts:
    """The attempts of which the cost of an epoch is known, with the logarithm of it.

    That of the default is known from a whole run, too, its start included.

    `eta`: weight of energy in the cost, 0 to 1.
    """
    costs = (
        (record, _log_epoch_cost(record, eta)) for record in records if _shows_epochs(record) or ran(record, default)
    )
    return [(record, cost) for record, cost in costs if cost is not None]


def is_default_outdated(known: EpochCosts, default: Configuration) -> bool:
    """Whether the cost of an epoch has changed since the default configuration ran last, or with that run."""
    since: dict[object, list[float]] = {}
    for record, cost in known:
        if ran(record, default):
            since.clear()
        else:
            since.setdefault(_conditions(record), []).append(cost)
    return any(map(_has_changed, since.values())) or _has_changed_with_latest(known, default)


def _has_changed_with_latest(known: EpochCosts, default: Configuration) -> bool:
    """Whether the default's latest run cost another amount than those before, unless other runs say that it was alone.

    One run is no proof of a change, but the mean of both is what the default costs on neither data.
    """
    of_default = [(record, cost) for record, cost in known if ran(record, default)]
    if not of_default:
        return False
    latest, now = of_default[-1]
    before = [cost for record, cost in of_default[:-1] if _conditions(record) == _conditions(latest)]
    if not before or abs(now - median(before[-MAX_COMPARED:])) <= CHANGE_OF_FEW:
        return False
    if len(before) == 1 and now < before[0] and not _shows_epochs(latest):
        # The first run may have filled caches.
        return False
    others: dict[object, tuple[list[float], list[float]]] = {}
    for record, cost in known:
        if not ran(record, default):
            others.setdefault(_conditions(record), ([], []))[record.recurrence > latest.recurrence].append(cost)
    return not any(
        earlier and later and abs(median(later) - median(earlier)) <= CHANGE_OF_FEW
        for earlier, later in others.values()
    )


def first_comparable(known: EpochCosts, default: Configuration) -> int:
    """Index of the first recurrence since which epochs have cost what they did when the default ran last; else 0."""
    latest = max((record.recurrence for record, _ in known if ran(record, default)), default=-1)
    runs: dict[tuple[object, ...], list[tuple[int, float]]] = {}
    for record, cost in known:
        if record.recurrence <= latest:
            runs.setdefault(_conditions(record), []).append((record.recurrence, cost))
    # The first whole run may have filled caches.
    compared = [each if shows_epochs else each[1:] for (shows_epochs, *_), each in runs.items()]
    changes = [(each, _runs_before_change([cost for _, cost in each])) for each in compared if each]
    return max((each[before][0] for each, before in changes if before), default=0)


def _runs_before_change(costs: Sequence[float]) -> int:
    """Number of runs before the latest lasting change, of the logs of the cost of an epoch in their order."""
    count = len(costs)
    now = median(costs[-MAX_COMPARED:]) if count >= MAX_COMPARED else costs[-1]
    for index in reversed(range(count - 1)):
        # The first attempt measures power limits and fills caches.
        level = costs[0] if index == 0 else median(costs[index - 1 : index + 2])
        # Of the many runs that are looked at, chance makes some differ by less.
        if abs(level - now) > CHANGE_OF_FEW:
            return index + 1
    return 0


def _conditions(record: ObservationRecord) -> tuple[object, ...]:
    """All but the data that an epoch's cost depends on. An image may carry the data, so it is not among it."""
    shows_epochs = _shows_epochs(record)
    limit = None if record.power_limit_watts is None else round(record.power_limit_watts)
    training = record.batch_size, record.parameters, record.template_digest
    place = limit, record.gpu_product, record.gpu_count, record.pipeline is None
    return (shows_epochs, None if shows_epochs else record.epochs, *training, *place)


def _shows_epochs(record: ObservationRecord) -> bool:
    return record.epoch_energy_joules is not None and record.epoch_time_seconds is not None


def _has_changed(costs: Sequence[float]) -> bool:
    """Whether the logs of the cost of an epoch, in the order of the attempts, differ from the first to the latest."""
    if len(costs) < FEW:
        return abs(costs[-1] - costs[0]) > CHANGE_OF_FEW
    # The first attempt measures power limits and fills caches.
    later = costs[1:]
    count = min(MAX_COMPARED, len(later) // 2)
    return abs(median(later[-count:]) - median(later[:count])) > CHANGE


def _log_epoch_cost(record: ObservationRecord, eta: float) -> float | None:
    """None if it is not known; start included if the attempt did not show its epochs apart from it."""
    known = job_observations.observations((record,))
    if not known or known[0].outcome is Outcome.CRASHED:
        return None
    energy, time = record.epoch_energy_joules, record.epoch_time_seconds
    if energy is None or time is None:
        run = known[0]
        cost = run.cost_joules(eta) / run.epochs if run.outcome in WHOLE_RUNS and run.epochs > 0 else 0.0
    else:
        cost = CostModel(eta, known[0].max_power_watts).cost_joules(energy, time)
    return math.log(cost) if cost > 0 else None
