"""The energy that a training used after its last report, if a process of it was killed.

A process that ends reads the energy counters of its GPUs for its last report. One that is killed does not, so
the run reads them when the training has ended.
"""

from __future__ import annotations

import logging

from wattloop.agent import AgentConnection, AgentRequestError, AgentUnavailable
from wattloop.messages import GpuEnergy
from wattloop_operator.api.attempt import Progress

logger = logging.getLogger(__name__)

# An agent that was killed together with the training restarts in less.
AGENT_START_SECONDS = 5.0


def energy_at_end(agent_socket: str, progress: Progress) -> tuple[GpuEnergy, ...]:
    """The energy counters now of the GPUs that the attempt has reported; empty if no agent answers.

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
    return tuple(
        GpuEnergy(
            uuid=now.uuid,
            start_energy_millijoules=known[now.uuid].start_energy_millijoules,
            energy_millijoules=now.energy_millijoules,
            start_time_seconds=float(known[now.uuid].start_time_seconds),
            time_seconds=now.time_seconds,
        )
        for now in readings
    )
