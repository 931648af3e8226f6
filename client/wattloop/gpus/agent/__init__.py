"""Client of the node agent's socket, whose protocol is in docs/internals/agent.md."""

from wattloop.gpus.agent.agent_connection import (
    SOCKET_VARIABLE,
    TIMEOUT_SECONDS,
    AgentConnection,
)
from wattloop.gpus.agent.answers import (
    GpuDescription,
    GraphicsClocks,
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
    "REQUEST_LIMIT_BYTES",
    "SOCKET_VARIABLE",
    "TIMEOUT_SECONDS",
    "AgentConnection",
    "AgentRequestError",
    "AgentUnavailable",
    "ClockStream",
    "GpuDescription",
    "GraphicsClocks",
    "PowerLimits",
    "StreamedReadings",
]
