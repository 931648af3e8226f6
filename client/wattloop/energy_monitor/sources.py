"""Chooses the source of readings: the agent where one answers, else NVML."""

import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence

from wattloop.energy_monitor.nvml_source import NvmlSource
from wattloop.energy_monitor.readings import INTERVAL_SECONDS, Readings, ReadingSource
from wattloop.errors import OperationError
from wattloop.gpus.agent import SOCKET_VARIABLE, AgentConnection, AgentRequestError, AgentUnavailable, StreamedReadings
from wattloop.gpus.nvml import NvmlError
from wattloop.gpus.process_gpus import CUDA_VARIABLE, visible_gpus

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
