"""Compares a library with the table, without changing a GPU."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from ctypes import byref, c_uint, c_void_p, create_string_buffer
from typing import Any

from nvml_simulator.contract.function_parameters import (
    SUCCESS,
    UNINITIALIZED,
    ArgumentProperties,
    Device,
    MigDeviceHandle,
    Parameter,
    Pointer,
    Text,
)
from nvml_simulator.contract.functions import ALLOWED_UNINITIALIZED, FUNCTIONS
from nvml_simulator.contract.invalid_calls import NULL_HANDLE, invalid_calls


class FunctionCaller:
    """Calls the table's functions in a library with valid arguments, some of which can be replaced.

    Args:
        library: A loaded ``libnvidia-ml.so.1``.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._device = c_void_p()
        self._mig_device = c_void_p()
        self._gpu = ArgumentProperties(b"", b"", b"", 0, 0, 0, 1)

    def read_properties(self, pid: int) -> None:
        """Read the properties of GPU 0 from the initialized library.

        Args:
            pid: Pid of a running process.
        """
        self._library.nvmlDeviceGetHandleByIndex_v2(0, byref(self._device))
        self._library.nvmlDeviceGetMigDeviceHandleByIndex(self._device, 0, byref(self._mig_device))
        texts = {name: create_string_buffer(96) for name in ("UUID", "Serial")}
        for name, text in texts.items():
            getattr(self._library, f"nvmlDeviceGet{name}")(self._device, text, 30 if name == "Serial" else 96)
        pci = create_string_buffer(68)
        self._library.nvmlDeviceGetPciInfo_v3(self._device, pci)
        memory, graphics, limit = c_uint(), c_uint(), c_uint()
        self._library.nvmlDeviceGetMaxClockInfo(self._device, 2, byref(memory))
        self._library.nvmlDeviceGetMaxClockInfo(self._device, 0, byref(graphics))
        self._library.nvmlDeviceGetPowerManagementDefaultLimit(self._device, byref(limit))
        bus_id = pci.raw[36:68].split(b"\0")[0]
        self._gpu = ArgumentProperties(
            texts["UUID"].value, texts["Serial"].value, bus_id, memory.value, graphics.value, limit.value, pid
        )

    @property
    def has_mig_device(self) -> bool:
        """Whether GPU 0 has a MIG device."""
        return self._mig_device.value is not None

    def call(self, name: str, replacements: dict[int, Callable[[], Any]] | None = None) -> int:
        """Call a function and return its code.

        Args:
            name: Name in `FUNCTIONS`.
            replacements: By position, makers of arguments that replace the valid ones.
        """
        arguments: list[Any] = []
        for parameter in FUNCTIONS[name].parameters:
            arguments.extend(self._valid(parameter))
        for position, make in (replacements or {}).items():
            arguments[position] = make()
        return int(getattr(self._library, name)(*arguments))

    def _valid(self, parameter: Parameter) -> list[Any]:
        if isinstance(parameter, Device):
            return [self._device]
        if isinstance(parameter, MigDeviceHandle):
            return [self._mig_device]
        if isinstance(parameter, Pointer):
            return [byref(parameter.make())]
        if isinstance(parameter, Text):
            return [create_string_buffer(parameter.bytes), c_uint(parameter.bytes)]
        return [parameter.make(self._gpu)]


def differences(library: ctypes.CDLL) -> Iterator[str]:
    """Return how an initialized library differs from the table.

    Functions that change a GPU are skipped. So are null handles on a real NVML: driver 580
    documents an error for them but crashes.
    """
    simulated = hasattr(library, "wattloopSimulatorTime")
    caller = FunctionCaller(library)
    caller.read_properties(os.getpid())
    reads = {
        name
        for name, function in FUNCTIONS.items()
        if not function.changes and (caller.has_mig_device or not function.needs_mig)
    }
    for name in sorted(reads - {"nvmlInit_v2", "nvmlInitWithFlags", "nvmlErrorString", "nvmlShutdown"}):
        if (code := caller.call(name)) != SUCCESS:
            yield f"{name}, valid arguments: returned {code}, expected {SUCCESS}"
    for case in invalid_calls():
        if case.function not in reads or (case.mistake == NULL_HANDLE and not simulated):
            continue
        if (code := caller.call(case.function, case.replacements)) != case.code:
            yield f"{case}: returned {code}, expected {case.code}"
    library.nvmlShutdown()
    for name in sorted(reads - ALLOWED_UNINITIALIZED):
        if (code := caller.call(name)) != UNINITIALIZED:
            yield f"{name}, not initialized: returned {code}, expected {UNINITIALIZED}"
