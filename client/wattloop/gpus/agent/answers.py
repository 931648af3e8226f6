"""The agent's answers as dataclasses, and their parsers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from wattloop.energy.gpu_reading import NOT_ASKED, GpuReading, IntegratedEnergy, OtherUse


@dataclass(frozen=True)
class PowerLimits:
    """The power limits of one GPU, in watts.

    Attributes:
        found_watts: The limit before the agent held one, which it restores on release.
        current_watts: The limit set now.
        minimum_watts: The lowest limit that the device accepts.
        maximum_watts: The highest limit that the device accepts.
        default_watts: The vendor's default.
        allowed_watts: The lowest and the highest limit that the caller may request, within the range of
            the device; None if the caller may request no limit.
    """

    found_watts: float
    current_watts: float
    minimum_watts: float
    maximum_watts: float
    default_watts: float
    allowed_watts: tuple[float, float] | None = None


@dataclass(frozen=True)
class GraphicsClocks:
    """The graphics clocks of one GPU, in megahertz.

    Attributes:
        supported_megahertz: The clocks that the device supports, in ascending order.
        allowed_megahertz: The lowest and the highest clock that the caller may request, within the range of
            the device; None if the caller may request no clock.
    """

    supported_megahertz: tuple[int, ...]
    allowed_megahertz: tuple[float, float] | None = None


@dataclass(frozen=True)
class GpuDescription:
    """One GPU that the caller may use.

    Attributes:
        uuid: Its UUID.
        name: Its product name.
        index: Its index at NVML.
        power_limits: None if the device has no settable limit.
        clocks: None if the device does not report its graphics clocks.
    """

    uuid: str
    name: str
    index: int
    power_limits: PowerLimits | None
    clocks: GraphicsClocks | None = None


@dataclass(frozen=True)
class StreamedReadings:
    """One message of the agent's stream with processors.

    Attributes:
        gpus: The GPUs.
        processor_seconds: The agent's CLOCK_MONOTONIC when the processors were read.
        processor_joules: Cumulative energy of the node's processors and memory, by RAPL zone
            (``package-0``, ``package-0/dram``); empty if the agent cannot read it. A restart of the agent
            restarts it from 0.
    """

    gpus: tuple[GpuReading, ...]
    processor_seconds: float
    processor_joules: Mapping[str, float]


@dataclass(frozen=True)
class HeldLimit:
    """A power limit that the agent holds for the caller.

    Attributes:
        uuid: The GPU.
        found_watts: The limit that is restored on release.
        held_watts: The limit requested and set.
        enforced_watts: The limit that the device enforces, read back after the change; it can be lower
            than the held one because of another actor.
    """

    uuid: str
    found_watts: float
    held_watts: float
    enforced_watts: float


@dataclass(frozen=True)
class HeldClock:
    """A clock that the agent holds locked for the caller, at the supported step nearest to the requested clock."""

    uuid: str
    held_megahertz: float


@dataclass(frozen=True)
class LeaseDescription:
    """A lease: a setting of a GPU that the agent holds for an owner.

    Attributes:
        uuid: The GPU.
        setting: ``power_limit`` (values in watts), ``graphics_clock`` or ``memory_clock`` (in megahertz).
        found: The value that is restored on release; None: not locked.
        held: The value held.
        owner: The owner, as the agent names owners.
        yours: Whether the caller is the owner.
    """

    uuid: str
    setting: str
    found: float | None
    held: float | None
    owner: str
    yours: bool


def gpu_of(entry: Mapping[str, Any]) -> GpuDescription:
    """Parse an entry of ``gpus``."""
    limits, clocks = entry["power_limits"], entry["clocks"]
    return GpuDescription(
        uuid=str(entry["uuid"]),
        name=str(entry["name"]),
        index=int(entry["index"]),
        power_limits=None if limits is None else _power_limits(limits),
        clocks=None if clocks is None else _graphics_clocks(clocks),
    )


_LIMITS = ("found_watts", "current_watts", "minimum_watts", "maximum_watts", "default_watts")


def _power_limits(limits: Mapping[str, Any]) -> PowerLimits:
    return PowerLimits(
        **{name: float(limits[name]) for name in _LIMITS}, allowed_watts=_range(limits.get("allowed_watts"))
    )


def _graphics_clocks(clocks: Mapping[str, Any]) -> GraphicsClocks:
    return GraphicsClocks(
        tuple(int(clock) for clock in clocks["supported_megahertz"]), _range(clocks["allowed_megahertz"])
    )


def _range(bounds: Sequence[float] | None) -> tuple[float, float] | None:
    return None if bounds is None else (float(bounds[0]), float(bounds[1]))


def reading_of(entry: Mapping[str, Any]) -> GpuReading:
    """Parse an entry of ``energy`` or ``subscribe``; its clocks are the agent's."""
    watts, counter, integrated = entry["power_watts"], entry["energy_millijoules"], entry.get("integrated")
    others = entry.get("others")
    return GpuReading(
        uuid=str(entry["uuid"]),
        begin_seconds=float(entry["begin_seconds"]),
        end_seconds=float(entry["end_seconds"]),
        energy_millijoules=None if counter is None else int(counter),
        instant_watts=None if watts is None else float(watts),
        clock_seconds=float(entry["time_seconds"]),
        integrated=None if integrated is None else _integrated(integrated),
        counter=str(entry.get("counter", "")),
        others=NOT_ASKED if others is None else _others(others),
    )


