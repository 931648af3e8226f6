"""Why a request is refused: a reason a program can act on, a message a person can."""

from __future__ import annotations

import enum


class Reason(enum.StrEnum):
    """The reasons of docs/agent.md; the list only grows."""

    BAD_REQUEST = "BadRequest"
    NOT_YOURS = "NotYours"
    SHARED = "Shared"
    UNKNOWN_GPU = "UnknownGpu"
    OUT_OF_RANGE = "OutOfRange"
    NOT_SUPPORTED = "NotSupported"
    NOT_PERMITTED = "NotPermitted"
    NO_DRIVER = "NoDriver"
    GPU_LOST = "GpuLost"
    DEVICE_FAILED = "DeviceFailed"
    STATE_NOT_DURABLE = "StateNotDurable"
    NOT_RESTORED = "NotRestored"
    UNAVAILABLE = "Unavailable"
    TOO_MANY = "TooMany"
    ANOTHER_AGENT = "AnotherAgent"
    CONNECTION_CLOSED = "ConnectionClosed"


class RequestError(Exception):
    """A request that is answered with no. Nothing of it was done.

    Attributes:
        reason: For programs.
        message: For people: what was wrong, what would be right.
    """

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message


def error_answer(refusal: RequestError) -> dict[str, object]:
    """The answer's JSON form."""
    return {"error": {"reason": str(refusal.reason), "message": refusal.message}}
