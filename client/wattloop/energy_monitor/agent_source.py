"""Readings from the node agent's stream."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from wattloop.energy_monitor.readings import INTERVAL_SECONDS, Readings
from wattloop.gpus.agent import AgentConnection, AgentRequestError, StreamedReadings
from wattloop.gpus.process_gpus import CUDA_VARIABLE, visible_gpus

# A reading is never from the future, and an agent that hangs sends none.
MAX_AGE_SECONDS = 20.0
CLOCK_TOLERANCE_SECONDS = 0.002


class AgentSource:
    """The readings that the agent streams, by one subscription.

    Args:
        path: The agent's socket.
        environment: The process's variables: ``CUDA_VISIBLE_DEVICES`` selects the GPUs.
        interval_seconds: Interval of the readings.
        clock: The monotonic clock of this process.
    """

    def __init__(
        self,
        path: str,
        environment: Mapping[str, str] = os.environ,
        interval_seconds: float = INTERVAL_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._environment = environment
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._agent = AgentConnection(path)
        self._offset = ClockOffset()
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
            self._stream = self._agent.stream(self._interval_seconds, self._streamed)
        try:
            streamed = next(self._stream)
        except AgentRequestError:
            self._end_stream()
            raise
        newest = max((gpu.end_seconds for gpu in streamed.gpus), default=None)
        offset = 0.0 if newest is None else self._offset.update(self._clock() - newest)
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


class ClockOffset:
    """The offset of this process's monotonic clock from the agent's.

    It is 0 on one machine. In a container with a time namespace, or a virtual machine, the clocks
    differ; the offset is then the shortest delay of a reading.

    Example:
        >>> offset = ClockOffset()
        >>> offset.update(0.003), offset.update(0.04)
        (0.0, 0.0)
        >>> offset.update(-500.0)
        -500.0
    """

    def __init__(self) -> None:
        self._shortest = math.inf

    def update(self, delay_seconds: float) -> float:
        """The offset, given the time of arrival of a reading minus its own time."""
        self._shortest = min(self._shortest, delay_seconds)
        return 0.0 if -CLOCK_TOLERANCE_SECONDS <= self._shortest <= MAX_AGE_SECONDS else self._shortest
