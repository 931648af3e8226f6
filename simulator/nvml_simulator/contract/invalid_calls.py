"""Invalid calls of each function, and the NVML codes documented for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from ctypes import byref, c_char_p, c_int, c_uint, c_void_p
from dataclasses import dataclass
from typing import Any

from nvml_simulator.contract.function_parameters import (
    ARGUMENT_VERSION_MISMATCH,
    FUNCTION_NOT_FOUND,
    INSUFFICIENT_SIZE,
    INVALID_ARGUMENT,
    NOT_FOUND,
    NOT_SUPPORTED,
    Device,
    MigDeviceHandle,
    Pointer,
    Text,
)
from nvml_simulator.contract.functions import FUNCTIONS

NULL_HANDLE = "null handle"


@dataclass(frozen=True)
class InvalidCall:
    """A call with one invalid argument, and the code that NVML documents for it.

    Attributes:
        function: Name of the function.
        mistake: Description of the mistake.
        replacements: By position, makers of the invalid arguments.
        code: Expected NVML code.
    """

    function: str
    mistake: str
    replacements: dict[int, Callable[[], Any]]
    code: int

    def __str__(self) -> str:
        """Return function and mistake, as the name of the test case."""
        return f"{self.function}, {self.mistake}"


def _invalid(function: str, mistake: str, position: int, make: Callable[[], Any], code: int) -> InvalidCall:
    return InvalidCall(function, mistake, {position: make}, code)


_SPECIFIC = (
    _invalid("nvmlDeviceGetHandleByIndex_v2", "index past the last", 0, lambda: c_uint(4096), INVALID_ARGUMENT),
    _invalid("nvmlDeviceGetHandleByUUID", "unknown UUID", 0, lambda: c_char_p(b"GPU-0"), NOT_FOUND),
    _invalid("nvmlDeviceGetHandleByUUID", "no UUID", 0, c_char_p, INVALID_ARGUMENT),
    _invalid("nvmlDeviceGetHandleByPciBusId_v2", "unknown bus id", 0, lambda: c_char_p(b"0000:ee:1f.0"), NOT_FOUND),
    _invalid("nvmlDeviceGetHandleByPciBusId_v2", "no bus id", 0, c_char_p, INVALID_ARGUMENT),
    _invalid("nvmlDeviceGetHandleBySerial", "unknown serial", 0, lambda: c_char_p(b"77"), NOT_FOUND),
    _invalid("nvmlDeviceGetHandleBySerial", "no serial", 0, c_char_p, INVALID_ARGUMENT),
    _invalid("nvmlSystemGetProcessName", "no such process", 0, lambda: c_uint(2**31 - 7), NOT_FOUND),
    _invalid("nvmlDeviceGetMemoryInfo_v2", "unknown version", 1, c_uint * 10, FUNCTION_NOT_FOUND),
    _invalid("nvmlDeviceGetTemperature", "unknown sensor", 1, lambda: c_uint(99), INVALID_ARGUMENT),
    _invalid("nvmlDeviceGetTemperatureV", "unknown version", 1, c_uint * 3, ARGUMENT_VERSION_MISMATCH),
    _invalid("nvmlDeviceGetFieldValues", "no fields", 1, lambda: c_int(0), INVALID_ARGUMENT),
    _invalid("nvmlDeviceGetSupportedMemoryClocks", "no room", 1, lambda: byref(c_uint()), INSUFFICIENT_SIZE),
    _invalid("nvmlDeviceGetSupportedGraphicsClocks", "no room", 2, lambda: byref(c_uint()), INSUFFICIENT_SIZE),
    _invalid("nvmlDeviceGetSupportedGraphicsClocks", "unknown memory clock", 1, lambda: c_uint(7), NOT_FOUND),
    _invalid("nvmlDeviceGetClockInfo", "unknown clock", 1, lambda: c_uint(99), NOT_SUPPORTED),
    _invalid("nvmlDeviceGetMaxClockInfo", "unknown clock", 1, lambda: c_uint(99), INVALID_ARGUMENT),
    _invalid("nvmlDeviceGetClock", "unknown clock", 1, lambda: c_uint(99), NOT_SUPPORTED),
    _invalid("nvmlDeviceGetClock", "unknown id", 2, lambda: c_uint(99), INVALID_ARGUMENT),
    _invalid("nvmlDeviceGetApplicationsClock", "unknown clock", 1, lambda: c_uint(99), INVALID_ARGUMENT),
    _invalid("nvmlDeviceSetPowerManagementLimit", "below the range", 1, lambda: c_uint(1000), INVALID_ARGUMENT),
    _invalid("nvmlDeviceSetPowerManagementLimit", "above the range", 1, lambda: c_uint(10**7), INVALID_ARGUMENT),
    _invalid("nvmlDeviceSetPowerManagementLimit_v2", "unknown version", 1, c_uint * 3, ARGUMENT_VERSION_MISMATCH),
    _invalid(
        "nvmlDeviceSetPowerManagementLimit_v2",
        "below the range",
        1,
        lambda: (c_uint * 3)(12 | 2 << 24, 0, 1000),
        INVALID_ARGUMENT,
    ),
    _invalid("nvmlDeviceSetGpuLockedClocks", "minimum above maximum", 1, lambda: c_uint(9999), INVALID_ARGUMENT),
    _invalid("nvmlDeviceSetMemoryLockedClocks", "minimum above maximum", 1, lambda: c_uint(9999), INVALID_ARGUMENT),
    _invalid("nvmlDeviceSetApplicationsClocks", "no such memory clock", 1, lambda: c_uint(7), INVALID_ARGUMENT),
    _invalid("nvmlDeviceSetApplicationsClocks", "no such graphics clock", 2, lambda: c_uint(7), INVALID_ARGUMENT),
    _invalid("nvmlDeviceGetMigDeviceHandleByIndex", "no such MIG device", 1, lambda: c_uint(6), NOT_FOUND),
    _invalid("nvmlDeviceSetPersistenceMode", "neither on nor off", 1, lambda: c_uint(2), INVALID_ARGUMENT),
)


def invalid_calls() -> Iterator[InvalidCall]:
    """Yield null handles, null pointers, small buffers, and the cases specific to a function."""
    for name, function in FUNCTIONS.items():
        position = 0
        for parameter in function.parameters:
            if isinstance(parameter, Device | MigDeviceHandle):
                yield _invalid(name, NULL_HANDLE, position, c_void_p, INVALID_ARGUMENT)
            elif isinstance(parameter, Pointer):
                yield _invalid(name, f"null pointer, argument {position}", position, c_void_p, INVALID_ARGUMENT)
            elif isinstance(parameter, Text):
                yield _invalid(name, "null buffer", position, c_void_p, INVALID_ARGUMENT)
                if not parameter.truncates:
                    yield _invalid(name, "buffer too small", position + 1, lambda: c_uint(1), INSUFFICIENT_SIZE)
            position += 2 if isinstance(parameter, Text) else 1
    yield from _SPECIFIC
