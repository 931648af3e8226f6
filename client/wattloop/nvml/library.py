"""The way into pynvml: loaded when first used, its errors turned into ours."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import TYPE_CHECKING, Any

from wattloop.nvml.errors import LIBRARY_NOT_FOUND, LibraryMissing, nvml_error

if TYPE_CHECKING:
    from types import ModuleType


@cache
def binding() -> ModuleType:
    """The pynvml module.

    Raises:
        LibraryMissing: It is not installed.
    """
    try:
        import pynvml  # noqa: PLC0415 - the bare client must import without it
    except ImportError as error:
        raise LibraryMissing("import pynvml", LIBRARY_NOT_FOUND, "the Python binding is not installed") from error
    module: ModuleType = pynvml
    return module


def invoke(call: str, *arguments: object, gpu: str | None = None) -> Any:
    """Calls a function of pynvml.

    Args:
        call: pynvml's function.
        arguments: What it takes.
        gpu: UUID of the GPU it is about, for the error.

    Raises:
        NvmlError: NVML refused; of the subclass that says how.
    """
    pynvml = binding()
    try:
        return getattr(pynvml, call)(*arguments)
    except pynvml.NVMLError as error:
        raise nvml_error(call, int(error.value), str(error), gpu=gpu) from error


def simulated_clock_nanoseconds(handle: object | None) -> int | None:
    """The simulator's time where the loaded library is Wattloop's simulated one, else None.

    Args:
        handle: Of a GPU, for its own time; None for the machine's.
    """
    function = _simulators("wattloopSimulatorTime", binding().nvmlLib)
    if function is None:
        return None
    nanoseconds = ctypes.c_ulonglong()
    code = function(handle, ctypes.byref(nanoseconds))
    if code != 0:
        raise nvml_error("wattloopSimulatorTime", code, "the simulator does not tell the time")
    return nanoseconds.value


def simulated_driver_starts() -> int | None:
    """How often the simulator's driver was started; None: the loaded library is none of ours, or does not say now."""
    function = _simulators("wattloopSimulatorDriverStarts", binding().nvmlLib)
    starts = ctypes.c_ulonglong()
    if function is None or function(ctypes.byref(starts)) != 0:
        return None
    return starts.value


@cache
def _simulators(name: str, library: Any) -> Any:
    # The linker's search for what a real library does not have takes longer than a reading.
    return getattr(library, name, None)
