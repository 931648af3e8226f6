"""Parameters of NVML functions: their kinds, and how to make a valid argument of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

# NVML return codes.
SUCCESS = 0
UNINITIALIZED = 1
INVALID_ARGUMENT = 2
NOT_SUPPORTED = 3
NOT_FOUND = 6
INSUFFICIENT_SIZE = 7
FUNCTION_NOT_FOUND = 13
ARGUMENT_VERSION_MISMATCH = 25


@dataclass(frozen=True)
class Device:
    """Handle of GPU 0."""


@dataclass(frozen=True)
class MigDeviceHandle:
    """Handle of the first MIG device of GPU 0."""


@dataclass(frozen=True)
class Pointer:
    """Pointer to a result or a structure; NULL is invalid.

    Attributes:
        make: Makes the object that it points to.
    """

    make: Callable[[], Any]


@dataclass(frozen=True)
class Text:
    """A buffer and its size, two parameters; NULL is invalid, as is a size of 1 unless it truncates.

    Attributes:
        bytes: Sufficient size by NVML's documentation.
        truncates: Whether the function truncates the text to the buffer.
    """

    bytes: int
    truncates: bool = False


@dataclass(frozen=True)
class Value:
    """A value, or a pointer that may be NULL.

    Attributes:
        make: Makes a valid value from the properties of GPU 0.
    """

    make: Callable[[ArgumentProperties], Any]


@dataclass(frozen=True)
class ArgumentProperties:
    """Properties of GPU 0 that valid arguments need."""

    uuid: bytes
    serial: bytes
    bus_id: bytes
    memory_clock: int
    graphics_clock: int
    power_limit_milliwatts: int
    pid: int


Parameter = Device | MigDeviceHandle | Pointer | Text | Value


@dataclass(frozen=True)
class Function:
    """An NVML function.

    Attributes:
        parameters: Its parameters, in order.
        changes: Whether it changes a GPU and so requires permission.
        needs_mig: Whether it fails unless GPU 0 has MIG devices.
    """

    parameters: tuple[Parameter, ...]
    changes: bool = False
    needs_mig: bool = False
