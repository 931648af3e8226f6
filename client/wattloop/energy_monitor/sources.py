"""Chooses the source of readings: the agent where one answers, else NVML."""

import contextlib
import ctypes
import math
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from wattloop.energy.gpu_reading import NOT_ASKED, GpuReading, OtherUse
from wattloop.energy_monitor.readings import INTERVAL_SECONDS, Readings, ReadingSource
from wattloop.errors import OperationError
from wattloop.gpus.agent import SOCKET_VARIABLE, AgentConnection, AgentRequestError, AgentUnavailable, StreamedReadings
from wattloop.gpus.gpu_processes import others_among, text_of
from wattloop.gpus.nvml import EnergyCounters, Gpu, NvmlError, Session, lists_all_processes
from wattloop.gpus.process_gpus import CUDA_VARIABLE, visible_gpus
from wattloop.gpus.rapl import POWERCAP, Rapl

# A reading is never from the future, and an agent that hangs sends none.
MAX_AGE_SECONDS = 20.0
CLOCK_TOLERANCE_SECONDS = 0.002


class AgentSource:
    """The readings that the agent streams, by one subscription.

    Args:
        environment: The process's variables: ``CUDA_VISIBLE_DEVICES`` selects the GPUs.
    """

    def __init__(
        self,
        path: str,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self._environment = environment
        self._agent = AgentConnection(path)
        self._shortest_delay = math.inf
        self._stream: Iterator[StreamedReadings] | None = None
        self._streamed: tuple[str, ...] = ()

    def open(self) -> Sequence[str]:
        """See `ReadingSource`."""
        gpus = sorted(self._agent.gpus(), key=lambda gpu: gpu.index)
        return visible_gpus(self._environment.get(CUDA_VARIABLE), [gpu.uuid for gpu in gpus])

    def read(self, uuids: Sequence[str]) -> Readings:
        """See `ReadingSource`."""
        if self._stream is None or self._streamed != tuple(uuids):
            self._end_stream()
            self._streamed = tuple(uuids)
            self._stream = self._agent.stream(INTERVAL_SECONDS, self._streamed)
        try:
            streamed = next(self._stream)
        except AgentRequestError:
            self._end_stream()
            raise
        newest = max((gpu.end_seconds for gpu in streamed.gpus), default=None)
        offset = 0.0
        if newest is not None:
            # The offset of this process's monotonic clock from the agent's is 0 on one machine. In a container with a
            # time namespace, or a virtual machine, the clocks differ by the shortest delay of a reading.
            self._shortest_delay = min(self._shortest_delay, time.monotonic() - newest)
            is_one_clock = -CLOCK_TOLERANCE_SECONDS <= self._shortest_delay <= MAX_AGE_SECONDS
            offset = 0.0 if is_one_clock else self._shortest_delay
        gpus = [
            gpu._replace(
                begin_seconds=gpu.begin_seconds + offset,
                end_seconds=gpu.end_seconds + offset,
                others=gpu.others.shifted(offset),
            )
            for gpu in streamed.gpus
        ]
        return Readings(gpus, streamed.processor_seconds + offset, streamed.processor_joules)

    def close(self) -> None:
        """See `ReadingSource`."""
        self._end_stream()
        self._agent.close()

    def _end_stream(self) -> None:
        stream, self._stream = self._stream, None
        close = getattr(stream, "close", None)
        if close is not None:
            close()


LIBRARY_VARIABLE = "WATTLOOP_NVML_LIBRARY"
# A GPU that fails is read again after so long; each attempt may make NVML start again.
FAILED_SECONDS = 1.0
# The list of a GPU's processes costs the driver a call.
OTHERS_SECONDS = 1.0


class NvmlSource:
    """Reads GPUs at an interval.

    Args:
        environment: The process's variables: ``WATTLOOP_NVML_LIBRARY`` names another library than the
            system's, and ``CUDA_VISIBLE_DEVICES`` selects the GPUs.
    """

    def __init__(
        self,
        environment: Mapping[str, str] = os.environ,
        interval_seconds: float = INTERVAL_SECONDS,
        powercap: Path = POWERCAP,
    ) -> None:
        self._environment = environment
        self._interval_seconds = interval_seconds
        self._powercap = powercap
        self._session = Session()
        self._gpus: dict[str, Gpu] = {}
        self._counters = EnergyCounters()
        self._failed_seconds: dict[str, float] = {}
        self._rapl: Rapl | None = None
        self._due_seconds = 0.0
        self._others: dict[str, OtherUse] = {}
        self._others_due_seconds = 0.0
        self._pause = threading.Event()

    def open(self) -> Sequence[str]:
        """See `ReadingSource`."""
        library = self._environment.get(LIBRARY_VARIABLE, "")
        if library:
            try:
                # pynvml then gets this library from the linker, by its soname.
                ctypes.CDLL(library)
            except OSError as error:
                raise OperationError(f"{library}, named by {LIBRARY_VARIABLE}, can't be loaded: {error}") from error
        self._session.open()
        answers = [gpu for gpu in self._session.gpus_or_errors() if isinstance(gpu, Gpu)]
        self._gpus = {gpu.uuid: gpu for gpu in answers}
        self._rapl = Rapl(self._powercap)
        value = self._environment.get(CUDA_VARIABLE)
        parts = _gpu_by_mig_device(answers) if value is not None and "MIG-" in value else {}
        return visible_gpus(value, list(self._gpus), parts)

    def read(self, uuids: Sequence[str]) -> Readings:
        """See `ReadingSource`."""
        now = time.monotonic()
        if self._due_seconds > now:
            self._pause.wait(self._due_seconds - now)
        self._due_seconds = max(self._due_seconds, now) + self._interval_seconds
        if now >= self._others_due_seconds:
            self._others_due_seconds = now + OTHERS_SECONDS
            self._others = {uuid: _other_use(self._gpus[uuid]) for uuid in uuids if uuid in self._gpus}
        gpus = [reading for uuid in uuids if (reading := self._reading(uuid)) is not None]
        if uuids and len(self._failed_seconds) == len(uuids):
            # After a restart of the driver, NVML must be opened again.
            raise OperationError("none of the GPUs answers")
        if self._rapl is None:
            return Readings(gpus)
        self._rapl.read()
        return Readings(gpus, time.monotonic(), self._rapl.joules())

    def close(self) -> None:
        """See `ReadingSource`."""
        with contextlib.suppress(NvmlError):
            self._session.close()
        self._gpus, self._failed_seconds = {}, {}

    def _reading(self, uuid: str) -> GpuReading | None:
        gpu = self._gpus.get(uuid)
        begin = time.monotonic()
        if gpu is None or begin < self._failed_seconds.get(uuid, 0.0):
            return None
        try:
            counter = self._counters.millijoules(gpu)
            end = time.monotonic()
            reading = GpuReading(uuid, begin, end, counter, gpu.instant_power_watts())
            reading = reading._replace(others=self._others.get(uuid, NOT_ASKED))
        except NvmlError:
            self._failed_seconds[uuid] = begin + FAILED_SECONDS
            return None
        self._failed_seconds.pop(uuid, None)
        return reading


def _other_use(gpu: Gpu) -> OtherUse:
    try:
        pids = gpu.compute_processes()
    except NvmlError as error:
        return OtherUse(unknown=str(error))
    names, unknown = others_among(pids, os.getpid(), is_complete=lists_all_processes())
    return OtherUse(time.monotonic() if names else None, text_of(names), unknown)


def _gpu_by_mig_device(gpus: Sequence[Gpu]) -> dict[str, str]:
    parts: dict[str, str] = {}
    for gpu in gpus:
        with contextlib.suppress(NvmlError):
            parts |= dict.fromkeys(gpu.mig_device_uuids(), gpu.uuid)
    return parts


class FirstAvailable:
    """The first available source: the agent's, if the environment names its socket, else NVML's."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._environment = environment
        self._source: ReadingSource | None = None

    def open(self) -> Sequence[str]:
        """See `ReadingSource`; the error says what is wrong with each source."""
        problems = []
        path = self._environment.get(SOCKET_VARIABLE, "")
        if path:
            agent = AgentSource(path, self._environment)
            try:
                uuids = agent.open()
            except (AgentUnavailable, AgentRequestError) as error:
                agent.close()
                problems.append(str(error))
            else:
                self._source = agent
                return uuids
        else:
            problems.append(f"no agent: {SOCKET_VARIABLE} names no socket")
        nvml = NvmlSource(self._environment)
        try:
            uuids = nvml.open()
        except (NvmlError, OperationError) as error:
            nvml.close()
            raise OperationError("; ".join([*problems, str(error)])) from error
        self._source = nvml
        return uuids

    def read(self, uuids: Sequence[str]) -> Readings:
        """See `ReadingSource`."""
        if self._source is None:
            raise OperationError("the source is not open")
        return self._source.read(uuids)

    def close(self) -> None:
        """See `ReadingSource`."""
        source, self._source = self._source, None
        if source is not None:
            source.close()
