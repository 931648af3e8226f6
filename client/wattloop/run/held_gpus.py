"""The GPUs of a training process, through the node agent: their energy, and the power limit held on them.

The training process needs no privilege and never loads NVML. It sends requests to the agent's Unix
socket only when a run begins, reports, ends or measures limits.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from wattloop.energy.gpu_reading import GpuReading
from wattloop.errors import UsageError
from wattloop.gpus.agent import AgentConnection, AgentRequestError, AgentUnavailable, GpuDescription
from wattloop.power.limit_profiling import LimitProfiling, limits_to_measure
from wattloop.power.scheduled_profiling import ScheduledProfiling
from wattloop.power.windows import Totals
from wattloop.printable import ascii_text
from wattloop.run.rising_counters import RisingCounters
from wattloop.wire.training_messages import MAX_REFUSAL_CHARACTERS, GpuEnergy, LimitMeasurement, LimitSchedule

if TYPE_CHECKING:
    from wattloop.power.selectors import Selector
    from wattloop.power.sequential_profiling import SequentialProfiling
    from wattloop.power.shared_totals import TotalsExchange

logger = logging.getLogger("wattloop")

# The agent may be restarting for an upgrade. A run that is not measured from its start has no cost, so
# nothing is learned from it.
AGENT_START_SECONDS = 15.0


class ProcessGpus:
    """The GPUs of a run. Without an agent there are none, and the training continues without measurement.

    Args:
        socket_path: The agent's socket; empty for none.
        agent_start_seconds: How long to wait for an agent when the run begins.
        select: Selects the GPUs of this process from those that the agent offers; default: all.
        without_agent: What is missing without an agent, for the warning.
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
        self._max_watts_of: dict[str, float] = {}
        self._range_watts: tuple[float, float] | None = None
        self._max_watts = 0.0
        self._interruptions = 0
        self._profiling: LimitProfiling | ScheduledProfiling | SequentialProfiling | None = None
        self._selector: Selector | None = None
        self._exchange: TotalsExchange | None = None
        self._has_looked_for_exchange = False
        self.measured_gpus = 0
        self.profile_ranks = 1
        self.product = ""
        self.max_power_limit_watts = 0.0
        self.limit_watts: float | None = None
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
        self.measured_gpus = len(self._start)
        self.product = described[0].name if described else ""
        limits = [gpu.power_limits for gpu in described if gpu.power_limits is not None]
        self.max_power_limit_watts = sum(limit.maximum_watts for limit in limits)
        if not limits or len(limits) < len(described):
            return
        self._max_watts = min(limit.maximum_watts for limit in limits)
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
                uncertainty_millijoules=_rounded_up(now.uncertainty_since(self._start[now.uuid])),
            )
            for now in self._read()
            if now.uuid in self._start
        )

    def hold(self, watts: float) -> None:
        """Hold a power limit on every GPU of this process. On failure, log it and continue without a limit."""
        if self._agent is None or not self._start:
            return
        try:
            held = self._agent.hold_limit(list(self._start), watts)
        except (AgentUnavailable, AgentRequestError) as error:
            logger.warning("the power limit of %g W is not held: %s", watts, error)
            self._profiling = None
            self.refusal = ascii_text(str(error), MAX_REFUSAL_CHARACTERS)
            return
        self.limit_watts, self.refusal = held[0].enforced_watts, ""

    def begin_profiling(self, selector: Selector | None = None, *, alone: bool = True) -> None:
        """Begin to measure the power limits, the maximum first.

        Args:
            selector: Selects the limit; limits on which its choice depends are repeated. None: each is measured once.
            alone: Whether this process is the only one. One of several repeats limits only in step with the others.
        """
        if self._agent is None or not self._max_watts:
            return
        if self._range_watts is None:
            # No limit is allowed. The request fails, and the agent's error gives the reason.
            self.hold(self._max_watts)
            return
        limits = limits_to_measure(*self._range_watts)
        self._selector = selector
        if selector is not None and alone:
            self._profiling = self._sequential(limits, self.count, selector)
        else:
            self._profiling = LimitProfiling(limits)
        self.hold(self._profiling.limit_watts)

    def step_done(
        self,
        samples: float,
        choose: Callable[[tuple[LimitMeasurement, ...]], float],
        find_exchange: Callable[[], TotalsExchange | None] = lambda: None,
        scheduling_rank: Callable[[], int | None] = lambda: None,
    ) -> None:
        """Count an optimizer step for the measurement of limits, and hold the next limit when a window ends.

        Args:
            samples: Number of samples of the step.
            choose: Selects the limit to hold once all are measured.
            find_exchange: Finds the exchange with the other ranks, with which they measure together; None
                if there is none.
            scheduling_rank: Without an exchange, the rank of this process if the ranks measure by a schedule of the
                operator; None if each measures for itself.
        """
        profiling = self._profiling
        if profiling is None or not profiling.step_done(samples):
            return
        if not self._has_looked_for_exchange:
            # The first step has connected the ranks.
            self._has_looked_for_exchange, self._exchange = True, find_exchange()
            rank = scheduling_rank() if self._exchange is None else None
            if rank is not None:
                profiling = ScheduledProfiling(profiling.limits_watts, times_steps=rank == 0)
                self._profiling = profiling
                profiling.step_done(samples)
        totals, interrupted = self.totals(), self.was_interrupted()
        if self._exchange is not None and not isinstance(profiling, ScheduledProfiling):
            shared = self._exchange.exchange(
                totals, self.count, profiling.limits_watts, interrupted=interrupted, samples=profiling.samples
            )
            if shared is None:
                self._profiling = None
                self.hold(self._max_watts)
                return
            totals, interrupted = Totals(shared.energy_joules, shared.time_seconds), shared.interrupted
            self.measured_gpus, self.profile_ranks = shared.gpus, self._exchange.ranks
            if self._selector is not None and isinstance(profiling, LimitProfiling):
                # All ranks have held the highest limit so far, and repeat the same limits from now on.
                self._profiling = profiling = self._sequential(profiling.limits_watts, shared.gpus, self._selector)
            # Which limit is next follows from the windows, so they must be the same to the last digit.
            profiling.agree_on_samples(shared.reported_samples)
        before = profiling.limit_watts
        if totals is None:
            profiling.reading_missed()
        elif interrupted:
            profiling.restart_window()
        else:
            profiling.add_totals(totals)
        if profiling.finished:
            self.hold(choose(profiling.measurements(1.0)))
        elif profiling.limit_watts != before:
            self.hold(profiling.limit_watts)

    def proposed_schedule(self, epoch: int) -> LimitSchedule | None:
        """The schedule by which all ranks may measure limits after this epoch; None if this rank proposes none."""
        return self._profiling.proposal(epoch) if isinstance(self._profiling, ScheduledProfiling) else None

    def follow(self, schedule: LimitSchedule) -> None:
        """Measure limits by a schedule, from the next step on."""
        profiling = self._profiling
        if not isinstance(profiling, ScheduledProfiling) or self._range_watts is None:
            return
        before = profiling.limit_watts
        if not profiling.follow(schedule, self._range_watts):
            logger.warning("this rank measures no power limits: it may not hold %s W", list(schedule.limits_watts))
            self._profiling = None
        elif profiling.limit_watts != before:
            self.hold(profiling.limit_watts)

    def choose_from_all_ranks(
        self,
        shared: tuple[LimitMeasurement, ...],
        gpus: int,
        choose: Callable[[tuple[LimitMeasurement, ...]], float],
    ) -> None:
        """Hold the best limit by the complete measurements of all ranks.

        Args:
            shared: The sums over all ranks.
            gpus: Number of their GPUs.
            choose: Selects the limit.
        """
        profiling = self._profiling
        if not isinstance(profiling, ScheduledProfiling) or profiling.finished or not shared:
            return
        profiling.finished, self.measured_gpus = True, gpus
        self.hold(choose(shared))

    def epoch_ended(self, choose: Callable[[tuple[LimitMeasurement, ...]], float]) -> None:
        """An epoch has ended, after the same step on all ranks: no limit is repeated in the next one."""
        profiling = self._profiling
        if profiling is None or isinstance(profiling, LimitProfiling | ScheduledProfiling) or profiling.finished:
            return
        profiling.epoch_ended()
        if profiling.finished:
            self.hold(choose(profiling.measurements(1.0)))

    @staticmethod
    def _sequential(limits_watts: tuple[float, ...], gpus: int, selector: Selector) -> SequentialProfiling:
        # Imported here because most runs measure no limits.
        from wattloop.power.sequential_profiling import SequentialProfiling  # noqa: PLC0415

        return SequentialProfiling(limits_watts, gpus, selector)

    def measurements(self, samples_per_epoch: float) -> tuple[LimitMeasurement, ...]:
        """The limits measured so far in this run: of the GPUs of this rank, or by rank 0 of all ranks together."""
        if self._exchange is not None and not self._exchange.is_first:
            return ()
        return () if self._profiling is None else self._profiling.measurements(samples_per_epoch)

    def release(self) -> None:
        """Release the power limit."""
        if self._agent is None or self.limit_watts is None:
            return
        self.limit_watts = None
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
        """Whether the agent disconnected, or a counter fell, since the last call: no limit was measured meanwhile."""
        interruptions = 0 if self._agent is None else self._agent.interruptions
        before, self._interruptions = self._interruptions, interruptions + self._counters.falls
        return self._interruptions != before

    def _read(self) -> list[GpuReading]:
        if self._agent is None or not self._start:
            return []
        try:
            return self._energy_of(self._start)
        except (AgentUnavailable, AgentRequestError) as error:
            logger.warning("the energy counters could not be read: %s; the next report retries", error)
            return []

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
