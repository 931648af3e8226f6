"""What the agent answers, as data: each verb's entries and how they are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class PowerLimits:
    """The power limits of one GPU, in watts.

    Attributes:
        found_watts: The limit before the agent held any: what the GPU goes back to.
        current_watts: The limit set now.
        minimum_watts: The least that the device accepts.
        maximum_watts: The most that the device accepts.
        default_watts: The vendor's default.
        allowed_watts: The least and the most that the caller may ask for, within what the device accepts; None: it may
            ask for none at all.
    """

    found_watts: float
    current_watts: float
    minimum_watts: float
    maximum_watts: float
    default_watts: float
    allowed_watts: tuple[float, float] | None = None


@dataclass(frozen=True)
class GpuDescription:
    """One GPU that the caller may use; ``power_limits`` is None where the device has none to set."""

    uuid: str
    name: str
    index: int
    power_limits: PowerLimits | None


@dataclass(frozen=True)
class EnergyReading:
    """The energy counter of one GPU.

    Attributes:
        uuid: The GPU.
        energy_millijoules: Cumulative: only differences of two readings mean anything.
        time_seconds: The clock that the energy was integrated on: CLOCK_BOOTTIME on real GPUs, the simulator's own
            clock on simulated ones. Again only differences mean anything.
    """

    uuid: str
    energy_millijoules: int
    time_seconds: float


@dataclass(frozen=True)
class HeldLimit:
    """A power limit that the agent holds for the caller.

    Attributes:
        uuid: The GPU.
        found_watts: What the GPU goes back to.
        held_watts: What was asked for and set.
        enforced_watts: What the device says that it enforces, read back after the change; another actor may win.
    """

    uuid: str
    found_watts: float
    held_watts: float
    enforced_watts: float


@dataclass(frozen=True)
class HeldClock:
    """A clock that the agent holds locked for the caller, at the supported step nearest to what was asked for."""

    uuid: str
    held_megahertz: float


@dataclass(frozen=True)
class LeaseDescription:
    """A setting of a GPU that the agent holds.

    Attributes:
        uuid: The GPU.
        setting: ``power_limit`` (values in watts), ``graphics_clock`` or ``memory_clock`` (in megahertz).
        found: What it goes back to; None: not locked.
        held: What is held.
        owner: Whose it is, as the agent names owners.
        yours: Whether the caller is that owner.
    """

    uuid: str
    setting: str
    found: float | None
    held: float | None
    owner: str
    yours: bool


def gpu_of(entry: Mapping[str, Any]) -> GpuDescription:
    """The GPU of an entry of ``gpus``."""
    limits = entry["power_limits"]
    return GpuDescription(
        uuid=str(entry["uuid"]),
        name=str(entry["name"]),
        index=int(entry["index"]),
        power_limits=None if limits is None else _power_limits(limits),
    )


_LIMITS = ("found_watts", "current_watts", "minimum_watts", "maximum_watts", "default_watts")


def _power_limits(limits: Mapping[str, Any]) -> PowerLimits:
    allowed = limits.get("allowed_watts")
    return PowerLimits(
        **{name: float(limits[name]) for name in _LIMITS},
        allowed_watts=None if allowed is None else (float(allowed[0]), float(allowed[1])),
    )


def reading_of(entry: Mapping[str, Any]) -> EnergyReading:
    """The reading of an entry of ``energy`` or ``subscribe``."""
    return EnergyReading(
        uuid=str(entry["uuid"]),
        energy_millijoules=int(entry["energy_millijoules"]),
        time_seconds=float(entry["time_seconds"]),
    )


def held_limit_of(entry: Mapping[str, Any]) -> HeldLimit:
    """The limit of an entry of ``hold_limit``."""
    return HeldLimit(
        uuid=str(entry["uuid"]),
        found_watts=float(entry["found_watts"]),
        held_watts=float(entry["held_watts"]),
        enforced_watts=float(entry["enforced_watts"]),
    )


def held_clock_of(entry: Mapping[str, Any]) -> HeldClock:
    """The clock of an entry of ``hold_clocks``."""
    return HeldClock(str(entry["uuid"]), float(entry["held_megahertz"]))


def lease_of(entry: Mapping[str, Any]) -> LeaseDescription:
    """The lease of an entry of ``list``."""
    return LeaseDescription(
        uuid=str(entry["uuid"]),
        setting=str(entry["setting"]),
        found=entry["found"],
        held=entry["held"],
        owner=str(entry["owner"]),
        yours=bool(entry["yours"]),
    )
