"""Which recurrences the default configuration can be compared with, and whether it ran too long ago for any.

What the default cost on the data of the first night says nothing of a saving on those of today, nor the other way
round. Configurations that ran several times show a change. Short epochs are not measured apart from the start of a run:
then whole runs of as many epochs are compared.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from wattloop.energy.cost import CostModel
from wattloop_operator.domain.records import ObservationRecord, PowerProfileRecord
from wattloop_operator.reconcile.learning import job_observations
from wattloop_operator.reconcile.learning.costs import Measure, default_cost_of, ran
from wattloop_planner.bandit.configuration import Configuration
from wattloop_planner.estimate import RunCost
from wattloop_planner.observations import WHOLE_RUNS, Outcome

# Smaller changes may be those of a node, or of what else runs on it.
CHANGE = math.log(1.25)
# Of few runs, which chance may have made differ.
CHANGE_OF_FEW = math.log(1.5)
FEW = 5
MAX_COMPARED = 3
EpochCosts = Sequence[tuple[ObservationRecord, float]]


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
