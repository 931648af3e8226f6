"""The GPUs of a training process, through the node agent: their energy, and the power limit held on them."""

import logging
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from wattloop.energy.gpu_reading import GpuReading, IntegratedEnergy, any_shared
from wattloop.errors import UsageError
from wattloop.gpus.agent import AgentConnection, AgentRequestError, AgentUnavailable, GpuDescription
from wattloop.power.windows import Totals
from wattloop.printable import ascii_text
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
        agent_start_seconds: How long to wait for an agent when the run begins.
        without_agent: What is missing without an agent, for the warning.

    Attributes:
        product: Model of the GPUs; empty if there are none.
        max_power_limit_watts: Sum of their highest limits.
        highest_watts: The lowest of their highest limits; 0 if one of them has none.
        allowed_watts: The lowest and the highest limit that may be held on all of them; None for no limit.
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
        self.allowed_watts: tuple[float, float] | None = None
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

    def begin(self) -> bool:
        """Read the GPUs' descriptions and the start values of their energy counters; returns whether an agent answers.

        Raises:
            UsageError: The script chose a GPU that is not offered.
        """
        if self._agent is None:
            return False
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
            return False
        except UsageError:
            self._agent.close()
            raise
        self.product = described[0].name if described else ""
        limits = [gpu.power_limits for gpu in described if gpu.power_limits is not None]
        self.max_power_limit_watts = sum(limit.maximum_watts for limit in limits)
        if limits and len(limits) == len(described):
            self.highest_watts = min(limit.maximum_watts for limit in limits)
            allowed = [limit.allowed_watts for limit in limits if limit.allowed_watts is not None]
            if len(allowed) == len(described):
                lowest, highest = max(low for low, _ in allowed), min(high for _, high in allowed)
                self.allowed_watts = (lowest, highest) if lowest <= highest else None
        return True

    @property
    def has_agent(self) -> bool:
        """Whether an agent is known, and has not failed at the begin."""
        return self._agent is not None

    def energy(self) -> tuple[GpuEnergy, ...]:
        """First and newest reading of each GPU; empty if no agent answers."""
        return tuple(
            GpuEnergy(
                uuid=now.uuid,
                start_energy_millijoules=self._start[now.uuid].cumulative_millijoules,
                energy_millijoules=now.cumulative_millijoules,
                start_time_seconds=self._start[now.uuid].clock_seconds,
                time_seconds=now.clock_seconds,
                uncertainty_millijoules=self._uncertainty(now),
                shared=self._is_shared(now),
                counter=self._start[now.uuid].counter,
            )
            for now in self._read()
            if now.uuid in self._start
        )

    def _uncertainty(self, now: GpuReading) -> int | None:
        integrated, lost = now.uncertainty_since(self._start[now.uuid]), self._counters.lost_millijoules(now.uuid)
        found = integrated if integrated is not None else lost or None
        return None if found is None else math.ceil(found)

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


@dataclass
class _Counted:
    """What was counted of a GPU, and its last reading."""

    millijoules: int
    seconds: float
    lost_millijoules: float
    last: GpuReading


class RisingCounters:
    """Continues the energy and the clock of each GPU after a fall.

    A GPU that is reset counts from zero, and all GPUs do when the driver is loaded again, which readings tell by
    another `counter`. What a GPU used between its last reading and the reset is in no counter; `lost_millijoules`
    bounds it. A value that is larger than the GPU can have used since is no such count, and adds nothing.
    The same holds of energy that an agent integrates, if the agent begins again.

    Attributes:
        falls: Number of readings so far with an energy or a clock below the one before, or of another counter.
    """

    def __init__(self) -> None:
        self._gpus: dict[str, _Counted] = {}
        self.falls = 0

    def lost_millijoules(self, uuid: str) -> float:
        """Bound of what a GPU used while its counter was reset, beyond what was counted; 0 if it was not."""
        known = self._gpus.get(uuid)
        return 0.0 if known is None else known.lost_millijoules

    def rising(self, reading: GpuReading, max_watts: float) -> GpuReading:
        """The reading with an energy and a clock that are not below the GPU's previous ones.

        Args:
            reading: The next reading of a GPU.
            max_watts: The most power that the GPU can draw; 0 if it is not known.
        """
        energy, clock = reading.cumulative_millijoules, reading.clock_seconds
        known = self._gpus.get(reading.uuid)
        if known is None:
            self._gpus[reading.uuid] = _Counted(energy, clock, 0.0, reading)
            return reading
        last = known.last
        seconds, millijoules = clock - last.clock_seconds, energy - last.cumulative_millijoules
        began_again = millijoules < 0 or reading.counter != last.counter
        if seconds < 0 or began_again:
            self.falls += 1
            if self.falls == 1:
                logger.warning(
                    "GPU %s: its counter began again, from %d mJ at %.3f s to %d mJ at %.3f s, as after a reset of the "
                    "GPU or a reload of the driver; what it used in between may be missing in the energy of this run",
                    reading.uuid, last.cumulative_millijoules, last.clock_seconds, energy, clock,
                )  # fmt: skip
        if began_again:
            possible = 1000 * max_watts * max(seconds, 0.0)
            millijoules = energy if energy <= possible else 0
            known.lost_millijoules += possible - millijoules
            if last.integrated is not None and reading.integrated is not None:
                # Its errors begin again, too.
                known.lost_millijoules += last.integrated.uncertainty_since(IntegratedEnergy(0, 0.0, 0.0))
        known.seconds += max(seconds, 0.0)
        known.millijoules += millijoules
        known.last = reading
        if reading.integrated is None:
            return reading._replace(energy_millijoules=known.millijoules, clock_seconds=known.seconds)
        error = reading.integrated.estimation_error_millijoules + known.lost_millijoules
        integrated = replace(
            reading.integrated, energy_millijoules=known.millijoules, estimation_error_millijoules=error
        )
        return reading._replace(integrated=integrated, clock_seconds=known.seconds)
