"""The client's side of the node agent's socket: GPUs, energy counters, power limits held as leases.

One JSON object a line over a unix socket, a request at a time: ``{"verb": "energy", "gpus": [...]}`` is answered by
``{"result": ...}`` or ``{"error": {"reason": ..., "message": ...}}``. docs/agent.md describes every verb. The agent
knows the caller by the kernel's word (SO_PEERCRED), so nothing here carries an identity.
"""

from __future__ import annotations

from wattloop.agent.answers import (
    EnergyReading,
    GpuDescription,
    HeldClock,
    HeldLimit,
    LeaseDescription,
    PowerLimits,
)
from wattloop.agent.connection import (
    RECONNECT_SECONDS,
    SOCKET_VARIABLE,
    TIMEOUT_SECONDS,
    AgentConnection,
    connected_agent,
)
from wattloop.agent.errors import AgentRequestError, AgentUnavailable
from wattloop.agent.transport import ANSWER_LIMIT_BYTES, REQUEST_LIMIT_BYTES

__all__ = [
    "ANSWER_LIMIT_BYTES",
    "RECONNECT_SECONDS",
    "REQUEST_LIMIT_BYTES",
    "SOCKET_VARIABLE",
    "TIMEOUT_SECONDS",
    "AgentConnection",
    "AgentRequestError",
    "AgentUnavailable",
    "EnergyReading",
    "GpuDescription",
    "HeldClock",
    "HeldLimit",
    "LeaseDescription",
    "PowerLimits",
    "connected_agent",
]
