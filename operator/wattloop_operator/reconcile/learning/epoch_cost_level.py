"""How the cost of an epoch changes over a job's life, for data that grow from night to night.

A job's default configuration may have run once, long ago. Its epochs would cost more today if those of other
configurations do: the same change applies to all, as the policy's `ModelEpochCosts` assumes.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from statistics import median

from wattloop.energy.cost import CostModel
from wattloop_operator.domain.records import ObservationRecord
from wattloop_operator.reconcile.learning import job_observations
from wattloop_planner.observations import Outcome

# A smaller change of the cost of an epoch may be one of a node, or of what else runs on it.
MIN_CHANGE = math.log(1.25)


class EpochCostLevels:
    """The log of the cost of an epoch at each attempt, relative to the first ones.

    A configuration that ran before, at the same power limit and on the same GPUs, shows a change. At one that did not,
    the usual change is assumed: the median of those that are shown. One attempt alone shows no change of the level,
    which is the median of three. That of the latest attempt is the lower one of two unless the change before was like
    it, so that no default seems more expensive than two attempts show.

    Args:
        records: Of one job, ordered by (recurrence, attempt).
        eta: Weight of energy in the cost, 0 to 1.
    """

    def __init__(self, records: Sequence[ObservationRecord], eta: float) -> None:
        known = [(record, cost) for record in records if (cost := _log_epoch_cost(record, eta)) is not None]
        self._orders = [record.order for record, _ in known]
        shown, changes = _shown_levels(known, usual_change=0.0)
        self._levels = _confirmed(shown)
        if self.changes:
            self._levels = _confirmed(_shown_levels(known, median(changes))[0])

    @property
    def changes(self) -> bool:
        """Whether there is a change at all."""
        return any(self._levels)

    @property
    def now(self) -> float:
        """The level of the latest attempt."""
        return self._levels[-1] if self._levels else 0.0

    def factor(self, order: tuple[int, int]) -> float:
        """The cost of an epoch now, relative to that at an attempt."""
        return math.exp(self.now - self._at(order))

    def _at(self, order: tuple[int, int]) -> float:
        place = bisect_right(self._orders, order)
        return self._levels[place - 1] if place else 0.0


def _shown_levels(
    known: Sequence[tuple[ObservationRecord, float]], usual_change: float
) -> tuple[list[float], list[float]]:
    """The level that each attempt shows by itself, and the changes that the attempts of known configurations show.

    Args:
        known: Attempts with the log of the cost of an epoch.
        usual_change: Change of the level at a configuration that did not run before.
    """
    levels: list[float] = []
    changes: list[float] = []
    first: dict[object, float] = {}
    for record, log_cost in known:
        limit = None if record.power_limit_watts is None else round(record.power_limit_watts)
        key = record.batch_size, record.parameters, limit, record.gpu_product, record.gpu_count
        before = levels[-1] if levels else 0.0
        if key in first:
            levels.append(log_cost - first[key])
            changes.append(levels[-1] - before)
        else:
            levels.append(before + (usual_change if levels else 0.0))
            first[key] = log_cost - levels[-1]
    return levels, changes


def _confirmed(shown: Sequence[float]) -> list[float]:
    """The levels by several attempts; 0 for what may be chance."""
    levels = [_confirmed_at(shown, index) for index in range(len(shown))]
    return [level if abs(level) > MIN_CHANGE else 0.0 for level in levels]


def _confirmed_at(shown: Sequence[float], index: int) -> float:
    if index == 0:
        return shown[0]
    if index < len(shown) - 1:
        return median(shown[index - 1 : index + 2])
    before, latest = shown[-2:]
    continues = len(shown) > 2 and before - shown[-3] >= (latest - before) / 2
    return latest if continues else min(before, latest)


def _log_epoch_cost(record: ObservationRecord, eta: float) -> float | None:
    """None if the attempt did not show its epochs apart from its start."""
    energy, time = record.epoch_energy_joules, record.epoch_time_seconds
    known = job_observations.observations((record,))
    if not known or known[0].outcome is Outcome.CRASHED or energy is None or time is None:
        return None
    cost = CostModel(eta, known[0].max_power_watts).cost_joules(energy, time)
    return math.log(cost) if cost > 0 else None
