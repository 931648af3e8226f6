"""The energy that a training used after its last report, however it ended.

A process that ends by itself reads the energy counters of its GPUs for its last report. Any other does not, so
the run reads them: once the process has ended, and before an outcome is stored that ends it, such as
DeadlineExceeded, Hung or Cancelled. The outcome is stored first, so that a crash in between starts nothing again,
and it is final.
"""

from __future__ import annotations

import logging

from wattloop.energy.gpu_reading import GpuReading
from wattloop.errors import OperationError
from wattloop.gpus.agent import AgentConnection, AgentRequestError, AgentUnavailable
from wattloop.wire.training_messages import GpuEnergy
from wattloop_operator.domain.gpu_readings import GpuIntervals
from wattloop_operator.domain.progress import Progress
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.reconcile.attempt.report_effect import ObservedGpus, OutputReport
from wattloop_operator.reporting.interfaces import Observe

logger = logging.getLogger(__name__)

# An agent that was killed together with the training restarts in less.
AGENT_START_SECONDS = 5.0
# Others that were seen so shortly before the reading used the GPU after the last report, or before, too.
SEEN_SECONDS = 2.0
RESET_NOTICE = (
    "GPU %s: its counter began again, as after a reload of the driver; what the training used after its last report is "
    "not known"
)


class FinalEnergy:
    """Reports the energy of trainings whose end came from outside.

    Args:
        agent_socket: The agent's socket; empty if there is none.
        observe: Merges what is seen of a training from outside.
    """

    def __init__(self, agent_socket: str, observe: Observe) -> None:
        self._agent_socket = agent_socket
        self._observe = observe
        # Attempts that were read while they ran. Their counters rise, so each reading changes the progress.
        self._read: set[tuple[str, str]] = set()

    def report(self, recurrence: TrainingAttempt) -> None:
        """Read the GPUs that the attempt has reported. Failures are only logged."""
        energies = energy_now(self._agent_socket, recurrence.progress)
        if not energies:
            return
        metadata = recurrence.metadata
        try:
            self._observe(metadata.namespace, metadata.name, OutputReport(0, gpus=ObservedGpus(energies)))
        except OperationError as error:
            logger.warning("%s: the energy at its end was not stored: %s", metadata.name, error)

    def report_before_outcome(self, recurrence: TrainingAttempt) -> None:
        """Read the GPUs of an attempt that still runs, once: its outcome is to be stored."""
        key = (recurrence.metadata.namespace, recurrence.metadata.name)
        if key not in self._read:
            self._read.add(key)
            self.report(recurrence)


def energy_now(agent_socket: str, progress: Progress) -> tuple[GpuEnergy, ...]:
    """The energy counters now of the GPUs that an attempt has reported; empty if no agent answers.

    Args:
        agent_socket: The agent's socket; empty if there is none.
        progress: What the attempt has reported.
    """
    known = {gpu.uuid: gpu for gpu in progress.gpus}
    if not agent_socket or not known:
        return ()
    try:
        with AgentConnection(agent_socket) as agent:
            agent.wait(AGENT_START_SECONDS)
            readings = agent.energy(list(known))
    except (AgentUnavailable, AgentRequestError) as error:
        logger.warning("the energy that the training used after its last report is not known: %s", error)
        return ()
    reset = [now.uuid for now in readings if now.counter != known[now.uuid].counter]
    if reset:
        logger.warning(RESET_NOTICE, ", ".join(reset))
    return tuple(
        GpuEnergy(
            uuid=now.uuid,
            start_energy_millijoules=known[now.uuid].start_energy_millijoules,
            energy_millijoules=now.cumulative_millijoules,
            start_time_seconds=float(known[now.uuid].start_time_seconds),
            time_seconds=now.clock_seconds,
            uncertainty_millijoules=_uncertainty(known[now.uuid], now),
            shared=now.others.since(now.begin_seconds - SEEN_SECONDS) or known[now.uuid].shared,
            counter=now.counter,
        )
        for now in readings
        if now.uuid not in reset
    )


def _uncertainty(known: GpuIntervals, now: GpuReading) -> int | None:
    """Bound of the error of integrated energy since the start: what came after the last report may be wrong as a whole.

    The errors up to the start are known to the training alone.
    """
    if now.integrated is None or known.uncertainty_millijoules is None:
        return None
    return known.uncertainty_millijoules + max(now.cumulative_millijoules - known.energy_millijoules, 0)
