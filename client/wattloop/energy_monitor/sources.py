"""Chooses the source of readings: the agent where one answers, else NVML."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from wattloop.energy_monitor.agent_source import AgentSource
from wattloop.energy_monitor.nvml_source import NvmlSource
from wattloop.energy_monitor.readings import Readings, ReadingSource
from wattloop.errors import OperationError
from wattloop.gpus.agent import SOCKET_VARIABLE, AgentRequestError, AgentUnavailable
from wattloop.gpus.nvml import NvmlError


class FirstAvailable:
    """The first available source: the agent's, if the environment names its socket, else NVML's.

    Args:
        environment: The process's variables.
    """

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
