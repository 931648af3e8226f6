"""Reads the GPUs for the monitor, off its loop: one thread asks the driver, so a driver that hangs stops no caller."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from wattloop.agent import EnergyReading, GpuDescription
from wattloop.node_energy import Range
from wattloop_agent.monitor.driver_thread import DriverThread
from wattloop_agent.monitor.policies.limits import Asked
from wattloop_agent.monitor.sampler import SampledGpus, Sampler
from wattloop_agent.request_error import Reason, RequestError

TIMEOUT_SECONDS = 5.0
Result = TypeVar("Result")


class ReadableGpus(SampledGpus, Protocol):
    """The seam to the GPUs, as the monitor sees them. Every method raises `RequestError` with what the driver says."""

    def describe(self) -> list[GpuDescription]:
        """All GPUs; of their limits, found is the current one: what is leased is not known here."""

    def uuids(self) -> list[str]:
        """All GPUs, by index."""

    def energy(self, uuids: Sequence[str]) -> list[EnergyReading]:
        """The counters of these GPUs, in this order."""

    def uuid_of_device(self) -> dict[str, str]:
        """Under the name of its device node (``nvidia0``) and the uuids of its MIG devices, each GPU's uuid."""

    def product(self, uuid: str) -> str:
        """A GPU's model."""

    def accepted(self, uuid: str, asked: Asked) -> Range:
        """The lowest and the highest that a GPU accepts."""


class Meter:
    """Reads GPUs without blocking.

    Args:
        gpus: What is read; used in one thread only.
        timeout_seconds: How long the driver may take.

    Attributes:
        sampler: Looks at all of them at a pace, in the same thread; it rests until it is started or watched.
    """

    def __init__(self, gpus: ReadableGpus, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._gpus = gpus
        self._timeout_seconds = timeout_seconds
        self._products: dict[str, str] = {}
        self._thread = DriverThread(self._look)
        self.sampler = Sampler(gpus, self._thread.pace)

    async def gpus(self) -> list[GpuDescription]:
        """All GPUs of the machine.

        Raises:
            RequestError: The driver can't say.
        """
        return await self._in_thread(self._gpus.describe)

    async def energy(self, uuids: Sequence[str]) -> list[EnergyReading]:
        """The counters of these GPUs, read now.

        Raises:
            RequestError: One of them is not there or has no counter.
        """
        return await self._in_thread(lambda: self._gpus.energy(uuids))

    async def energy_of(self, seen: Callable[[str], bool]) -> list[EnergyReading]:
        """The counters of all GPUs for which this holds, by index, read now.

        Raises:
            RequestError: One of them has no counter.
        """
        return await self._in_thread(lambda: self._gpus.energy([uuid for uuid in self._gpus.uuids() if seen(uuid)]))

    async def uuid_of_device(self) -> dict[str, str]:
        """Under the name of its device node (``nvidia0``) and the uuids of its MIG devices, each GPU's uuid.

        Raises:
            RequestError: The driver can't say.
        """
        return await self._in_thread(self._gpus.uuid_of_device)

    async def product(self, uuid: str) -> str:
        """A GPU's model; asked once, it does not change.

        Raises:
            RequestError: There is no such GPU, or the driver can't say.
        """
        if uuid not in self._products:
            self._products[uuid] = await self._in_thread(lambda: self._gpus.product(uuid))
        return self._products[uuid]

    async def accepted(self, uuid: str, asked: Asked) -> Range:
        """The lowest and the highest that a GPU accepts.

        Raises:
            RequestError: There is no such GPU, it has no such setting, or the driver can't say.
        """
        return await self._in_thread(lambda: self._gpus.accepted(uuid, asked))

    def close(self) -> None:
        """Stop; a call that hangs is left behind."""
        self._thread.close()

    async def _in_thread(self, read: Callable[[], Result]) -> Result:
        try:
            async with asyncio.timeout(self._timeout_seconds):
                return await asyncio.wrap_future(self._thread.ask(read))
        except TimeoutError as error:
            raise RequestError(
                Reason.UNAVAILABLE, f"the driver did not answer in {self._timeout_seconds:g} s; nvidia-smi may hang too"
            ) from error

    def _look(self) -> None:
        self.sampler.look()
