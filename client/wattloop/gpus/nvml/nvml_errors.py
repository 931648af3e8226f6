"""NVML's errors as exceptions whose text names the GPU, the call and the next step."""

from wattloop.errors import OperationError

INVALID_ARGUMENT = 2
NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
DRIVER_NOT_LOADED = 9
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
RESET_REQUIRED = 16
VERSION_MISMATCH = 18
GPU_NOT_FOUND = 28


class NvmlError(OperationError):
    """An NVML call failed.

    Attributes:
        code: NVML's return code.
        gpu: UUID of the GPU concerned; None if the call concerns no GPU.
        next_step: What to do about it.
    """

    next_step = "see NVML's documentation of this call"

    def __init__(self, call: str, code: int, text: str, *, gpu: str | None = None, next_step: str = "") -> None:
        self.next_step = next_step or self.next_step
        self.call = call
        self.code = code
        self.text = text
        self.gpu = gpu
        on = f"GPU {gpu}: " if gpu else ""
        super().__init__(f"{on}{call}: {text} (NVML code {code}); {self.next_step}")


class NoPermission(NvmlError):  # noqa: N818 - named after NVML's code
    """The process lacks the privilege: changing a GPU needs root, and in a container CAP_SYS_ADMIN."""

    next_step = "changing a GPU needs root (in a container CAP_SYS_ADMIN), as the agent of a node has"


class NotSupported(NvmlError):  # noqa: N818
    """The GPU or its driver does not support the call."""

    next_step = "this GPU or its driver does not support the call"


class InvalidArgument(NvmlError):  # noqa: N818
    """A value is outside the range that the GPU accepts."""

    next_step = "use a value within the ranges that the GPU reports"


class GpuNotFound(NvmlError):  # noqa: N818
    """No GPU of that UUID or index is visible to this process."""

    next_step = "nvidia-smi -L lists the GPUs of this machine; a container sees only its own"


class GpuLost(NvmlError):  # noqa: N818
    """The GPU has fallen off the bus, or needs a reset. No call on it succeeds."""

    next_step = "move its workloads to another GPU, then reset it or restart the machine"


class LibraryMissing(NvmlError):  # noqa: N818
    """NVML is not available on this machine: no binding, no library, no driver, or versions that do not match."""

    next_step = "install the NVIDIA driver, or use simulated GPUs"


_KINDS: dict[int, type[NvmlError]] = {
    INVALID_ARGUMENT: InvalidArgument,
    NOT_SUPPORTED: NotSupported,
    NO_PERMISSION: NoPermission,
    NOT_FOUND: GpuNotFound,
    DRIVER_NOT_LOADED: LibraryMissing,
    LIBRARY_NOT_FOUND: LibraryMissing,
    FUNCTION_NOT_FOUND: NotSupported,
    GPU_IS_LOST: GpuLost,
    RESET_REQUIRED: GpuLost,
    VERSION_MISMATCH: LibraryMissing,
    GPU_NOT_FOUND: GpuNotFound,
}


def nvml_error(call: str, code: int, text: str, *, gpu: str | None = None) -> NvmlError:
    """The error for a return code, of the class for that code.

    Example:
        >>> print(nvml_error("nvmlDeviceGetPowerUsage", 15, "GPU is lost", gpu="GPU-1"))
        GPU GPU-1: nvmlDeviceGetPowerUsage: GPU is lost (NVML code 15); move its workloads to another GPU, then \
reset it or restart the machine
    """
    return _KINDS.get(code, NvmlError)(call, code, text, gpu=gpu)