def _others(entry: Mapping[str, Any]) -> OtherUse:
    seconds = entry["seen_seconds"]
    return OtherUse(None if seconds is None else float(seconds), str(entry["seen"]), str(entry["unknown"]))


def _integrated(entry: Mapping[str, Any]) -> IntegratedEnergy:
    return IntegratedEnergy(
        int(entry["energy_millijoules"]),
        float(entry["estimation_error_millijoules"]),
        float(entry["noise_square_millijoules"]),
    )


def entry_of(reading: GpuReading) -> dict[str, object]:
    """The entry of ``energy`` or ``subscribe`` for a reading with a counter, or with power in place of one."""
    entry: dict[str, object] = {
        "uuid": reading.uuid,
        "energy_millijoules": reading.energy_millijoules,
        "time_seconds": reading.clock_seconds,
        "begin_seconds": reading.begin_seconds,
        "end_seconds": reading.end_seconds,
        "power_watts": reading.instant_watts,
        "counter": reading.counter,
        "others": reading.others._asdict(),
    }
    if reading.integrated is not None:
        entry["integrated"] = asdict(reading.integrated)
    return entry


def streamed_readings_of(message: Mapping[str, Any]) -> StreamedReadings:
    """Parse a message of ``subscribe`` with ``processors``."""
    processors = message["processors"]
    return StreamedReadings(
        gpus=tuple(reading_of(entry) for entry in message["gpus"]),
        processor_seconds=float(processors["time_seconds"]),
        processor_joules={str(zone): float(joules) for zone, joules in processors["joules"].items()},
    )


def held_limit_of(entry: Mapping[str, Any]) -> HeldLimit:
    """Parse an entry of ``hold_limit``."""
    return HeldLimit(
        uuid=str(entry["uuid"]),
        found_watts=float(entry["found_watts"]),
        held_watts=float(entry["held_watts"]),
        enforced_watts=float(entry["enforced_watts"]),
    )


def held_clock_of(entry: Mapping[str, Any]) -> HeldClock:
    """Parse an entry of ``hold_clocks``."""
    return HeldClock(str(entry["uuid"]), float(entry["held_megahertz"]))


def lease_of(entry: Mapping[str, Any]) -> LeaseDescription:
    """Parse an entry of ``list``."""
    return LeaseDescription(
        uuid=str(entry["uuid"]),
        setting=str(entry["setting"]),
        found=entry["found"],
        held=entry["held"],
        owner=str(entry["owner"]),
        yours=bool(entry["yours"]),
    )
