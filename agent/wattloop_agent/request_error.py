"""The error of a refused request: a reason for programs and a message for people."""

from __future__ import annotations

import enum


class Reason(enum.StrEnum):
    """The reasons listed in docs/agent.md; reasons are only added."""

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
    """A refused request. It had no effect.

    Attributes:
        reason: For programs.
        message: For people: what is wrong, and what to do.
    """

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message


def error_answer(refusal: RequestError) -> dict[str, object]:
    """The answer to a refused request."""
    return {"error": {"reason": str(refusal.reason), "message": refusal.message}}
