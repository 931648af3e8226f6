"""The energy counter and power readings, compared with the exact energy."""

import itertools
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nvml_simulator
from nvml_simulator import Machine, model_named, models
from support.agents.simulated_programs import MakeMachine, StartNvml

STEP_SECONDS = 0.1


@settings(deadline=None)
@given(
    seed=st.integers(0, 2**64 - 1),
    steps=st.lists(st.tuples(st.booleans(), st.floats(0.0, 3.0), st.floats(0.0, 1.0)), min_size=1, max_size=20),
)
def test_the_counter_never_falls_and_lags_the_exact_energy_by_at_most_one_update(
    seed: int, steps: list[tuple[bool, float, float]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = nvml_simulator.create(Path(folder) / "gpus", model="A100", count=1, clock="virtual", seed=seed)
        with Machine(path) as machine:
            base = machine.describe().gpus[0].counter_millijoules
            last = base
            for busy, seconds, intensity in steps:
                if busy:
                    machine.occupy(0, seconds * 312.0, intensity)
                else:
                    machine.idle(0, seconds)
                gpu = machine.describe().gpus[0]
                lag = gpu.energy_microjoules / 1e3 - (gpu.counter_millijoules - base)
                assert last <= gpu.counter_millijoules
                assert 0 <= lag <= 480e3 * STEP_SECONDS + 1
                last = gpu.counter_millijoules


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**64 - 1))
def test_the_counter_is_updated_every_100_milliseconds(seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = nvml_simulator.create(Path(folder) / "gpus", model="H200", count=1, clock="virtual", seed=seed)
        with Machine(path) as machine:
            edges = []
            last = machine.describe().gpus[0].counter_millijoules
            for millisecond in range(1, 450):
                machine.idle(0, 0.001)
                counter = machine.describe().gpus[0].counter_millijoules
                if counter != last:
                    edges.append((millisecond, counter - last))
                last = counter
    assert len(edges) in {4, 5}
    intervals = [after[0] - before[0] for before, after in itertools.pairwise(edges)]
    assert intervals == [100] * (len(edges) - 1)
    assert [step for _, step in edges[1:]] == [pytest.approx(7960, abs=1)] * (len(edges) - 1)


@pytest.mark.parametrize(
    "model", [model for model in models() if not model.has_energy_counter], ids=lambda model: model.key
)
def test_models_before_volta_report_power_but_no_energy_and_lock_no_clock(
    model: nvml_simulator.Model, make_machine: MakeMachine, start_nvml: StartNvml
) -> None:
    machine = make_machine(model=model.key, count=1)
    nvml = start_nvml()
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    machine.occupy(0, 5 * model.teraflops_per_second, 0.8)
    assert nvml.nvmlDeviceGetArchitecture(handle) < nvml.NVML_DEVICE_ARCH_VOLTA
    assert nvml.nvmlDeviceGetPowerUsage(handle) / 1e3 > model.waiting_watts
    (field,) = nvml.nvmlDeviceGetFieldValues(handle, [nvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION])
    assert field.nvmlReturn == nvml.NVML_ERROR_NOT_SUPPORTED
    clock = model.graphics_clocks_megahertz[0]
    for refused in (
        lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle),
        lambda: nvml.nvmlDeviceSetGpuLockedClocks(handle, clock, clock),
        lambda: nvml.nvmlDeviceResetGpuLockedClocks(handle),
    ):
        with pytest.raises(nvml.NVMLError_NotSupported):
            refused()


