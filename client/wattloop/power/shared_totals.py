"""The energy and time of all ranks, exchanged while they measure power limits (docs/internals/power-of-ranks.md)."""

import json
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from wattloop.power.windows import Totals
from wattloop.wire.torch_group import LostStoreError, TorchGroup

logger = logging.getLogger("wattloop")

# Ranks are at most one step apart. Rank 0 gives up first, so that all get its word.
RANK_TIMEOUT_SECONDS = 60.0
RANK_0_TIMEOUT_SECONDS = 90.0
NOT_TOGETHER = "the ranks measure no power limits together"


@dataclass(frozen=True)
class RankReading:
    """What one rank contributes.

    Attributes:
        energy_joules: Energy of its GPUs since the first exchange.
        interrupted: Whether it lost its limit since the last exchange, or cannot read its GPUs.
        samples: Number of samples that it counted in the window.
        moment: Where in the measurement it is. All ranks must be at the same place.
        uuids: Its GPUs, which no other rank may have; empty if the ranks are known to have different ones.
        problem: Why it cannot measure; empty if it can.
        note: What rank 0 tells the others.
    """

    energy_joules: float
    time_seconds: float
    gpus: int
    limits: tuple[float, ...]
    interrupted: bool
    samples: float = 0.0
    moment: str = ""
    uuids: tuple[str, ...] = ()
    problem: str = ""
    note: str = ""


@dataclass(frozen=True)
class SharedReading:
    """The sum over all ranks.

    Attributes:
        energy_joules: Energy of all GPUs since the first exchange.
        time_seconds: Time since the first exchange, of the rank for which most has passed.
        interrupted: Whether a rank was interrupted, so that all begin the window again.
        samples: Mean number of samples in the window of a rank.
        reported_samples: Those of rank 0, which reports what all measured as parts of its own epochs.
    """

    energy_joules: float
    time_seconds: float
    gpus: int
    interrupted: bool
    samples: float = 0.0
    reported_samples: float = 0.0
    note: str = ""

    @property
    def totals(self) -> Totals:
        """Energy and time."""
        return Totals(self.energy_joules, self.time_seconds)


def obstacle_among(readings: Sequence[RankReading]) -> str:
    """Why the ranks cannot measure together; empty if they can. The readings are by rank."""
    for rank, each in enumerate(readings):
        if each.problem:
            return f"rank {rank} cannot: {each.problem}"
    if len({each.limits for each in readings}) != 1:
        return "one has other limits; give all the same limits"
    if len({each.moment for each in readings}) != 1:
        places = ", ".join(f"{each.moment} of rank {rank}" for rank, each in enumerate(readings))
        return f"they are at different places ({places}); all must count the same steps and epochs"
    uuids = Counter(uuid for each in readings for uuid in each.uuids)
    twice = [uuid for uuid, ranks in uuids.items() if ranks > 1]
    if twice:
        return (
            f"several of them measure {twice[0]}; start them with torchrun, which sets LOCAL_RANK, or give each "
            "its own GPUs"
        )
    return ""


def summed(readings: Sequence[RankReading]) -> SharedReading | None:
    """The sum over all ranks; None if they cannot measure together."""
    if obstacle_among(readings):
        return None
    return SharedReading(
        energy_joules=sum(each.energy_joules for each in readings),
        time_seconds=max(each.time_seconds for each in readings),
        gpus=sum(each.gpus for each in readings),
        interrupted=any(each.interrupted for each in readings),
        samples=sum(each.samples for each in readings) / len(readings),
        reported_samples=readings[0].samples,
        note=readings[0].note,
    )


class TotalsExchange:
    """Exchanges readings through the store of the process group.

    Args:
        group: The process group; None if this process is the only one.
        name: Beginning of the names of its values, the same on all ranks.
        zero: What readings count from; None: the first of them.
    """

    def __init__(self, group: TorchGroup | None, name: str, zero: Totals | None = None) -> None:
        self._group = group
        self._name = name
        self._number = 0
        self._zero = zero

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return 1 if self._group is None else self._group.size

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0, which reports what all measured."""
        return self._group is None or self._group.rank == 0

    def exchange(
        self,
        totals: Totals | None,
        gpus: int,
        limits: tuple[float, ...],
        *,
        interrupted: bool,
        samples: float = 0.0,
        moment: str = "",
        uuids: tuple[str, ...] = (),
        problem: str = "",
        note: str = "",
    ) -> SharedReading | None:
        """The sum of the readings of all ranks after the present step.

        Returns:
            None if the ranks cannot measure together, such as if one is missing or measures other limits.
        """
        if totals is not None and self._zero is None:
            self._zero = totals
        energy = time = 0.0
        if totals is not None and self._zero is not None:
            energy = totals.energy_joules - self._zero.energy_joules
            time = totals.time_seconds - self._zero.time_seconds
        own = RankReading(
            energy, time, gpus, limits, interrupted or totals is None, samples, moment, uuids, problem, note
        )
        if self._group is None:
            return summed([own])
        name, self._number = f"{self._name}/{self._number}", self._number + 1
        try:
            if self._group.rank == 0:
                return _gathered(self._group, name, own)
            self._group.publish(f"{name}/{self._group.rank}", json.dumps(asdict(own)))
            values = json.loads(self._group.awaited_value(f"{name}/all", RANK_0_TIMEOUT_SECONDS) or "null")
        except LostStoreError as error:
            logger.warning("the store of the process group is lost: %s", error)
            logger.warning("%s: rank 0 has ended", NOT_TOGETHER)
            return None
        if values is None:
            logger.warning("%s: rank 0 is missing, or its warning says why", NOT_TOGETHER)
            return None
        return SharedReading(**values)


def _gathered(group: TorchGroup, name: str, own: RankReading) -> SharedReading | None:
    readings, missing = [own], ""
    deadline = group.clock() + RANK_TIMEOUT_SECONDS
    for rank in range(1, group.size):
        text = group.awaited_value(f"{name}/{rank}", deadline - group.clock())
        if text is None:
            missing = f"one is missing: rank {rank} has not come to this place within {RANK_TIMEOUT_SECONDS:g} s"
            break
        values = json.loads(text)
        lists = {key: tuple(values[key]) for key in ("limits", "uuids")}
        readings.append(RankReading(**{**values, **lists}))
    shared = None if missing else summed(readings)
    group.publish(f"{name}/all", json.dumps(None if shared is None else asdict(shared)))
    if shared is None:
        logger.warning("%s: %s", NOT_TOGETHER, missing or obstacle_among(readings))
    return shared
