"""The energy and time of all ranks, exchanged while power limits are measured.

Every rank measures limits with the same steps: each reads its GPUs after the same step, rank 0 adds the
readings up, and all continue with the sums. So all ranks hold the same limit in the same window, and choose
the same limit in the end, without a message in between.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from wattloop.power.windows import Totals
from wattloop.torch_group import LostStoreError, TorchGroup

logger = logging.getLogger("wattloop")

# Ranks are at most one step apart. Rank 0 gives up first, so that all get its word.
RANK_TIMEOUT_SECONDS = 60.0
RANK_0_TIMEOUT_SECONDS = 90.0


@dataclass(frozen=True)
class RankReading:
    """What one rank contributes.

    Attributes:
        energy_joules: Energy of its GPUs since the first exchange.
        time_seconds: Time since the first exchange, on its own clock.
        gpus: Number of its GPUs.
        limits: The limits that it measures.
        interrupted: Whether it lost its limit since the last exchange, or cannot read its GPUs.
    """

    energy_joules: float
    time_seconds: float
    gpus: int
    limits: tuple[float, ...]
    interrupted: bool


@dataclass(frozen=True)
class SharedReading:
    """The sum over all ranks.

    Attributes:
        energy_joules: Energy of all GPUs since the first exchange.
        time_seconds: Time since the first exchange, of the rank for which most has passed.
        gpus: Number of GPUs of all ranks.
        interrupted: Whether a rank was interrupted, so that all begin the window again.
    """

    energy_joules: float
    time_seconds: float
    gpus: int
    interrupted: bool


def summed(readings: Sequence[RankReading]) -> SharedReading | None:
    """The sum over all ranks; None if they measure different limits."""
    if len({each.limits for each in readings}) != 1:
        return None
    return SharedReading(
        energy_joules=sum(each.energy_joules for each in readings),
        time_seconds=max(each.time_seconds for each in readings),
        gpus=sum(each.gpus for each in readings),
        interrupted=any(each.interrupted for each in readings),
    )


class TotalsExchange:
    """Exchanges readings through the store of the process group.

    Args:
        group: The process group.
        name: Beginning of the names of its values, the same on all ranks.
    """

    def __init__(self, group: TorchGroup, name: str) -> None:
        self._group = group
        self._name = name
        self._number = 0
        self._zero: Totals | None = None

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return self._group.size

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0, which reports what all measured."""
        return self._group.rank == 0

    def exchange(
        self, totals: Totals | None, gpus: int, limits: tuple[float, ...], *, interrupted: bool
    ) -> SharedReading | None:
        """The sum of the readings of all ranks after the present step.

        Args:
            totals: Totals of this rank; None if they cannot be read now.
            gpus: Number of GPUs of this rank.
            limits: The limits that it measures.
            interrupted: Whether it lost its limit since the last exchange.

        Returns:
            None if the ranks cannot measure together: one is missing, or measures other limits.
        """
        if totals is not None and self._zero is None:
            self._zero = totals
        energy = time = 0.0
        if totals is not None and self._zero is not None:
            energy = totals.energy_joules - self._zero.energy_joules
            time = totals.time_seconds - self._zero.time_seconds
        own = RankReading(energy, time, gpus, limits, interrupted or totals is None)
        name, self._number = f"{self._name}/{self._number}", self._number + 1
        try:
            shared = self._gathered(name, own) if self._group.rank == 0 else self._contributed(name, own)
        except LostStoreError as error:
            logger.warning("the store of the process group is lost: %s", error)
            shared = None
        if shared is None:
            logger.warning("the ranks measure no power limits together: one is missing, or has other limits")
        return shared

    def _gathered(self, name: str, own: RankReading) -> SharedReading | None:
        readings = [own]
        deadline = self._group.clock() + RANK_TIMEOUT_SECONDS
        for rank in range(1, self._group.size):
            text = self._group.awaited_value(f"{name}/{rank}", deadline - self._group.clock())
            if text is None:
                break
            values = json.loads(text)
            readings.append(RankReading(**{**values, "limits": tuple(values["limits"])}))
        shared = summed(readings) if len(readings) == self._group.size else None
        self._group.publish(f"{name}/all", json.dumps(None if shared is None else asdict(shared)))
        return shared

    def _contributed(self, name: str, own: RankReading) -> SharedReading | None:
        self._group.publish(f"{name}/{self._group.rank}", json.dumps(asdict(own)))
        values = json.loads(self._group.awaited_value(f"{name}/all", RANK_0_TIMEOUT_SECONDS) or "null")
        return None if values is None else SharedReading(**values)
