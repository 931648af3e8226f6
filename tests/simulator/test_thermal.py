"""The thermal model: temperature follows power, and power follows temperature."""

import json
import math

import pytest

from nvml_simulator import ThermalModel, control
from support.agents.simulated_programs import MakeMachine, StartNvml
from wattloop.errors import UsageError

SECOND_OF_WORK = 312.0


def test_temperature_approaches_ambient_plus_resistance_times_power(make_machine: MakeMachine) -> None:
    machine = make_machine(model="A100", count=1)
    machine.set_thermal_model(ThermalModel(leakage_watts_per_kelvin=0.0, time_constant_seconds=100.0))
    watts = machine.describe().gpus[0].power_watts
    for seconds in (30.0, 70.0, 400.0):
        machine.idle(0, seconds)
        gpu = machine.describe().gpus[0]
        rise = 0.1 * watts * (1 - math.exp(-gpu.time_seconds / 100.0))
        assert gpu.temperature_celsius == pytest.approx(30.0 + rise, abs=0.01)


def test_a_hot_gpu_draws_more_power_at_the_same_speed_below_its_limit(make_machine: MakeMachine) -> None:
    machine = make_machine(model="A100", count=2)
    seconds, watts = [], []
    for start in (50.0, 70.0):
        machine.set_thermal_model(ThermalModel(start_celsius=start, time_constant_seconds=1e5))
        before = machine.describe().gpus[0]
        seconds.append(machine.occupy([0, 1], 10 * SECOND_OF_WORK, 0.5))
        watts.append((machine.describe().gpus[0].energy_microjoules - before.energy_microjoules) / 1e6 / seconds[-1])
    assert seconds[0] == seconds[1]
    assert watts[1] - watts[0] == pytest.approx(0.5 * 20.0, abs=0.01)


def test_a_hot_gpu_at_its_limit_is_slower_at_the_same_power(make_machine: MakeMachine) -> None:
    machine = make_machine(model="A100", count=1)
    machine.set_power_limit_as_another_actor(0, 250.0)
    seconds = []
    for start in (30.0, 90.0):
        machine.set_thermal_model(ThermalModel(start_celsius=start, time_constant_seconds=1e5))
        before = machine.describe().gpus[0].energy_microjoules
        seconds.append(machine.occupy(0, 10 * SECOND_OF_WORK, 0.9))
        watts = (machine.describe().gpus[0].energy_microjoules - before) / 1e6 / seconds[-1]
        assert 240.0 < watts <= 250.0
    assert seconds[1] > 1.02 * seconds[0]


def test_nvml_shows_the_temperature_of_the_model(make_machine: MakeMachine, start_nvml: StartNvml) -> None:
    machine = make_machine(model="A100", count=1)
    machine.set_thermal_model(ThermalModel(start_celsius=66.0))
    nvml = start_nvml()
    assert nvml.nvmlDeviceGetTemperature(nvml.nvmlDeviceGetHandleByIndex(0), nvml.NVML_TEMPERATURE_GPU) == 66


def test_without_a_thermal_model_the_same_work_takes_the_same_energy(make_machine: MakeMachine) -> None:
    machine = make_machine(model="A100", count=1)
    machine.set_thermal_model(ThermalModel())
    machine.set_thermal_model(None)
    assert machine.describe().gpus[0].temperature_celsius is None
    energies = []
    for _ in range(2):
        before = machine.describe().gpus[0].energy_microjoules
        machine.occupy(0, 1000 * SECOND_OF_WORK, 0.9)
        energies.append(machine.describe().gpus[0].energy_microjoules - before)
    assert abs(energies[0] - energies[1]) <= 1


def test_the_command_line_sets_and_removes_the_model(
    make_machine: MakeMachine, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(make_machine(count=1).path)
    temperatures = []
    for options in (["--start-celsius", "44"], ["--off"]):
        assert control.main([path, "set-thermal-model", *options]) == 0
        assert control.main([path, "describe"]) == 0
        temperatures.append(json.loads(capsys.readouterr().out)["gpus"][0]["temperature_celsius"])
    assert temperatures == [44.0, None]


@pytest.mark.parametrize(
    ("name", "value"),
    [("ambient_celsius", -1.0), ("time_constant_seconds", 0.5), ("kelvin_per_watt", math.nan), ("start_celsius", 1e3)],
)
def test_a_value_out_of_range_is_rejected_by_name(name: str, value: float) -> None:
    with pytest.raises(UsageError, match=name):
        ThermalModel(**{name: value})
