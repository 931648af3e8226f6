"""Holds a power limit on the GPUs of a rank, and knows during which time it was in force.

An iteration counts if it lies between the request and a later look at the GPUs' limits, of which there is one a second,
and the agent has not disconnected meanwhile.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from wattloop.errors import OperationError
from wattloop.gpus.agent import AgentConnection, AgentRequestError

logger = logging.getLogger("wattloop")

# NVML counts in milliwatts, and some drivers round.
SAME_WATTS = 0.5
# Spans of time that are remembered: iterations wait some seconds for their energy.
MAX_SPANS = 16


class LimitHolder:
    """The power limit of the GPUs of a process. Threads may share it.

    Args:
        agent: The agent's connection, for this alone.
        uuids: The GPUs.
        now: The clock of the iterations, in seconds.
    """

    def __init__(self, agent: AgentConnection, uuids: Sequence[str], now: Callable[[], float] = time.monotonic) -> None:
        self._agent = agent
        self._uuids = tuple(uuids)
        self._now = now
        self._lock = threading.Lock()
        self._wanted: int | None = None
        # Since when the limit is held, and until when it is known to have been; None: it is not held.
        self._span: tuple[float, float] | None = None
        self._spans: deque[tuple[float, float]] = deque(maxlen=MAX_SPANS)
        self._interruptions = 0
        self._problem = ""

    def require(self, watts: int) -> None:
        """Hold a limit, or say why it cannot be held.

        Raises:
            OperationError: No agent answers, or a GPU enforces another limit.
            AgentRequestError: The agent refuses the limit.
        """
        with self._lock:
            self._wanted = watts
            self._request(watts)

    def hold(self, watts: int | None) -> None:
        """Hold this limit from now on; None: that of before. On failure it is tried again by `check`."""
        with self._lock:
            self._look()
            self._end_span()
            before, self._wanted = self._wanted, watts
            if watts is not None:
                self._try()
            elif before is not None:
                self._release()

    def check(self) -> float:
        """Look whether the limit is still in force, and hold it again if it is not.

        Returns:
            The moment until which `was_held` is known now.
        """
        with self._lock:
            moment = self._now()
            if self._wanted is not None and self._span is None:
                self._try()
            else:
                self._look()
            return moment

    def was_held(self, begin_seconds: float, end_seconds: float) -> bool:
        """Whether one limit was in force from one moment to another, before the last `check`."""
        with self._lock:
            known = [*self._spans, *([] if self._span is None else [self._span])]
            return any(begin <= begin_seconds and end_seconds <= end for begin, end in known)

    def close(self) -> None:
        """Give the limit back, and disconnect."""
        self.hold(None)
        self._agent.close()

    def _request(self, watts: int) -> None:
        held = self._agent.hold_limit(self._uuids, watts)
        lowest = min(each.enforced_watts for each in held)
        if abs(lowest - watts) > SAME_WATTS:
            raise OperationError(f"a GPU enforces {lowest:g} W instead of {watts} W: another program limits it too")
        self._interruptions = self._agent.interruptions
        moment = self._now()
        self._span = moment, moment

    def _try(self) -> None:
        assert self._wanted is not None, "there is a limit to hold"
        try:
            self._request(self._wanted)
        except (OperationError, AgentRequestError) as error:
            self._warn(f"the power limit of {self._wanted} W is not held, and nothing is measured under it: {error}")
        else:
            self._problem = ""

    def _look(self) -> None:
        """Compare the GPUs' limits with the one that is held, and end the span if they differ."""
        if self._span is None:
            return
        moment = self._now()
        try:
            current = {gpu.uuid: gpu.power_limits for gpu in self._agent.gpus()}
        except (OperationError, AgentRequestError) as error:
            self._end_span()
            self._warn(f"it is unknown whether the power limit of {self._wanted} W is held: {error}")
            return
        limits = [current.get(uuid) for uuid in self._uuids]
        others = [each for each in limits if each is None or abs(each.current_watts - (self._wanted or 0)) > SAME_WATTS]
        if others or self._agent.interruptions != self._interruptions:
            self._end_span()
            self._warn(f"the power limit of {self._wanted} W was not in force for a time, which is not measured")
            return
        self._span = self._span[0], moment

    def _end_span(self) -> None:
        if self._span is not None:
            self._spans.append(self._span)
            self._span = None

    def _release(self) -> None:
        try:
            self._agent.release(self._uuids, "power_limit")
        except (OperationError, AgentRequestError) as error:
            self._warn(f"the power limit was not released: {error}; the agent restores it when this process ends")

    def _warn(self, problem: str) -> None:
        if problem != self._problem:
            logger.warning("%s", problem)
        self._problem = problem
