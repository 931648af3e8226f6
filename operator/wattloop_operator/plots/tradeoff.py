"""Energy and time to the target for every configuration and power limit, and their Pareto front."""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean

from wattloop_operator.history.job_history import JobHistory, once_per_history
from wattloop_operator.reconcile.learning import job_observations
from wattloop_operator.reconcile.learning.power_profiles import applicable_profile
from wattloop_planner.bandit.configuration import Configuration
from wattloop_planner.observations import Observation, Outcome


@dataclass(frozen=True)
class TradeoffPoint:
    """Energy and time to the target with one configuration at one power limit.

    Attributes:
        configuration: Batch size and parameters.
        power_limit_watts: The limit of each GPU; None if there was none.
        energy_joules: Mean energy to the target.
        time_seconds: Mean time to the target.
        runs: Number of runs that reached the target at this limit. 0 if energy and time follow from
            the power profile.
    """

    configuration: Configuration
    power_limit_watts: float | None
    energy_joules: float
    time_seconds: float
    runs: int


@once_per_history
def tradeoff_points(history: JobHistory) -> tuple[TradeoffPoint, ...]:
    """The points of configurations that reached the latest attempt's target on its GPUs.

    With a power profile, each of its limits is a point: the mean epochs to the target times the
    energy and time of an epoch at that limit. Without one, a point is the mean of the runs at that
    limit.

    Returns:
        The points, ordered by configuration and limit.
    """
    records = history.comparable_records
    gpu_model, _ = job_observations.latest_gpus(records)
    limits = {(record.recurrence, record.attempt): record.power_limit_watts for record in records}
    reached: dict[Configuration, list[Observation]] = {}
    for observation in job_observations.observations(records):
        measured = observation.gpu_model == gpu_model and observation.energy_joules > 0
        if measured and observation.outcome is Outcome.REACHED:
            reached.setdefault(Configuration(observation.batch_size, observation.parameters), []).append(observation)
    points: list[TradeoffPoint] = []
    for configuration, runs in sorted(reached.items()):
        by_limit: dict[float | None, list[Observation]] = {}
        for run in runs:
            by_limit.setdefault(limits[run.recurrence, run.attempt], []).append(run)
        points += _profiled(history, configuration, fmean(run.epochs for run in runs), by_limit)
        known = {point.power_limit_watts for point in points if point.configuration == configuration}
        points += [_observed(configuration, limit, held) for limit, held in by_limit.items() if limit not in known]
    return tuple(sorted(points, key=lambda point: (point.configuration, point.power_limit_watts or 0.0)))


def pareto_front(points: Iterable[TradeoffPoint]) -> tuple[TradeoffPoint, ...]:
    """The points that no other point dominates in energy and time, the fastest first.

    Example:
        >>> small, large = Configuration(8), Configuration(16)
        >>> fast, efficient = TradeoffPoint(small, 300, 9.0, 1.0, 1), TradeoffPoint(small, 100, 5.0, 2.0, 1)
        >>> dominated = TradeoffPoint(large, 300, 9.5, 2.0, 1)
        >>> pareto_front([dominated, efficient, fast]) == (fast, efficient)
        True
    """
    front: list[TradeoffPoint] = []
    for point in sorted(points, key=lambda point: (point.time_seconds, point.energy_joules)):
        if not front or point.energy_joules < front[-1].energy_joules:
            front.append(point)
    return tuple(front)


def _profiled(
    history: JobHistory, configuration: Configuration, epochs: float, by_limit: dict[float | None, list[Observation]]
) -> list[TradeoffPoint]:
    profile = applicable_profile(history.records, history.profiles, configuration.batch_size)
    return [
        TradeoffPoint(
            configuration,
            measured.power_limit_watts,
            epochs * measured.energy_joules / measured.epochs,
            epochs * measured.time_seconds / measured.epochs,
            len(by_limit.get(measured.power_limit_watts, [])),
        )
        for measured in (profile.measurements if profile is not None else ())
        if measured.energy_joules > 0
    ]


def _observed(configuration: Configuration, limit: float | None, runs: list[Observation]) -> TradeoffPoint:
    return TradeoffPoint(
        configuration,
        limit,
        fmean(run.energy_joules for run in runs),
        fmean(run.time_seconds for run in runs),
        len(runs),
    )
