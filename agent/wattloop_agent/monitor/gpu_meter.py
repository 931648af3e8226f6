"""Reads GPUs, processors and memory for the event loop.

One thread calls the driver, so a driver that hangs blocks no caller.
"""

import asyncio
import logging
import queue
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from wattloop.energy.gpu_reading import GpuReading
from wattloop.gpus.agent import GpuDescription
from wattloop.gpus.rapl import POWERCAP, Rapl
from wattloop.threads import WatchedThread
from wattloop.wire.node_energy import Range
from wattloop_agent.gpu_setting import GpuSetting
from wattloop_agent.monitor.gpu_sampler import Sampler
from wattloop_agent.monitor.gpu_users import GpuUsers
from wattloop_agent.monitor.nvml_readings import NvmlReadings
from wattloop_agent.refusals import Reason, RequestError

logger = logging.getLogger(__name__)

TIMEOUT_SECONDS = 5.0
# Linux lets only root read RAPL, since readings at a high rate reveal what programs compute
# (CVE-2020-8694). Ten a second, of all programs of the node together, suffice for energy.
PROCESSORS_SECONDS = 0.1
Result = TypeVar("Result")


class DriverThread:
    """Runs functions one at a time; a driver that hangs blocks this thread and nothing else.

    Args:
        sample: Called in the thread at each interval.
    """

    def __init__(self, sample: Callable[[], None]) -> None:
        self._sample = sample
        # None: the interval has changed, or the thread is to end.
        self._requests: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._interval_seconds: float | None = None
        self._due_seconds = 0.0
        self._closed = False
        self._thread: WatchedThread | None = None

    def submit(self, read: Callable[[], Result]) -> Future[Result]:
        """Run a function in the thread; a future that is cancelled before that is not run."""
        future: Future[Result] = Future()
        self._start()
        self._requests.put((future, read))
        return future

    def set_interval(self, interval_seconds: float | None) -> None:
        """Sample at this interval from now on; None: not at all."""
        if interval_seconds == self._interval_seconds:
            return
        now = time.monotonic()
        self._due_seconds = (
            now if self._interval_seconds is None else min(self._due_seconds, now + (interval_seconds or 0))
        )
        self._interval_seconds = interval_seconds
        self._start()
        self._requests.put(None)

    def close(self) -> None:
        """End the thread. A call that hangs is abandoned, and does not delay the exit."""
        if self._thread is not None:
            self._thread.release()
        self._closed = True
        self._requests.put(None)

    def _start(self) -> None:
        if self._thread is None:
            self._thread = WatchedThread(self._run, "nvml")
            self._thread.start()

    def _run(self) -> None:
        while not self._closed:
            try:
                request = self._requests.get(timeout=self._left_seconds())
            except queue.Empty:
                request = None
            if request is not None:
                _run_request(*request)
            if self._interval_seconds is not None and self._left_seconds() == 0.0 and not self._closed:
                self._take_sample(self._interval_seconds)

    def _left_seconds(self) -> float | None:
        return None if self._interval_seconds is None else max(self._due_seconds - time.monotonic(), 0.0)

    def _take_sample(self, interval_seconds: float) -> None:
        try:
            self._sample()
        except Exception:
            logger.exception("unexpected failure of a sample of the GPUs; continuing with the next one")
        # Samples that a slow driver delayed are not made up for, and time is left for requests.
        self._due_seconds = max(self._due_seconds + interval_seconds, time.monotonic() + interval_seconds / 2)


def _run_request(future: Future[Any], read: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(read())
    except BaseException as error:  # noqa: BLE001 - it belongs to the future's caller
        future.set_exception(error)


class Meter:
    """Reads GPUs without blocking the event loop.

    Args:
        gpus: The GPUs; used in one thread only.
        timeout_seconds: Time that the driver may take.
        integrated: Adds the integrated energy to a reading of a GPU without an energy counter; called in the driver's
            thread. The default adds none.
        counter: Identifies what the counters count from; called in the driver's thread.

    Attributes:
        sampler: Samples all GPUs periodically in the same thread; idle until it is started or subscribed to.
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

    # Each method that waits for the driver raises `RequestError` with its error, or because it does not answer.

    async def gpus(self, seen: Callable[[str], bool]) -> list[GpuDescription]:
        """The GPUs that satisfy a predicate on their uuid; without limits those that fail, unless all do."""
        return await self._in_thread(lambda: self._gpus.describe(seen))

    async def energy(self, uuids: Sequence[str], owner: str) -> list[GpuReading]:
        """The counters of these GPUs, read now; of a GPU without one, its integrated power.

        Each has what is known of others on the owner's GPUs.
        """
        return await self._in_thread(lambda: self._energy(uuids, owner))

    async def energy_of(self, seen: Callable[[str], bool], owner: str) -> list[GpuReading]:
        """The same of all GPUs that satisfy a predicate on their uuid, by index."""
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
        """Each GPU's uuid, by its device node (``nvidia0``) and by its MIG devices' uuids."""
        return await self._in_thread(self._gpus.uuid_by_device)

    def partitioned(self) -> frozenset[str]:
        """Uuids of the GPUs on which MIG is enabled, as last sampled; from any thread."""
        return frozenset(status.uuid for status in self.sampler.statuses if status.is_partitioned)

    async def product(self, uuid: str) -> str:
        """A GPU's model, read once."""
        if uuid not in self._products:
            self._products[uuid] = await self._in_thread(lambda: self._gpus.product(uuid))
        return self._products[uuid]

    async def accepted(self, uuid: str, setting: GpuSetting) -> Range:
        """The lowest and the highest value that a GPU accepts."""
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


class ProcessorMeter:
    """Reads RAPL at most every `PROCESSORS_SECONDS`, however many subscribers there are."""

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
