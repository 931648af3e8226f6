"""The ground truth about simulated GPUs: what the simulator knows exactly and NVML shows in steps, or not at all."""

from __future__ import annotations

from dataclasses import dataclass

from nvml_simulator.library import GpuDescription


@dataclass(frozen=True)
class MigDevice:
    """A part of a GPU that programs see as a GPU of its own, without power, energy and clocks of its own.

    Attributes:
        uuid: ``MIG-…``.
        gpu_instance_id: Of its GPU instance, unique on its GPU.
        compute_slices: Of the GPU's seven.
        memory_slices: Of the GPU's eight.
    """

    uuid: str
    gpu_instance_id: int
    compute_slices: int
    memory_slices: int


@dataclass(frozen=True)
class SimulatedGpu:
    """One GPU, as of its present.

    Attributes:
        index: Its number on the machine.
        uuid: ``GPU-…``.
        time_seconds: Simulated time since creation; with the virtual clock this GPU's own.
        energy_microjoules: Used since creation, exact.
        busy_seconds: Time with work on it.
        counter_millijoules: What nvmlDeviceGetTotalEnergyConsumption shows: its start value first, 100 ms steps; from
            zero after a reset.
        power_limit_watts: In force.
        locked_graphics_clocks_megahertz: (least, most), or None where not locked.
        locked_memory_clocks_megahertz: Likewise.
        application_clocks_megahertz: (memory, graphics) as set, or None where not.
        graphics_clock_megahertz: It runs at.
        memory_clock_megahertz: It runs at.
        power_watts: It draws at this moment.
        mig_devices: What it is cut into; none: MIG is off.
    """

    index: int
    uuid: str
    time_seconds: float
    energy_microjoules: int
    busy_seconds: float
    counter_millijoules: int
    power_limit_watts: float
    locked_graphics_clocks_megahertz: tuple[int, int] | None
    locked_memory_clocks_megahertz: tuple[int, int] | None
    application_clocks_megahertz: tuple[int, int] | None
    graphics_clock_megahertz: int
    memory_clock_megahertz: int
    power_watts: float
    mig_devices: tuple[MigDevice, ...]


@dataclass(frozen=True)
class Description:
    """The whole machine.

    Attributes:
        model: Key of the GPUs' model.
        clock: ``wall``, ``scaled`` or ``virtual``.
        scale: Simulated seconds per real second, with the scaled clock.
        permission: Who may change GPUs: ``root``, ``anyone`` or ``nobody``.
        driver_loaded: False between `Machine.stop_driver` and `Machine.start_driver`.
        seed: It was created with.
        gpus: By index.
        calls: How often each NVML function was called, by all processes together; functions never called are absent.
    """

    model: str
    clock: str
    scale: float
    permission: str
    driver_loaded: bool
    seed: int
    gpus: tuple[SimulatedGpu, ...]
    calls: dict[str, int]


def simulated_gpu(index: int, found: GpuDescription) -> SimulatedGpu:
    """The C structure in our units."""
    return SimulatedGpu(
        index=index,
        uuid=found.uuid.decode(),
        time_seconds=found.time_ns / 1e9,
        energy_microjoules=found.energy_uj,
        busy_seconds=found.busy_ns / 1e9,
        counter_millijoules=found.counter_mj,
        power_limit_watts=found.limit_mw / 1e3,
        locked_graphics_clocks_megahertz=_pair(found.locked_min_mhz, found.locked_max_mhz),
        locked_memory_clocks_megahertz=_pair(found.locked_memory_min_mhz, found.locked_memory_max_mhz),
        application_clocks_megahertz=_pair(found.application_memory_mhz, found.application_mhz),
        graphics_clock_megahertz=found.graphics_mhz,
        memory_clock_megahertz=found.memory_mhz,
        power_watts=found.power_mw / 1e3,
        mig_devices=tuple(
            MigDevice(part.uuid.decode(), part.gpu_instance_id, part.compute_slices, part.memory_slices)
            for part in found.instances[: found.instance_count]
        ),
    )


def _pair(first: int, second: int) -> tuple[int, int] | None:
    return (first, second) if second else None
