"""The error of a refused request, and every reason for which the agent itself refuses a power limit or a clock.

A request to hold or release passes the functions below in this order: the caller has the GPU for itself, the
GPUPowerPolicies admit its namespace and the value, no other owner holds the GPU, the value is within the ranges of
the device and the administrator, and the lease can be stored. The driver's errors are added by `nvml_gpus`.
"""

import enum
from collections.abc import Iterable, Sequence
from pathlib import Path

from wattloop_agent.gpu_setting import GpuSetting


class Reason(enum.StrEnum):
    """The reasons listed in docs/internals/agent.md; reasons are only added."""

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


def not_assigned(owner: str, gpus: Iterable[str], own: Iterable[str]) -> RequestError:
    """The caller may not use these GPUs; it has others, or none."""
    assigned = ", ".join(sorted(own)) or "none"
    return RequestError(Reason.NOT_YOURS, f"GPU {', '.join(gpus)}: not assigned to {owner}, which has {assigned}")


def shared(gpus: Iterable[str]) -> RequestError:
    """Other pods use these GPUs too."""
    return RequestError(
        Reason.SHARED,
        f"GPU {', '.join(gpus)}: shared by time slicing or MIG, so a limit would affect its other users; "
        "request an exclusive GPU",
    )


def policies_unknown(problem: str) -> RequestError:
    """The file of the policies can't be read."""
    return RequestError(
        Reason.UNAVAILABLE,
        f"it is unknown which limits GPUPowerPolicies allow ({problem}); the operator sends them again, "
        "or an administrator repairs or removes the file and restarts the agent",
    )


def namespace_not_admitted(gpu: str, policy: str, admitted: Sequence[str], namespace: str | None) -> RequestError:
    """A policy of the GPU does not admit the caller's namespace (None: the caller is no pod)."""
    refused = f"pods of namespace {namespace}" if namespace else "processes outside of pods"
    return RequestError(
        Reason.NOT_PERMITTED,
        f"GPU {gpu}: GPUPowerPolicy {policy} lets pods of {', '.join(admitted)} ask for "
        f"limits and clocks, not {refused}; an administrator can add it to the policy's namespaces",
    )


def out_of_range(
    gpu: str, setting: GpuSetting, value: float, ranges: Sequence[str], how: str = "is out of range"
) -> RequestError:
    """The value is not within these ranges, which are in words."""
    return RequestError(
        Reason.OUT_OF_RANGE, f"GPU {gpu}: a {setting.label} of {value:g} {setting.unit} {how}: {', '.join(ranges)}"
    )


def held_by_another(gpu: str, setting: GpuSetting, owner: str) -> RequestError:
    """Another owner holds a setting of the GPU."""
    return RequestError(
        Reason.NOT_YOURS, f"GPU {gpu}: {owner} holds its {setting.label} until it releases it or is gone"
    )


def not_stored(path: Path, error: OSError) -> RequestError:
    """A lease can't be stored, so that a crash would leave the GPU changed."""
    return RequestError(
        Reason.STATE_NOT_DURABLE,
        f"{path}: leases can't be stored there ({error.strerror}), so no GPU is changed; "
        "the state folder must be writable, with space left",
    )


def folder_in_use(folder: Path) -> RequestError:
    """Another agent uses the state folder."""
    return RequestError(
        Reason.STATE_NOT_DURABLE, f"{folder}: another agent uses this state folder; only one agent may run per node"
    )


def node_in_use(path: Path, holder: str) -> RequestError:
    """Another power controller has the node's lock."""
    return RequestError(
        Reason.ANOTHER_AGENT,
        f"another power controller holds this node's GPUs ({holder or 'it left no note'}; {path}); "
        "only one agent may run per node: this one changes nothing and takes over when the other ends",
    )


def node_not_locked(path: Path, error: OSError) -> RequestError:
    """It is unknown whether another power controller runs."""
    return RequestError(
        Reason.STATE_NOT_DURABLE,
        f"{path}: can't be locked ({error.strerror}), so another power controller might hold the same GPUs and "
        "none is changed; choose another folder with --lock-directory",
    )


def not_restored(gpus: Iterable[str]) -> RequestError:
    """A released GPU still has the held value."""
    return RequestError(Reason.NOT_RESTORED, f"GPU {', '.join(gpus)}: not restored yet; the agent keeps trying")
