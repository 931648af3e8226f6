"""A GPU in watts and megahertz, compared with the state of the simulator."""

import time
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nvml_simulator import STATE_VARIABLE, Machine, busy_power_and_throughput, create, model_named
from wattloop.gpus.nvml import Gpu, GpuLost, InvalidArgument, Session

H200 = model_named("H200")


def test_gpus_are_identified_by_uuid_index_and_model(machine: Machine, session: Session) -> None:
    gpus = session.gpus()
    assert [(gpu.uuid, gpu.index, gpu.name) for gpu in gpus] == [
        (state.uuid, state.index, "NVIDIA H200") for state in machine.describe().gpus
    ]
    assert session.gpu(gpus[1].uuid) == gpus[1]
    assert gpus[1].minor_number == 1


def test_limits_are_in_watts(machine: Machine, session: Session) -> None:
    gpu = session.gpus()[1]
    assert gpu.power_limit_range_watts() == (200.0, 700.0)
    assert gpu.default_power_limit_watts() == gpu.power_limit_watts() == gpu.enforced_power_limit_watts() == 700.0


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(milliwatts=st.integers(200_000, 700_000))
def test_a_limit_is_set_to_the_milliwatt_on_one_gpu(machine: Machine, session: Session, milliwatts: int) -> None:
    other, gpu = session.gpus()
    gpu.set_power_limit_watts(milliwatts / 1e3)
    assert gpu.power_limit_watts() == milliwatts / 1e3 == machine.describe().gpus[1].power_limit_watts
    assert other.power_limit_watts() == 700.0


@pytest.mark.parametrize("watts", [199.9, 700.1, 0.0])
def test_a_limit_out_of_range_is_an_error_and_changes_nothing(watts: float, session: Session) -> None:
    gpu = session.gpus()[0]
    with pytest.raises(InvalidArgument, match=gpu.uuid):
        gpu.set_power_limit_watts(watts)
    assert gpu.power_limit_watts() == 700.0


def test_energy_and_power_of_a_steady_load_agree_over_the_gpus_own_clock(machine: Machine, session: Session) -> None:
    gpu, other = session.gpus()
    millijoules, seconds = gpu.energy_millijoules(), gpu.clock_seconds()
    machine.occupy(gpu.uuid, 50 * H200.teraflops_per_second, 0.5)
    used, took = (gpu.energy_millijoules() - millijoules) / 1e3, gpu.clock_seconds() - seconds
    assert used == pytest.approx(gpu.power_watts() * took, rel=0.003)
    watts, _ = busy_power_and_throughput(H200, H200.graphics_clocks_megahertz[0], 0.5)
    assert gpu.power_watts() == gpu.instant_power_watts() == watts
    assert other.clock_seconds() == 0


def test_instant_power_rises_before_the_mean_of_a_second(machine: Machine, session: Session) -> None:
    gpu = session.gpus()[0]
    machine.idle(0, 10.0)
    machine.occupy(0, 0.3 * H200.teraflops_per_second, 0.5)
    assert gpu.instant_power_watts() > gpu.power_watts() > H200.idle_watts


def test_instant_power_falls_back_to_the_reading_without_the_field(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = create(machine.path.with_name("volta"), model="V100", count=1, clock="virtual")
    monkeypatch.setenv(STATE_VARIABLE, str(path))
    with Session() as session, Machine(path) as volta:
        volta.occupy(0, 1000.0, 0.5)
        gpu = session.gpus()[0]
        assert gpu.instant_power_watts() == gpu.power_watts() > model_named("V100").waiting_watts


def test_clocks_are_locked_and_reset(machine: Machine, session: Session) -> None:
    gpu = session.gpus()[0]
    assert gpu.graphics_clocks_megahertz() == H200.graphics_clocks_megahertz
    assert gpu.memory_clocks_megahertz() == (3201, 2201)
    gpu.lock_graphics_clocks(900, 1200)
    gpu.lock_memory_clocks(2201, 2201)
    state = machine.describe().gpus[0]
    assert state.locked_graphics_clocks_megahertz == (900, 1200)
    assert state.locked_memory_clocks_megahertz == (2201, 2201)
    assert (gpu.graphics_clock_megahertz(), state.memory_clock_megahertz) == (900, 2201)
    gpu.reset_graphics_clocks()
    gpu.reset_memory_clocks()
    state = machine.describe().gpus[0]
    assert state.locked_graphics_clocks_megahertz is None
    assert state.locked_memory_clocks_megahertz is None


def test_a_partitioned_gpu_lists_its_mig_devices(machine: Machine, session: Session) -> None:
    machine.partition(1, 3)
    undivided, partitioned = session.gpus()
    assert (undivided.is_partitioned(), undivided.mig_device_uuids()) == (False, ())
    assert partitioned.is_partitioned()
    assert partitioned.mig_device_uuids() == tuple(part.uuid for part in machine.describe().gpus[1].mig_devices)


def test_a_real_gpu_uses_the_systems_clock(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wattloop.gpus.nvml.gpu.simulated_clock_nanoseconds", lambda _handle: None)
    before = time.monotonic()
    assert before <= session.gpus()[0].clock_seconds() <= time.monotonic()


READERS: list[Callable[[Gpu], object]] = [
    Gpu.power_limit_watts,
    Gpu.enforced_power_limit_watts,
    Gpu.default_power_limit_watts,
    Gpu.power_limit_range_watts,
    Gpu.power_watts,
    Gpu.instant_power_watts,
    Gpu.energy_millijoules,
    Gpu.memory_clocks_megahertz,
    Gpu.graphics_clocks_megahertz,
    Gpu.graphics_clock_megahertz,
    Gpu.is_partitioned,
    Gpu.mig_device_uuids,
]


@pytest.mark.parametrize("read", READERS, ids=lambda read: read.__name__)
def test_every_reading_of_a_lost_gpu_is_an_error(
    read: Callable[[Gpu], object], machine: Machine, session: Session
) -> None:
    gpu, other = session.gpus()
    machine.inject_fault("*", code=15, gpu=0)
    with pytest.raises(GpuLost, match=rf"GPU {gpu.uuid}: nvmlDevice\w+: GPU is lost \(NVML code 15\); .*reset"):
        read(gpu)
    read(other)
