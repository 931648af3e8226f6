"""Access to pynvml: loads it on first use, and converts its errors to exceptions that name GPU, call and next step."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wattloop.errors import OperationError
from wattloop.installation import how_to_install

if TYPE_CHECKING:
    from types import ModuleType

DRIVER_MODULE = Path("/sys/module/nvidia")
PID_NAMESPACE = Path("/proc/self/ns/pid")
# The kernel's own, PROC_PID_INIT_INO of include/linux/proc_ns.h; a container has another one, or that of its host.
FIRST_PID_NAMESPACE = "pid:[4026531836]"

LIBRARY_NOT_FOUND = 12


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
    2: InvalidArgument,  # INVALID_ARGUMENT
    3: NotSupported,  # NOT_SUPPORTED
    4: NoPermission,  # NO_PERMISSION
    6: GpuNotFound,  # NOT_FOUND
    9: LibraryMissing,  # DRIVER_NOT_LOADED
    LIBRARY_NOT_FOUND: LibraryMissing,
    13: NotSupported,  # FUNCTION_NOT_FOUND
    15: GpuLost,  # GPU_IS_LOST
    16: GpuLost,  # RESET_REQUIRED
    18: LibraryMissing,  # VERSION_MISMATCH
    28: GpuNotFound,  # GPU_NOT_FOUND
}


def nvml_error(call: str, code: int, text: str, *, gpu: str | None = None) -> NvmlError:
    """The error for a return code, of the class for that code.

    Example:
        >>> print(nvml_error("nvmlDeviceGetPowerUsage", 15, "GPU is lost", gpu="GPU-1"))
        GPU GPU-1: nvmlDeviceGetPowerUsage: GPU is lost (NVML code 15); move its workloads to another GPU, then \
reset it or restart the machine
    """
    return _KINDS.get(code, NvmlError)(call, code, text, gpu=gpu)


@cache
def binding() -> ModuleType:
    """The pynvml module.

    Raises:
        LibraryMissing: pynvml is not installed.
    """
    try:
        import pynvml  # noqa: PLC0415 - the bare client must import without it
    except ImportError as error:
        raise LibraryMissing(
            "import pynvml",
            LIBRARY_NOT_FOUND,
            "the Python binding is not installed",
            next_step=how_to_install("nvml"),
        ) from error
    module: ModuleType = pynvml
    return module


def invoke(call: str, *arguments: object, gpu: str | None = None) -> Any:
    """Call a function of pynvml.

    Raises:
        NvmlError: NVML returned an error; of the subclass for its code.
    """
    pynvml = binding()
    try:
        return getattr(pynvml, call)(*arguments)
    except pynvml.NVMLError as error:
        raise nvml_error(call, int(error.value), str(error), gpu=gpu) from error


def simulated_clock_nanoseconds(handle: object | None) -> int | None:
    """The simulator's time if the loaded library is Wattloop's simulator, else None.

    Args:
        handle: Handle of a GPU, for that GPU's time; None for the machine's.
    """
    function = _simulator_function("wattloopSimulatorTime", binding().nvmlLib)
    if function is None:
        return None
    nanoseconds = ctypes.c_ulonglong()
    code = function(handle, ctypes.byref(nanoseconds))
    if code != 0:
        raise nvml_error("wattloopSimulatorTime", code, "the simulator's clock is not readable")
    return nanoseconds.value


def simulated_driver_starts() -> int | None:
    """Number of starts of the simulated driver; None if the library is not the simulator, or the call fails."""
    function = _simulator_function("wattloopSimulatorDriverStarts", binding().nvmlLib)
    starts = ctypes.c_ulonglong()
    if function is None or function(ctypes.byref(starts)) != 0:
        return None
    return starts.value


def lists_all_processes(module: Path = DRIVER_MODULE, namespace: Path = PID_NAMESPACE) -> bool:
    """Whether NVML lists the processes of the whole machine, with the pids that this process knows them by.

    In a container with PIDs of its own, drivers list its own processes alone, or all with PIDs of the host. Under WSL
    the driver is not one of this kernel. Simulated GPUs behave as recent drivers.
    """
    function = _simulator_function("wattloopSimulatorListsAllProcesses", binding().nvmlLib)
    if function is not None:
        lists_all = ctypes.c_uint()
        return function(ctypes.byref(lists_all)) == 0 and bool(lists_all.value)
    try:
        return str(namespace.readlink()) == FIRST_PID_NAMESPACE and module.exists()
    except OSError:
        return False


@cache
def _simulator_function(name: str, library: Any) -> Any:
    # Cached: the linker's search for a symbol that a real library lacks takes longer than a reading.
    return getattr(library, name, None)


def driver_load(module: Path = DRIVER_MODULE) -> str | None:
    """An id of this load of the driver, unique within one boot; energy counters count from the load.

    The id is the inode number of the module's folder in sysfs. The kernel creates the folder when it
    loads the module, shows it in containers too, and never reuses the number (kernfs: "use 64bit inos
    if ino_t is 64bit", Linux 5.5; cyclically since 4.13). Simulated GPUs use the simulator's count of
    driver starts.

    Returns:
        The id; None if it is unknown, as under WSL, where the driver is not a module of this kernel.

    Example:
        >>> from wattloop.gpus.nvml import LibraryMissing
        >>> driver_load(Path("/sys/module/no-such-module")) is None
        True
    """
    starts = simulated_driver_starts()
    if starts is not None:
        return f"simulated {starts}"
    try:
        return f"module {module.stat().st_ino}"
    except OSError:
        return None
