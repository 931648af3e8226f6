"""What a function of NVML takes: the kinds of parameters, and how a right one is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Device:
    """A handle of GPU 0."""


@dataclass(frozen=True)
class MigDevice:
    """A handle of GPU 0's first MIG device."""


@dataclass(frozen=True)
class Pointer:
    """Where an answer is written to, or a structure is read from; NULL is refused.

    Attributes:
        make: A fresh one of what it points to.
    """

    make: Callable[[], Any]


@dataclass(frozen=True)
class Text:
    """A buffer and its size, two parameters: NULL is refused, and so is a size of 1 where it is cut by no rule.

    Attributes:
        bytes: The size that NVML documents as enough.
        truncates: The text is cut to the buffer instead.
    """

    bytes: int
    truncates: bool = False


@dataclass(frozen=True)
class Value:
    """A plain value. For a pointer that may be NULL, too.

    Attributes:
        make: The value for a right call, from GPU 0's truth.
    """

    make: Callable[[Truth], Any]


@dataclass(frozen=True)
class Truth:
    """What the right calls need to know of GPU 0."""

    uuid: bytes
    serial: bytes
    bus_id: bytes
    memory_clock: int
    graphics_clock: int
    power_limit_milliwatts: int
    pid: int


Parameter = Device | MigDevice | Pointer | Text | Value


@dataclass(frozen=True)
class Function:
    """What a function takes.

    Attributes:
        parameters: In order.
        changes: It changes a GPU, and so needs permission.
        needs_mig: It succeeds only where GPU 0 has MIG devices.
    """

    parameters: tuple[Parameter, ...]
    changes: bool = False
    needs_mig: bool = False