@pytest.mark.parametrize(
    "model", [model for model in models() if model.has_energy_counter], ids=lambda model: model.key
)
def test_energy_is_power_times_time(
    model: nvml_simulator.Model, make_machine: MakeMachine, start_nvml: StartNvml
) -> None:
    machine = make_machine(model=model.key, count=1)
    nvml = start_nvml()
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    before = nvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    begin = machine.clock_seconds(0)
    machine.occupy(0, 100 * model.teraflops_per_second, 0.8)
    watts = nvml.nvmlDeviceGetPowerUsage(handle) / 1e3
    counted = (nvml.nvmlDeviceGetTotalEnergyConsumption(handle) - before) / 1e3
    seconds = machine.clock_seconds(0) - begin
    exact = machine.describe().gpus[0].energy_microjoules / 1e6
    assert exact == pytest.approx(watts * seconds, rel=1e-6)
    assert exact - watts * STEP_SECONDS <= counted <= exact


@pytest.mark.parametrize(
    ("model", "averages"), [("V100", False), ("A100", False), ("A40", True), ("H200", True), ("K80", False)]
)
def test_power_usage_is_the_mean_of_a_second_on_models_that_average(
    model: str, averages: bool, make_machine: MakeMachine, start_nvml: StartNvml
) -> None:
    machine = make_machine(model=model, count=1)
    nvml = start_nvml()
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    idle = nvml.nvmlDeviceGetPowerUsage(handle)
    machine.idle(0, 5.0)
    machine.occupy(0, 0.3 * model_named(model).teraflops_per_second, 0.5)
    partial = nvml.nvmlDeviceGetPowerUsage(handle)
    machine.occupy(0, 5.0 * model_named(model).teraflops_per_second, 0.5)
    busy = nvml.nvmlDeviceGetPowerUsage(handle)
    assert idle < partial <= busy
    assert (partial < busy) == averages


def test_instant_power_is_updated_every_42_milliseconds(make_machine: MakeMachine, start_nvml: StartNvml) -> None:
    machine = make_machine(model="A100", count=1)
    nvml = start_nvml()
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    changes = []
    last = nvml.nvmlDeviceGetPowerUsage(handle)
    for number in range(1, 600):
        machine.occupy(0, 0.312, 0.9 if number // 42 % 2 else 0.1)  # a millisecond each, unless the limit slows it
        power = nvml.nvmlDeviceGetPowerUsage(handle)
        if power != last:
            changes.append(machine.clock_seconds(0))
        last = power
    intervals = [after - before for before, after in itertools.pairwise(changes)]
    assert len(intervals) > 5
    assert all(abs(interval / 0.042 - round(interval / 0.042)) < 0.05 for interval in intervals)


def test_utilization_is_the_share_of_the_last_second_with_work(
    make_machine: MakeMachine, start_nvml: StartNvml
) -> None:
    machine = make_machine(model="A100", count=1)
    nvml = start_nvml()
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    for _ in range(20):
        machine.occupy(0, 0.025 * 312.0, 0.5)
        machine.idle(0, 0.075)
    rates = nvml.nvmlDeviceGetUtilizationRates(handle)
    assert 20 <= rates.gpu <= 30
    assert 10 <= rates.memory <= 15


def test_field_values_agree_with_calls(make_machine: MakeMachine, start_nvml: StartNvml) -> None:
    machine = make_machine(model="H200", count=1)
    nvml = start_nvml()
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    machine.occupy(0, 3000.0, 0.7)
    energy, average, minimum, maximum, unknown = nvml.nvmlDeviceGetFieldValues(
        handle,
        [
            nvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION,
            nvml.NVML_FI_DEV_POWER_AVERAGE,
            nvml.NVML_FI_DEV_POWER_MIN_LIMIT,
            nvml.NVML_FI_DEV_POWER_MAX_LIMIT,
            nvml.NVML_FI_DEV_MEMORY_TEMP,
        ],
    )
    assert energy.value.ullVal == nvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    assert average.value.uiVal == nvml.nvmlDeviceGetPowerUsage(handle)
    assert [minimum.value.uiVal, maximum.value.uiVal] == nvml.nvmlDeviceGetPowerManagementLimitConstraints(handle)
    assert unknown.nvmlReturn == nvml.NVML_ERROR_NOT_SUPPORTED
