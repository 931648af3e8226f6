"""The GPUs of a training process, reached through the node agent: their energy, and the power limit held on them.

The training process needs no privilege and never loads NVML: it asks the agent on its unix socket, and only when a run
begins, reports, ends or measures limits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from wattloop.agent import AgentConnection, AgentRequestError, AgentUnavailable, EnergyReading
from wattloop.messages import MAX_REFUSAL_CHARACTERS, GpuEnergy, LimitMeasurement
from wattloop.power.profiling import LimitProfiling, Totals, limits_to_measure

logger = logging.getLogger("wattloop")

# A node's agent may just be replaced by a newer one; what a run does not measure from its start teaches nothing.
ARRIVAL_SECONDS = 15.0


class ProcessGpus:
    """What a run knows of its GPUs. Where no agent answers, there are none, and training goes on unmeasured.

    Args:
        socket_path: The agent's socket; empty for none.
        arrival_seconds: How long to wait for an agent when the run begins.
    """

    def __init__(self, socket_path: str, arrival_seconds: float = ARRIVAL_SECONDS) -> None:
        self._arrival_seconds = arrival_seconds
        self._agent = AgentConnection(socket_path) if socket_path else None
        self._start: dict[str, EnergyReading] = {}
        self._range_watts: tuple[float, float] | None = None
        self._most_watts = 0.0
        self._interruptions = 0
        self._profiling: LimitProfiling | None = None
        self.product = ""
        self.max_power_limit_watts = 0.0
        self.limit_watts: float | None = None
        self.refusal = ""

    @property
    def count(self) -> int:
        """How many GPUs this process uses."""
        return len(self._start)

    def begin(self) -> None:
        """Take stock of the GPUs and read their counters for the first time."""
        if self._agent is None:
            return
        self._agent.wait(self._arrival_seconds)
        try:
            described = self._agent.gpus()
            self._start = {reading.uuid: reading for reading in self._agent.energy()}
        except (AgentUnavailable, AgentRequestError) as error:
            logger.warning("energy is not measured: %s", error)
            self._agent = None
            return
        self.product = described[0].name if described else ""
        limits = [gpu.power_limits for gpu in described if gpu.power_limits is not None]
        self.max_power_limit_watts = sum(limit.maximum_watts for limit in limits)
        if not limits or len(limits) < len(described):
            return
        self._most_watts = min(limit.maximum_watts for limit in limits)
        allowed = [limit.allowed_watts for limit in limits if limit.allowed_watts is not None]
        if len(allowed) == len(described):
            least, most = max(least for least, _ in allowed), min(most for _, most in allowed)
            self._range_watts = (least, most) if least <= most else None

    def energy(self) -> tuple[GpuEnergy, ...]:
        """First and newest reading of each GPU; empty where no agent answers."""
        return tuple(
            GpuEnergy(
                uuid=now.uuid,
                start_energy_millijoules=self._start[now.uuid].energy_millijoules,
                energy_millijoules=now.energy_millijoules,
                start_time_seconds=self._start[now.uuid].time_seconds,
                time_seconds=now.time_seconds,
            )
            for now in self._read()
            if now.uuid in self._start
        )

    def hold(self, watts: float) -> None:
        """Hold a power limit on every GPU of this process; a refusal is logged and training goes on without."""
        if self._agent is None or not self._start:
            return
        try:
            held = self._agent.hold_limit(list(self._start), watts)
        except (AgentUnavailable, AgentRequestError) as error:
            logger.warning("the power limit of %g W is not held: %s", watts, error)
            self._profiling = None
            self.refusal = _printable(str(error))
            return
        self.limit_watts, self.refusal = held[0].enforced_watts, ""

    def begin_profiling(self) -> None:
        """Start to measure the power limits, from the maximum down."""
        if self._agent is None or not self._most_watts:
            return
        if self._range_watts is None:
            # Nothing may be asked for: asked all the same, the agent says why.
            self.hold(self._most_watts)
            return
        self._profiling = LimitProfiling(limits_to_measure(*self._range_watts))
        self.hold(self._profiling.limit_watts)

    def step_done(self, samples: float, choose: Callable[[tuple[LimitMeasurement, ...]], float]) -> None:
        """Count an optimizer step towards the measurement of limits, and hold the next limit when it is time.

        Args:
            samples: How many samples the step was made on.
            choose: Gives the limit to hold once all are measured.
        """
        profiling = self._profiling
        if profiling is None or not profiling.step_done(samples):
            return
        totals = self._totals()
        if totals is None:
            return
        if self._was_interrupted():
            profiling.restart_window()
            return
        before = profiling.limit_watts
        profiling.read(totals)
        if profiling.finished:
            self.hold(choose(profiling.measurements(1.0)))
        elif profiling.limit_watts != before:
            self.hold(profiling.limit_watts)

    def measurements(self, samples_per_epoch: float) -> tuple[LimitMeasurement, ...]:
        """The limits measured so far in this run."""
        return () if self._profiling is None else self._profiling.measurements(samples_per_epoch)

    def end(self) -> None:
        """Give the GPUs back as they were found."""
        if self._agent is None:
            return
        try:
            if self.limit_watts is not None:
                self._agent.release(list(self._start))
        except (AgentUnavailable, AgentRequestError) as error:
            logger.warning(
                "the power limit was not released: %s; the agent restores it when this process is gone", error
            )
        finally:
            self._agent.close()

    def _was_interrupted(self) -> bool:
        """Whether the agent was away since this was last asked: the limit was not held for a moment."""
        before, self._interruptions = self._interruptions, 0 if self._agent is None else self._agent.interruptions
        return self._interruptions != before

    def _read(self) -> list[EnergyReading]:
        if self._agent is None or not self._start:
            return []
        try:
            return self._agent.energy()
        except (AgentUnavailable, AgentRequestError) as error:
            logger.warning("the energy counters could not be read: %s; the next report says it again", error)
            return []

    def _totals(self) -> Totals | None:
        readings = self._read()
        if not readings:
            return None
        return Totals(
            energy_joules=sum(reading.energy_millijoules for reading in readings) / 1000,
            time_seconds=max(reading.time_seconds for reading in readings),
        )


def _printable(text: str) -> str:
    """The text as a report can carry it."""
    return "".join(each if each.isascii() and each.isprintable() else "?" for each in text)[:MAX_REFUSAL_CHARACTERS]
