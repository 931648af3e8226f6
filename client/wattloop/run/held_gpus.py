"""The GPUs of a training process, through the node agent: their energy, and the power limit held on them.

The training process needs no privilege and never loads NVML. It sends requests to the agent's Unix
socket only when a run begins, reports, ends or measures limits.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Sequence

from wattloop.energy.gpu_reading import GpuReading, any_shared
from wattloop.errors import UsageError
from wattloop.gpus.agent import AgentConnection, AgentRequestError, AgentUnavailable, GpuDescription
from wattloop.power.windows import Totals
from wattloop.printable import ascii_text
from wattloop.run.rising_counters import RisingCounters
from wattloop.wire.training_messages import MAX_REFUSAL_CHARACTERS, GpuEnergy

logger = logging.getLogger("wattloop")

# The agent may be restarting for an upgrade. A run that is not measured from its start has no cost, so
# nothing is learned from it.
AGENT_START_SECONDS = 15.0
SHARED_NOTICE = (
    "GPU %s is used by others, too (%s): its energy is an upper bound of this training's, so nothing is learned from it"
)
UNKNOWN_NOTICE = "GPU %s: whether others use it, too, so that its energy is not this training's alone, is not known: %s"


class ProcessGpus:
    """The GPUs of a run. Without an agent there are none, and the training continues without measurement.

    Args:
        socket_path: The agent's socket; empty for none.
        agent_start_seconds: How long to wait for an agent when the run begins.
        select: Selects the GPUs of this process from those that the agent offers; default: all.
        without_agent: What is missing without an agent, for the warning.

    Attributes:
        product: Model of the GPUs; empty if there are none.
        max_power_limit_watts: Sum of their highest limits.
        highest_watts: The lowest of their highest limits; 0 if one of them has none.
        limit_watts: The limit in force on them; None if none is held.
        refusal: Why the limit requested last is not held; empty if it is.
    """

    def __init__(
        self,
        socket_path: str,
        agent_start_seconds: float = AGENT_START_SECONDS,
        select: Callable[[Sequence[GpuDescription]], Sequence[GpuDescription]] = tuple,
        *,
        without_agent: str = "energy is not measured",
    ) -> None:
        self._without_agent = without_agent
        self._agent_start_seconds = agent_start_seconds
        self._select = select
        self._agent = AgentConnection(socket_path) if socket_path else None
        self._start: dict[str, GpuReading] = {}
        self._counters = RisingCounters()
        self._shared: dict[str, bool | None] = {}
        self._max_watts_of: dict[str, float] = {}
        self._range_watts: tuple[float, float] | None = None
        self._interruptions = 0
        self.product = ""
        self.max_power_limit_watts = 0.0
        self.highest_watts = 0.0
        self.limit_watts: float | None = None
        # The limit to hold, until it is released.
        self._requested_watts: float | None = None
        self._repeated_holds = 0
        self.refusal = ""

    @property
    def count(self) -> int:
        """Number of GPUs of this process."""
        return len(self._start)

    @property
    def uuids(self) -> tuple[str, ...]:
        """UUIDs of the GPUs of this process."""
        return tuple(self._start)

    def begin(self) -> None:
        """Read the GPUs' descriptions and the start values of their energy counters.

        Raises:
            UsageError: The script chose a GPU that is not offered.
        """
        if self._agent is None:
            return
        self._agent.wait(self._agent_start_seconds)
        try:
            described = self._select(self._agent.gpus())
            self._max_watts_of = {
                each.uuid: each.power_limits.maximum_watts for each in described if each.power_limits is not None
            }
            self._start = {reading.uuid: reading for reading in self._energy_of(each.uuid for each in described)}
        except (AgentUnavailable, AgentRequestError) as error:
            logger.warning("%s: %s", self._without_agent, error)
            self._agent = None
            return
        except UsageError:
            self._agent.close()
            raise
        self.product = described[0].name if described else ""
        limits = [gpu.power_limits for gpu in described if gpu.power_limits is not None]
        self.max_power_limit_watts = sum(limit.maximum_watts for limit in limits)
        if not limits or len(limits) < len(described):
            return
        self.highest_watts = min(limit.maximum_watts for limit in limits)
        allowed = [limit.allowed_watts for limit in limits if limit.allowed_watts is not None]
        if len(allowed) == len(described):
            lowest, highest = max(low for low, _ in allowed), min(high for _, high in allowed)
            self._range_watts = (lowest, highest) if lowest <= highest else None

    @property
    def has_agent(self) -> bool:
        """Whether an agent is known, and has not failed at the begin."""
        return self._agent is not None

    @property
    def allowed_watts(self) -> tuple[float, float] | None:
        """The lowest and the highest limit that may be held on all GPUs of this process; None for no limit."""
        return self._range_watts

    def energy(self) -> tuple[GpuEnergy, ...]:
        """First and newest reading of each GPU; empty if no agent answers."""
        return tuple(
            GpuEnergy(
                uuid=now.uuid,
                start_energy_millijoules=self._start[now.uuid].cumulative_millijoules,
                energy_millijoules=now.cumulative_millijoules,
                start_time_seconds=self._start[now.uuid].clock_seconds,
                time_seconds=now.clock_seconds,
                uncertainty_millijoules=_rounded_up(self._uncertainty(now)),
                shared=self._is_shared(now),
                counter=self._start[now.uuid].counter,
            )
            for now in self._read()
            if now.uuid in self._start
        )

    def _uncertainty(self, now: GpuReading) -> float | None:
        integrated, lost = now.uncertainty_since(self._start[now.uuid]), self._counters.lost_millijoules(now.uuid)
        return integrated if integrated is not None else lost or None

    def _is_shared(self, now: GpuReading) -> bool | None:
        """Whether others have used the GPU since the start; said once."""
        uuid, others = now.uuid, now.others
        before = self._shared.get(uuid, False)
        # An agent that starts again has forgotten the processes that it saw.
        shared = any_shared((before, others.since(self._start[uuid].begin_seconds)))
        self._shared[uuid] = shared
        if shared and not before:
            logger.warning(SHARED_NOTICE, uuid, others.seen)
        elif shared is None and before is False:
            logger.warning(UNKNOWN_NOTICE, uuid, others.unknown)
        return shared

    def hold(self, watts: float) -> None:
        """Hold a power limit on every GPU of this process. On failure, log it and continue without a limit."""
        if self._agent is None or not self._start:
            return
        try:
            held = self._agent.hold_limit(list(self._start), watts)
        except (AgentUnavailable, AgentRequestError) as error:
            logger.warning("the power limit of %g W is not held: %s", watts, error)
            self.refusal = ascii_text(str(error), MAX_REFUSAL_CHARACTERS)
            return
        self.limit_watts, self.refusal = held[0].enforced_watts, ""
        self._requested_watts = watts

    def release(self) -> None:
        """Release the power limit."""
        if self._agent is None or self._requested_watts is None:
            return
        self.limit_watts = self._requested_watts = None
        try:
            self._agent.release(list(self._start), "power_limit")
        except (AgentUnavailable, AgentRequestError) as error:
            logger.warning("the power limit was not released: %s; the agent restores it when this process ends", error)

    def end(self) -> None:
        """Release the power limit and close the connection."""
        self.release()
        if self._agent is not None:
            self._agent.close()

    def was_interrupted(self) -> bool:
        """Whether the agent disconnected, or a GPU was reset, since the last call: no limit was measured meanwhile."""
        interruptions = 0 if self._agent is None else self._agent.interruptions
        interruptions += self._counters.falls + self._repeated_holds
        before, self._interruptions = self._interruptions, interruptions
        return self._interruptions != before

    def _read(self) -> list[GpuReading]:
        if self._agent is None or not self._start:
            return []
        falls = self._counters.falls
        try:
            readings = self._energy_of(self._start)
        except (AgentUnavailable, AgentRequestError) as error:
            logger.warning("the energy counters could not be read: %s; the next report retries", error)
            return []
        if self._counters.falls != falls:
            # A GPU that was reset has lost its limit.
            self.limit_watts = None
        if self.limit_watts is None and self._requested_watts is not None:
            self._repeated_holds += 1
            self.hold(self._requested_watts)
        return readings

    def _energy_of(self, uuids: Iterable[str]) -> list[GpuReading]:
        named = list(uuids)
        if self._agent is None or not named:
            return []
        read = self._agent.energy(named)
        return [self._counters.rising(each, self._max_watts_of.get(each.uuid, 0.0)) for each in read]

    def totals(self) -> Totals | None:
        """Cumulative energy of all GPUs and the time; None if the counters could not be read."""
        readings = self._read()
        if not readings:
            return None
        return Totals(
            energy_joules=sum(reading.cumulative_millijoules for reading in readings) / 1000,
            time_seconds=max(reading.clock_seconds for reading in readings),
        )


def _rounded_up(millijoules: float | None) -> int | None:
    return None if millijoules is None else math.ceil(millijoules)
