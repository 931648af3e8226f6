"""Client of the node agent's socket: GPUs, energy counters, and power limits held as leases.

The protocol is one JSON object per line over a Unix socket, one request at a time. The answer to
``{"verb": "energy", "gpus": [...]}`` is ``{"result": ...}`` or ``{"error": {"reason": ..., "message":
...}}``. docs/internals/agent.md describes every verb. Requests carry no identity: the kernel identifies the
caller to the agent (SO_PEERCRED).
"""

from __future__ import annotations

from wattloop.gpus.agent.agent_connection import (
    RECONNECT_SECONDS,
    SOCKET_VARIABLE,
    TIMEOUT_SECONDS,
    AgentConnection,
)
from wattloop.gpus.agent.answers import (
    GpuDescription,
    GraphicsClocks,
    HeldClock,
    HeldLimit,
    LeaseDescription,
    PowerLimits,
    StreamedReadings,
)
from wattloop.gpus.agent.clock_stream import ClockStream
from wattloop.gpus.agent.socket_transport import (
    ANSWER_LIMIT_BYTES,
    REQUEST_LIMIT_BYTES,
    AgentRequestError,
    AgentUnavailable,
)

__all__ = [
    "ANSWER_LIMIT_BYTES",
    "RECONNECT_SECONDS",
    "REQUEST_LIMIT_BYTES",
    "SOCKET_VARIABLE",
    "TIMEOUT_SECONDS",
    "AgentConnection",
    "AgentRequestError",
    "AgentUnavailable",
    "ClockStream",
    "GpuDescription",
    "GraphicsClocks",
    "HeldClock",
    "HeldLimit",
    "LeaseDescription",
    "PowerLimits",
    "StreamedReadings",
]
