"""What can become of a request in place of a result: no agent, or an agent that says no."""

from __future__ import annotations

from wattloop.errors import OperationError, WattloopError


class AgentUnavailable(OperationError):  # noqa: N818 - it is a state of the node, not a mistake of the caller
    """No agent answers at the socket: none runs, it is starting again, or it does not answer in time."""


class AgentDisconnected(AgentUnavailable):
    """The other end of an open connection is gone."""


class AgentRequestError(WattloopError):
    """The agent answered, and said no. Nothing was changed on any GPU of the request.

    Attributes:
        reason: One of docs/agent.md's reasons: ``NotYours``, ``OutOfRange``, ``UnknownGpu``, ``NotPermitted``,
            ``NotSupported``, ``BadRequest``, ``Unavailable``, ….
        message: What was wrong and what would be right.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"the agent refused: {message} ({reason})")
        self.reason = reason
        self.message = message
