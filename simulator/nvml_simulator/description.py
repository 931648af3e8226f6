"""The exact state of simulated GPUs, which NVML shows in steps or not at all."""

from dataclasses import dataclass

from nvml_simulator.simulated_library import ClockSettingDescription, GpuDescriptionStructure, WorkDescription


@dataclass(frozen=True)
class MigDevice:
    """A MIG device: a part of a GPU without its own power, energy and clocks.

    Attributes:
        uuid: ``MIG-…``.
        gpu_instance_id: Id of its GPU instance, unique on its GPU.
        compute_slices: Number of compute slices, of seven.
        memory_slices: Number of memory slices, of eight.
    """

    uuid: str
    gpu_instance_id: int
    compute_slices: int
    memory_slices: int


@dataclass(frozen=True)
class SimulatedGpu:
    """The present state of a GPU.

    Attributes:
        index: Index on the machine.
        uuid: ``GPU-…``.
        time_seconds: Simulated time since creation; with the virtual clock that of this GPU.
        energy_microjoules: Exact energy since creation.
        busy_seconds: Time with work on it.
        counter_millijoules: Value of nvmlDeviceGetTotalEnergyConsumption: from the start value, or
            from zero after a reset, updated every 100 ms.
        power_limit_watts: Power limit.
        locked_graphics_clocks_megahertz: (minimum, maximum); None if not locked.
        locked_memory_clocks_megahertz: (minimum, maximum); None if not locked.
        application_clocks_megahertz: (memory, graphics); None if not set.
        graphics_clock_megahertz: Current graphics clock.
        memory_clock_megahertz: Current memory clock.
        power_watts: Current power draw.
        temperature_celsius: Current temperature; None without a thermal model.
        mig_devices: MIG devices; empty if MIG is disabled.
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
    temperature_celsius: float | None
    mig_devices: tuple[MigDevice, ...]


@dataclass(frozen=True)
class ClockSetting:
    """A change of the lock of a graphics clock.

    Attributes:
        time_seconds: Time of the GPU's clock.
        megahertz: (minimum, maximum); None: the clock was unlocked.
    """

    time_seconds: float
    megahertz: tuple[int, int] | None


@dataclass(frozen=True)
class WorkRecord:
    """Work that a GPU has done: one `Machine.occupy` with the virtual clock.

    Attributes:
        begin_seconds: When it began, on the GPU's clock.
        end_seconds: When it ended, or, for work of several GPUs, when the last one ended.
        begin_microjoules: Exact energy of the GPU until then.
        end_microjoules: The same at the end.
        graphics_clock_megahertz: The clock at which it began.
    """

    begin_seconds: float
    end_seconds: float
    begin_microjoules: int
    end_microjoules: int
    graphics_clock_megahertz: int


@dataclass(frozen=True)
class Description:
    """The state of the machine.

    Attributes:
        model: Key of the model of the GPUs.
        clock: ``wall``, ``scaled`` or ``virtual``.
        scale: Simulated seconds per real second with the scaled clock.
        permission: Processes that may change GPUs: ``root``, ``anyone`` or ``nobody``.
        driver_loaded: False between `Machine.stop_driver` and `Machine.start_driver`.
        seed: Seed of the creation.
        gpus: The GPUs, by index.
        calls: Number of calls of each NVML function, by all processes; functions without a call are absent.
    """

    model: str
    clock: str
    scale: float
    permission: str
    driver_loaded: bool
    seed: int
    gpus: tuple[SimulatedGpu, ...]
    calls: dict[str, int]


def simulated_gpu(index: int, found: GpuDescriptionStructure) -> SimulatedGpu:
    """Return a GPU from the C structure."""
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
        temperature_celsius=found.temperature_nc / 1e9 if found.has_temperature else None,
        mig_devices=tuple(
            MigDevice(part.uuid.decode(), part.gpu_instance_id, part.compute_slices, part.memory_slices)
            for part in found.instances[: found.instance_count]
        ),
    )


def clock_setting(found: ClockSettingDescription) -> ClockSetting:
    """Return a change of a clock's lock from the C structure."""
    return ClockSetting(found.time_ns / 1e9, _pair(found.min_mhz, found.max_mhz))


def work_record(found: WorkDescription) -> WorkRecord:
    """Return a work from the C structure."""
    return WorkRecord(found.begin_ns / 1e9, found.end_ns / 1e9, found.begin_uj, found.end_uj, found.graphics_mhz)


def _pair(first: int, second: int) -> tuple[int, int] | None:
    return (first, second) if second else None


def device_plugin_ids(machine: Description, *, replicas: int = 1) -> tuple[str, ...]:
    """Return the ids under which NVIDIA's device plugin offers a machine's GPUs to the kubelet.

    A partitioned GPU is offered by its MIG devices.

    Args:
        machine: Result of `nvml_simulator.Machine.describe`.
        replicas: Number of containers that share each device by time slicing; 1: not shared.
    """
    devices = [
        uuid
        for gpu in machine.gpus
        for uuid in ([part.uuid for part in gpu.mig_devices] if gpu.mig_devices else [gpu.uuid])
    ]
    if replicas == 1:
        return tuple(devices)
    return tuple(f"{device}::{replica}" for device in devices for replica in range(replicas))
