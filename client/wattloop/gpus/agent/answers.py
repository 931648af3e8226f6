"""The agent's answers as dataclasses, and their parsers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar

from wattloop.energy.gpu_reading import NOT_ASKED, GpuReading, IntegratedEnergy, OtherUse

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class PowerLimits:
    """The power limits of one GPU, in watts.

    Attributes:
        found_watts: The limit before the agent held one, which it restores on release.
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
        setting: ``power_limit`` (values in watts), ``graphics_clock`` or ``memory_clock`` (in megahertz).
        found: The value that is restored on release; None: not locked.
    """

    uuid: str
    setting: str
    found: float | None
    held: float | None
    owner: str
    yours: bool


def answer_of(kind: type[Answer], entry: Mapping[str, Any]) -> Answer:
    """An entry of an answer as a dataclass of this module; fields that a later agent adds are ignored."""
    form: Any = kind
    known = {each.name: _CONVERSIONS.get(each.type) for each in fields(form) if each.name in entry}
    return kind(**{name: entry[name] if convert is None else convert(entry[name]) for name, convert in known.items()})


def _range(bounds: Sequence[float] | None) -> tuple[float, float] | None:
    return None if bounds is None else (float(bounds[0]), float(bounds[1]))


# By annotation; other values stay as they are.
_CONVERSIONS: dict[Any, Callable[[Any], Any]] = {
    str: str,
    int: int,
    float: float,
    tuple[int, ...]: lambda values: tuple(map(int, values)),
    tuple[float, float] | None: _range,
    PowerLimits | None: lambda limits: None if limits is None else answer_of(PowerLimits, limits),
    GraphicsClocks | None: lambda clocks: None if clocks is None else answer_of(GraphicsClocks, clocks),
}


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
        integrated=None if integrated is None else answer_of(IntegratedEnergy, integrated),
        counter=str(entry.get("counter", "")),
        others=NOT_ASKED if others is None else OtherUse(others["seen_seconds"], others["seen"], others["unknown"]),
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
