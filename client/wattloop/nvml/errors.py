"""What NVML refused, said with the GPU, the call and what to do about it."""

from __future__ import annotations

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
        call: NVML's function, as in ``nvmlDeviceSetPowerManagementLimit``.
        code: NVML's return code.
        text: NVML's words for it.
        gpu: UUID of the GPU it was about; None where it was about none.
    """

    next_step = "see NVML's documentation of this call"

    def __init__(self, call: str, code: int, text: str, *, gpu: str | None = None) -> None:
        self.call = call
        self.code = code
        self.text = text
        self.gpu = gpu
        on = f"GPU {gpu}: " if gpu else ""
        super().__init__(f"{on}{call}: {text} (NVML code {code}); {self.next_step}")


class NoPermission(NvmlError):  # noqa: N818 - reads as what NVML answered
    """The process may not do this: changing a GPU needs root, and in a container CAP_SYS_ADMIN."""

    next_step = "changing a GPU needs root (in a container CAP_SYS_ADMIN); ask the Wattloop agent for it instead"


class NotSupported(NvmlError):  # noqa: N818
    """This GPU, or this driver, does not offer it."""

    next_step = "this GPU or its driver does not offer it; go on without"


class InvalidArgument(NvmlError):  # noqa: N818
    """A value is outside of what the GPU accepts."""

    next_step = "give a value within the ranges that the GPU states"


class GpuNotFound(NvmlError):  # noqa: N818
    """No GPU of that UUID or index is visible to this process."""

    next_step = "nvidia-smi -L lists the GPUs of this machine; a container sees its own alone"


class GpuLost(NvmlError):  # noqa: N818
    """The GPU has fallen off the bus, or needs a reset: it answers nothing any more."""

    next_step = "take its work elsewhere, then reset the GPU or restart the machine"


class LibraryMissing(NvmlError):  # noqa: N818
    """NVML cannot be used on this machine at all: no binding, no library, no driver, or two that do not fit."""

    next_step = "install the NVIDIA driver (and nvidia-ml-py: pip install 'wattloop[agent]'), or use simulated GPUs"


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
    """The error of the class that fits the code.

    Example:
        >>> print(nvml_error("nvmlDeviceGetPowerUsage", 15, "GPU is lost", gpu="GPU-1"))
        GPU GPU-1: nvmlDeviceGetPowerUsage: GPU is lost (NVML code 15); take its work elsewhere, then reset the GPU or \
restart the machine
    """
    return _KINDS.get(code, NvmlError)(call, code, text, gpu=gpu)
