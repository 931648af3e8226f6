"""Costs of a job's attempts and recurrences, and the expected cost of its default configuration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from wattloop.cost import CostModel
from wattloop_operator.api.attempt import Result
from wattloop_operator.api.training_recurrence import DecisionKind
from wattloop_operator.domain.records import ObservationRecord, PowerProfileRecord
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.reconcile.energy.usage import measured_cost, plausible_cost
from wattloop_operator.reconcile.learning import observations
from wattloop_operator.reconcile.learning.changed_job import with_current_target
from wattloop_operator.reconcile.learning.parameters import default_values
from wattloop_operator.reconcile.learning.power_profiles import applicable_profile, differs_from
from wattloop_planner.bandit.default_cost import DefaultRun, Spread, default_cost_joules, pooled_spread
from wattloop_planner.estimate import Estimate
from wattloop_planner.observations import Outcome, ParameterValues

# Attempts in mode Advise whose mean epoch cost is that of the default configuration.
MAX_ADVISE_ATTEMPTS = 10


@dataclass(frozen=True)
class RecurrenceHistory:
    """The recorded attempts of one recurrence.

    Attributes:
        index: Index of the recurrence.
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

    Args:
        record: The attempt.
        eta: Weight of energy against time, 0 to 1.
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


def default_cost(snapshot: Snapshot) -> Estimate | None:
    """Expected cost in joules of one recurrence in the default configuration, for the job's present target.

    None if not known yet.
    """
    return default_cost_with(snapshot, snapshot.job.spec.objective.energy_weight_percent / 100)


def default_cost_with(snapshot: Snapshot, eta: float) -> Estimate | None:
    """The same for another weight of energy: with all weight on energy, the cost is the energy."""
    return default_cost_of(
        with_current_target(snapshot.job.spec, observations.known_records(snapshot)),
        observations.known_profiles(snapshot),
        default_batch_size=snapshot.job.spec.batch_size.default,
        default_parameters=default_values(snapshot.job.spec),
        eta=eta,
    )


def has_defaults(record: ObservationRecord, default_parameters: Mapping[str, str]) -> bool:
    """Whether an attempt ran with the default of every parameter; one without a value did."""
    return all(default_parameters.get(name) == value for name, value in record.parameters)


def default_cost_of(
    records: Sequence[ObservationRecord],
    profiles: Sequence[PowerProfileRecord],
    *,
    default_batch_size: int,
    default_parameters: Mapping[str, str],
    eta: float,
) -> Estimate | None:
    """Expected cost in joules of one recurrence in the default configuration.

    Args:
        records: Of one job and one target, ordered by (recurrence, attempt).
        profiles: Of the same job.
        default_batch_size: The job's default batch size.
        default_parameters: Default of each further parameter.
        eta: Weight of energy in the cost, 0 to 1.
    """
    default_records = [
        record
        for record in records
        if record.batch_size == default_batch_size and has_defaults(record, default_parameters)
    ]
    runs = [
        observation
        for observation in observations.observations(default_records)
        if observation.outcome in (Outcome.REACHED, Outcome.EXHAUSTED)
    ]
    if not runs:
        return None
    profile = applicable_profile(records, profiles, default_batch_size)
    epoch_cost = _epoch_cost_in_default_configuration(
        default_records,
        eta,
        observations.latest_gpus(records),
    )
    start_up = 0.0
    searched = not all(has_defaults(record, default_parameters) for record in records)
    # Other values of the parameters may have been profiled, and their epochs may cost something else.
    foreign = searched and profile is not None and any(differs_from(profile, record) for record in default_records)
    if epoch_cost is None and profile is not None and not foreign:
        highest = max(profile.measurements, key=lambda each: each.power_limit_watts)
        model = CostModel(eta, runs[-1].max_power_watts)
        epoch_cost = model.cost_joules(highest.energy_joules, highest.time_seconds) / highest.epochs
        start_up = _start_up_joules(default_records, eta) or _start_up_joules(records, eta)
    cost = default_cost_joules(
        [DefaultRun(run.outcome is Outcome.REACHED, run.epochs, run.cost_joules(eta)) for run in runs],
        epoch_cost,
        start_up,
        _spread(records),
    )
    return None if cost is None or plausible_cost(cost.value) is None else cost


def _spread(records: Sequence[ObservationRecord]) -> Spread:
    """The spread of the epochs to the target, pooled over the configurations that reached it."""
    reached: dict[tuple[int, ParameterValues], list[float]] = {}
    for each in observations.observations(records):
        if each.outcome is Outcome.REACHED:
            reached.setdefault((each.batch_size, each.parameters), []).append(each.epochs)
    return pooled_spread(reached.values())


def _start_up_joules(records: Sequence[ObservationRecord], eta: float) -> float:
    """Expected cost of the start of an attempt on the GPUs of the latest attempt; 0 if none was measured."""
    from wattloop_planner.bandit.start_ups import StartUps  # noqa: PLC0415 - an operator without jobs needs no NumPy

    start_ups = StartUps(eta, arms=1)
    for observation in observations.observations(records):
        measured = start_ups.measured(observation)
        if measured is not None:
            start_ups.add(observation.gpu_model, 0, measured)
    return float(start_ups.expected(observations.latest_gpus(records)[0]).typical[0])


def _epoch_cost_in_default_configuration(
    records: Sequence[ObservationRecord], eta: float, gpus: tuple[str, int]
) -> float | None:
    """Mean cost of an epoch over the latest attempts in mode Advise on these GPUs; None without any.

    These attempts ran the default configuration itself.
    """
    latest = [
        observation
        for record in records
        if record.decision_kind == DecisionKind.ADVISE.value and (record.gpu_product, record.gpu_count) == gpus
        for observation in observations.observations((record,))
        if observation.outcome is not Outcome.CRASHED
    ][-MAX_ADVISE_ATTEMPTS:]
    epochs = sum(each.epochs for each in latest)
    return sum(each.cost_joules(eta) for each in latest) / epochs if epochs else None
