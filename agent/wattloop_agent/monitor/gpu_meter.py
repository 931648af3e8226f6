"""Reads GPUs, processors and memory for the event loop.

One thread calls the driver, so a driver that hangs blocks no caller.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from wattloop.energy.gpu_reading import GpuReading
from wattloop.gpus.agent import GpuDescription
from wattloop.gpus.rapl import POWERCAP, Rapl
from wattloop.wire.node_energy import Range
from wattloop_agent.gpu_setting import GpuSetting
from wattloop_agent.monitor.driver_thread import DriverThread
from wattloop_agent.monitor.gpu_sampler import Sampler
from wattloop_agent.monitor.gpu_users import GpuUsers
from wattloop_agent.monitor.nvml_readings import NvmlReadings
from wattloop_agent.refusals import Reason, RequestError

TIMEOUT_SECONDS = 5.0
Result = TypeVar("Result")


class Meter:
    """Reads GPUs without blocking the event loop.

    Args:
        gpus: The GPUs; used in one thread only.
        timeout_seconds: Time that the driver may take.
        integrated: Adds the integrated energy to a reading of a GPU without an energy counter; called in the driver's
            thread. The default adds none.
        counter: Identifies what the counters count from; called in the driver's thread.

    Attributes:
        sampler: Samples all GPUs periodically in the same thread; idle until it is started or
            subscribed to.
        users: Knows which others use the GPUs of a caller; None: no caller asks.
    """

    def __init__(
        self,
        gpus: NvmlReadings,
        timeout_seconds: float = TIMEOUT_SECONDS,
        integrated: Callable[[GpuReading], GpuReading] = lambda reading: reading,
        counter: Callable[[], str] = lambda: "",
    ) -> None:
        self._gpus = gpus
        self._integrated = integrated
        self.users: GpuUsers | None = None
        self._counter = counter
        self._counter_id = ""
        self._timeout_seconds = timeout_seconds
        self._products: dict[str, str] = {}
        self._thread = DriverThread(self._sample)
        self.sampler = Sampler(gpus, self._thread.set_interval)

    async def gpus(self, seen: Callable[[str], bool]) -> list[GpuDescription]:
        """The GPUs that satisfy a predicate on their uuid; without limits those that fail, unless all do.

        Raises:
            RequestError: The driver does not report them.
        """
        return await self._in_thread(lambda: self._gpus.describe(seen))

    async def energy(self, uuids: Sequence[str], owner: str) -> list[GpuReading]:
        """The counters of these GPUs, read now; of a GPU without one, its integrated power.

        Args:
            uuids: The GPUs.
            owner: The caller, with what is known of others on its GPUs.

        Raises:
            RequestError: One of them does not exist, or reports neither its energy nor its power.
        """
        return await self._in_thread(lambda: self._energy(uuids, owner))

    async def energy_of(self, seen: Callable[[str], bool], owner: str) -> list[GpuReading]:
        """The same of all GPUs that satisfy a predicate on their uuid, by index.

        Raises:
            RequestError: As `energy`.
        """
        return await self._in_thread(lambda: self._energy([uuid for uuid in self._gpus.uuids() if seen(uuid)], owner))

    def _energy(self, uuids: Sequence[str], owner: str) -> list[GpuReading]:
        if self.users is not None:
            self.users.begin(owner)
        readings = self._gpus.energy(uuids)
        self._counter_id = self._counter()
        return [self.for_caller(self._integrated(reading), owner) for reading in readings]

    def for_caller(self, reading: GpuReading, owner: str) -> GpuReading:
        """A reading with what a caller learns beside it: others on the GPU, and what its counter counts from."""
        others = reading.others if self.users is None else self.users.others(owner, reading.uuid)
        # The ledger's integral goes on when the driver is loaded again.
        return reading._replace(others=others, counter="" if reading.energy_millijoules is None else self._counter_id)

    async def uuid_by_device(self) -> dict[str, str]:
        """Each GPU's uuid, by its device node (``nvidia0``) and by its MIG devices' uuids.

        Raises:
            RequestError: The driver does not report them.
        """
        return await self._in_thread(self._gpus.uuid_by_device)

    def partitioned(self) -> frozenset[str]:
        """Uuids of the GPUs on which MIG is enabled, as last sampled; from any thread."""
        return frozenset(status.uuid for status in self.sampler.statuses if status.is_partitioned)

    async def product(self, uuid: str) -> str:
        """A GPU's model, read once.

        Raises:
            RequestError: There is no such GPU, or the driver does not report it.
        """
        if uuid not in self._products:
            self._products[uuid] = await self._in_thread(lambda: self._gpus.product(uuid))
        return self._products[uuid]

    async def accepted(self, uuid: str, setting: GpuSetting) -> Range:
        """The lowest and the highest value that a GPU accepts.

        Raises:
            RequestError: There is no such GPU, it has no such setting, or the driver does not
                report it.
        """
        return await self._in_thread(lambda: self._gpus.accepted(uuid, setting))

    def close(self) -> None:
        """Stop; a call that hangs is abandoned."""
        self._thread.close()

    async def _in_thread(self, read: Callable[[], Result]) -> Result:
        try:
            async with asyncio.timeout(self._timeout_seconds):
                return await asyncio.wrap_future(self._thread.submit(read))
        except TimeoutError as error:
            raise RequestError(
                Reason.UNAVAILABLE, f"the driver did not answer in {self._timeout_seconds:g} s; nvidia-smi may hang too"
            ) from error

    def _sample(self) -> None:
        self.sampler.sample()
        if self.users is not None:
            self.users.check()


# Linux lets only root read RAPL, since readings at a high rate reveal what programs compute
# (CVE-2020-8694). Ten a second, of all programs of the node together, suffice for energy.
PROCESSORS_SECONDS = 0.1


class ProcessorMeter:
    """Reads RAPL at most every `PROCESSORS_SECONDS`, however many subscribers there are.

    Args:
        folder: Folder of the zones.
        clock: The monotonic clock.
    """

    def __init__(self, folder: Path = POWERCAP, clock: Callable[[], float] = time.monotonic) -> None:
        self._rapl = Rapl(folder)
        self._clock = clock
        self._read_seconds = clock()

    def joules(self) -> tuple[float, Mapping[str, float]]:
        """The time of the last reading, and the energy until then by zone, since this object exists."""
        now = self._clock()
        if now >= self._read_seconds + PROCESSORS_SECONDS:
            self._rapl.read()
            self._read_seconds = now
        return self._read_seconds, self._rapl.joules()
