"""Calls a library as the table says."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import byref, c_uint, c_void_p, create_string_buffer
from typing import Any

from nvml_simulator.contract.functions import FUNCTIONS
from nvml_simulator.contract.parameters import Device, MigDevice, Parameter, Pointer, Text, Truth


class Caller:
    """Calls the functions of the table in a library, with right arguments but for those that are replaced.

    Args:
        library: A loaded ``libnvidia-ml.so.1``.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._device = c_void_p()
        self._mig_device = c_void_p()
        self._truth = Truth(b"", b"", b"", 0, 0, 0, 1)

    def learn(self, pid: int) -> None:
        """Asks the library itself, initialised, what the right arguments for GPU 0 are.

        Args:
            pid: Of a process that lives.
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
        self._truth = Truth(
            texts["UUID"].value, texts["Serial"].value, bus_id, memory.value, graphics.value, limit.value, pid
        )

    @property
    def has_mig_device(self) -> bool:
        """Whether GPU 0 has any."""
        return self._mig_device.value is not None

    def call(self, name: str, replaced: dict[int, Callable[[], Any]] | None = None) -> int:
        """The code that a function answers.

        Args:
            name: In `FUNCTIONS`.
            replaced: By position, arguments to use in place of the right ones.
        """
        arguments: list[Any] = []
        for parameter in FUNCTIONS[name].parameters:
            arguments.extend(self._right(parameter))
        for position, make in (replaced or {}).items():
            arguments[position] = make()
        return int(getattr(self._library, name)(*arguments))

    def _right(self, parameter: Parameter) -> list[Any]:
        if isinstance(parameter, Device):
            return [self._device]
        if isinstance(parameter, MigDevice):
            return [self._mig_device]
        if isinstance(parameter, Pointer):
            return [byref(parameter.make())]
        if isinstance(parameter, Text):
            return [create_string_buffer(parameter.bytes), c_uint(parameter.bytes)]
        return [parameter.make(self._truth)]
