"""Costs of a job's attempts and recurrences, and the expected cost of its default configuration."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from wattloop.energy.cost import CostModel
from wattloop_operator.api.attempt_state import Result
from wattloop_operator.api.batch_size_policy import DecisionKind
from wattloop_operator.domain.records import ObservationRecord, PowerProfileRecord
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.reconcile.energy.attempt_usage import measured_cost, plausible_cost
from wattloop_operator.reconcile.learning import job_observations
from wattloop_operator.reconcile.learning.changed_job import known_attempts
from wattloop_operator.reconcile.learning.policy_configurations import default_configuration
from wattloop_operator.reconcile.learning.power_profiles import applicable_profile, differs_from
from wattloop_planner.bandit.configuration import Configuration
from wattloop_planner.bandit.default_cost import DefaultRun, Spread, default_cost_joules, pooled_spread
from wattloop_planner.estimate import Estimate
from wattloop_planner.observations import Observation, Outcome, ParameterValues

# Attempts in mode Advise whose mean epoch cost is that of the default configuration.
MAX_ADVISE_ATTEMPTS = 10
# Normal quantile of the ends of the central 90 % interval.
QUANTILE = 1.645
# An explanation of the known starts that is less likely than this is outside of the interval.
MIN_PROBABILITY = 0.05
# Index of the default configuration among the arms of the start-ups.
DEFAULT_ARM = 0


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
) -> Estimate | None:
    """Expected cost in joules of one recurrence in the default configuration.

    Args:
        records: Of one job and one target, ordered by (recurrence, attempt).
        profiles: Of the same job.
        default: The job's default configuration.
        eta: Weight of energy in the cost, 0 to 1.
    """
    default_records = [record for record in records if ran(record, default)]
    if not default_records:
        return None
    parts = RunParts(records, eta, default)
    counted = [run for _, run in parts.default_runs() if run.outcome in (Outcome.REACHED, Outcome.EXHAUSTED)]
    if not counted:
        return None
    # The first run of a configuration compiles and fills caches. Within its only epoch, nobody knows what that cost;
    # later runs show it by the spread.
    hides_start = len(counted) == 1 and parts.hides_start(counted[0])
    runs = [DefaultRun(run.outcome is Outcome.REACHED, run.epochs, parts.epochs_joules(run)) for run in counted]
    gpus = job_observations.latest_gpus(records)
    epoch_cost = _advised_epoch_joules(parts, gpus)
    if epoch_cost is None:
        profile = applicable_profile(records, profiles, default.batch_size)
        searched = not all(has_parameters_of(record, default) for record in records)
        # Other values of the parameters may have been profiled, and their epochs may cost something else.
        foreign = searched and profile is not None and any(differs_from(profile, record) for record in default_records)
        if profile is not None and not foreign:
            highest = max(profile.measurements, key=lambda each: each.power_limit_watts)
            model = CostModel(eta, parts.default_runs()[-1][1].max_power_watts)
            epoch_cost = model.cost_joules(highest.energy_joules, highest.time_seconds) / highest.epochs
    spreads = _spread(records), parts.epoch_cost_spread()
    cost = default_cost_joules(runs, epoch_cost, parts.expected_start(gpus[0]), *spreads, hides_start=hides_start)
    return None if cost is None or plausible_cost(cost.value) is None else cost


def _spread(records: Sequence[ObservationRecord]) -> Spread:
    """The spread of the epochs to the target, pooled over the configurations that reached it."""
    reached: dict[tuple[int, ParameterValues], list[float]] = {}
    for each in job_observations.observations(records):
        if each.outcome is Outcome.REACHED:
            reached.setdefault((each.batch_size, each.parameters), []).append(each.epochs)
    return pooled_spread(reached.values())


def _advised_epoch_joules(parts: RunParts, gpus: tuple[str, int]) -> float | None:
    """Mean cost of an epoch over the latest attempts in mode Advise on these GPUs; None without any.

    These attempts ran the default configuration itself.
    """
    latest = [
        run
        for record, run in parts.default_runs()
        if record.decision_kind == DecisionKind.ADVISE.value
        and (record.gpu_product, record.gpu_count) == gpus
        and run.outcome is not Outcome.CRASHED
    ][-MAX_ADVISE_ATTEMPTS:]
    epochs = sum(each.epochs for each in latest)
    return sum(parts.epochs_joules(each) for each in latest) / epochs if epochs else None


class RunParts:
    """What the attempts of a job cost, divided into starts and epochs.

    The first start on a node, or of a batch size, compiles and fills caches that later ones find. A job's default
    configuration often ran once, at first, so its next start is expected from the starts of all configurations
    (`wattloop_planner.bandit.start_up_model`), and not from its own alone.

    Args:
        records: Of one job and one target, ordered by (recurrence, attempt).
        eta: Weight of energy in the cost, 0 to 1.
        default: The default configuration.
    """

    def __init__(self, records: Sequence[ObservationRecord], eta: float, default: Configuration) -> None:
        from wattloop_planner.bandit.start_ups import StartUps  # noqa: PLC0415 - it needs NumPy

        self._eta = eta
        self._known = [
            (record, observation) for record in records for observation in job_observations.observations((record,))
        ]
        others: dict[tuple[int, ParameterValues], int] = {}
        self._arms = []
        for record, each in self._known:
            other = each.batch_size, each.parameters
            self._arms.append(DEFAULT_ARM if ran(record, default) else others.setdefault(other, len(others) + 1))
        self._starts = StartUps(eta, arms=len(others) + 1)
        self._of_default: list[tuple[str, float]] = []
        for arm, (_, each) in zip(self._arms, self._known, strict=True):
            measured = self._starts.measured(each)
            if measured is not None:
                self._starts.add(each.gpu_model, arm, measured)
                if arm == DEFAULT_ARM:
                    self._of_default.append((each.gpu_model, measured))

    def default_runs(self) -> list[tuple[ObservationRecord, Observation]]:
        """The attempts of the default configuration that say something."""
        return [known for arm, known in zip(self._arms, self._known, strict=True) if arm == DEFAULT_ARM]

    def epochs_joules(self, run: Observation) -> float:
        """What an attempt of the default configuration cost without its start, if any start is known."""
        return run.cost_joules(self._eta) - self._starts.cost_of(DEFAULT_ARM, run, run.gpu_model)

    def hides_start(self, run: Observation) -> bool:
        """Whether nothing is known of an attempt's start: it ended with its first epoch, and no other has shown one."""
        return run.start_up is None and run.epochs <= 1 and not self._starts.knows(run.gpu_model)

    def expected_start(self, gpu_model: str) -> Estimate:
        """What the next start of the default configuration costs; 0 if none is known on this GPU model.

        Where its own starts were more expensive than others, it may be slow itself, or they found nothing cached.
        """
        expected = self._starts.expected(gpu_model)
        typical, risk = float(expected.typical[DEFAULT_ARM]), float(expected.risk[DEFAULT_ARM])
        own = [joules for gpu, joules in self._of_default if gpu == gpu_model]
        slow = fmean(own) if own else typical
        is_possible = slow > typical and risk / (slow - typical) > MIN_PROBABILITY
        deviation = QUANTILE * expected.spread
        high = (slow if is_possible else typical) + deviation
        return Estimate(typical + risk, max(typical - deviation, 0.0), max(high, typical + risk))

    def epoch_cost_spread(self) -> Spread:
        """The spread of the cost of an epoch between attempts of one configuration at one power limit."""
        costs: dict[tuple[int, float | None], list[float]] = {}
        for arm, (record, each) in zip(self._arms, self._known, strict=True):
            cost = (each.cost_joules(self._eta) - self._starts.cost_of(arm, each, each.gpu_model)) / max(each.epochs, 1)
            if each.epochs >= 1 and cost > 0:
                costs.setdefault((arm, record.power_limit_watts), []).append(cost)
        return pooled_spread(costs.values())
