"""Costs of a job's attempts and recurrences, and the expected cost of its default configuration."""

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

# Attempts in mode Advise whose mean epoch cost is that of the default configuration.
MAX_ADVISE_ATTEMPTS = 10


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
    records: Sequence[ObservationRecord],
    profiles: Sequence[PowerProfileRecord],
    default: Configuration,
    eta: float,
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
