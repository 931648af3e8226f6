"""Reads the GPUs for the reader, off its loop: one thread asks the driver, so a driver that hangs stops no caller."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol, TypeVar

from wattloop.agent import EnergyReading, GpuDescription
from wattloop_agent.refusal import Reason, Refused

TIMEOUT_SECONDS = 5.0
Result = TypeVar("Result")


@dataclass(frozen=True)
class GpuCondition:
    """What a GPU does now.

    Attributes:
        uuid: The GPU.
        name: Its model.
        time_seconds: The clock that its energy is integrated on.
        energy_millijoules: Its cumulative counter; None: it has none.
        power_watts: What it draws; None: it does not say.
        power_limit_watts: The limit that is set; None: it has none.
        enforced_power_limit_watts: The limit in force.
        graphics_clock_megahertz: Its clock; None: it does not say.
        problem: Why something is not known; empty: all is.
    """

    uuid: str
    name: str
    time_seconds: float
    energy_millijoules: int | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    enforced_power_limit_watts: float | None = None
    graphics_clock_megahertz: float | None = None
    problem: str = ""


class ReadableGpus(Protocol):
    """The seam to the GPUs, as the reader sees them. Every method raises `Refused` with what the driver says."""

    def describe(self) -> list[GpuDescription]:
        """All GPUs; of their limits, found is the current one: what is leased is not known here."""

    def uuids(self) -> list[str]:
        """All GPUs, by index."""

    def energy(self, uuids: Sequence[str]) -> list[EnergyReading]:
        """The counters of these GPUs, in this order."""

    def uuid_of_node(self) -> dict[int, str]:
        """By the number of its device node, each GPU's uuid."""

    def conditions(self) -> list[GpuCondition]:
        """All GPUs; one that can't be read is there with its problem."""


class Meter:
    """Reads GPUs without blocking.

    Args:
        gpus: What is read; used in one thread only.
        timeout_seconds: How long the driver may take.
    """

    def __init__(self, gpus: ReadableGpus, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._gpus = gpus
        self._timeout_seconds = timeout_seconds
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="nvml")

    async def gpus(self) -> list[GpuDescription]:
        """All GPUs of the machine.

        Raises:
            Refused: The driver can't say.
        """
        return await self._in_thread(self._gpus.describe)

    async def energy(self, uuids: Sequence[str]) -> list[EnergyReading]:
        """The counters of these GPUs, read now.

        Raises:
            Refused: One of them is not there or has no counter.
        """
        return await self._in_thread(lambda: self._gpus.energy(uuids))

    async def energy_of(self, seen: Callable[[str], bool]) -> list[EnergyReading]:
        """The counters of all GPUs for which this holds, by index, read now.

        Raises:
            Refused: One of them has no counter.
        """
        return await self._in_thread(lambda: self._gpus.energy([uuid for uuid in self._gpus.uuids() if seen(uuid)]))

    async def conditions(self) -> list[GpuCondition]:
        """What all GPUs do now.

        Raises:
            Refused: The driver can't say.
        """
        return await self._in_thread(self._gpus.conditions)

    async def uuid_of_node(self) -> dict[int, str]:
        """By the number of its device node, each GPU's uuid.

        Raises:
            Refused: The driver can't say.
        """
        return await self._in_thread(self._gpus.uuid_of_node)

    def close(self) -> None:
        """Stop; a call that hangs is left behind."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _in_thread(self, read: Callable[[], Result]) -> Result:
        try:
            async with asyncio.timeout(self._timeout_seconds):
                return await asyncio.get_running_loop().run_in_executor(self._thread, read)
        except TimeoutError as error:
            raise Refused(
                Reason.UNAVAILABLE, f"the driver did not answer in {self._timeout_seconds:g} s; nvidia-smi may hang too"
            ) from error
