"""What is remembered of one recurrence, over all its attempts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wattloop.cost import CostModel
from wattloop_operator.api.attempt import Result
from wattloop_operator.domain.records import ObservationRecord
from wattloop_operator.reconcile.energy.usage import believable


@dataclass(frozen=True)
class RecurrenceHistory:
    """What is remembered of one recurrence, over all its attempts."""

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
        """Cost of all attempts whose cost is known; None where that of none is."""
        costs = [attempt_cost_joules(record, eta) for record in self.records]
        known = [cost for cost in costs if cost is not None]
        return sum(known) if known else None


def histories_of(records: Sequence[ObservationRecord]) -> list[RecurrenceHistory]:
    """The records by recurrence, by rising index."""
    by_index: dict[int, list[ObservationRecord]] = {}
    for record in records:
        by_index.setdefault(record.recurrence, []).append(record)
    return [RecurrenceHistory(index, tuple(by_index[index])) for index in sorted(by_index)]


def attempt_cost_joules(record: ObservationRecord, eta: float) -> float | None:
    """What an attempt cost; None where it never had a GPU, or its counters are not to be believed.

    Args:
        record: What is remembered of it.
        eta: The weight of energy against time, 0 to 1.
    """
    if record.max_power_watts <= 0:
        return None
    return believable(CostModel(eta, record.max_power_watts).cost_joules(record.energy_joules, record.time_seconds))
