"""``python -m nvml_simulator.control``: actions and errors."""

import json

import pytest

from nvml_simulator.control import main
from support.agents.simulated_programs import MakeMachine, StartNvml


def test_describe_prints_the_machine_as_json(make_machine: MakeMachine, capsys: pytest.CaptureFixture[str]) -> None:
    machine = make_machine(model="H100", count=2)
    assert main([str(machine.path), "describe"]) == 0
    described = json.loads(capsys.readouterr().out)
    assert described["model"] == "H100"
    assert [gpu["uuid"] for gpu in described["gpus"]] == [gpu.uuid for gpu in machine.describe().gpus]


def test_gpus_can_be_given_by_index_and_by_uuid(make_machine: MakeMachine) -> None:
    machine = make_machine(model="A100", count=2)
    first, second = (gpu.uuid for gpu in machine.describe().gpus)
    assert main([str(machine.path), "reset-counter", "1"]) == 0
    assert main([str(machine.path), "set-power-limit", first, "250"]) == 0
    assert [gpu.power_limit_watts for gpu in machine.describe().gpus] == [250.0, 400.0]
    assert machine.describe().gpus[0].counter_millijoules > 0
    assert machine.describe().gpus[1].counter_millijoules == 0
    assert machine.describe().gpus[1].uuid == second


def test_the_driver_can_be_stopped_started_and_restarted(make_machine: MakeMachine) -> None:
    machine = make_machine(count=1)
    assert main([str(machine.path), "stop-driver", "--stale-code", "999"]) == 0
    assert not machine.describe().driver_loaded
    assert main([str(machine.path), "start-driver"]) == 0
    assert machine.describe().driver_loaded
    machine.set_power_limit_as_another_actor(0, 200)
    assert main([str(machine.path), "restart-driver"]) == 0
    assert machine.describe().gpus[0].power_limit_watts == 400.0


def test_faults_can_be_injected_and_cleared(
    make_machine: MakeMachine, start_nvml: StartNvml, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = make_machine(count=1)
    nvml = start_nvml()
    assert main([str(machine.path), "fault", "nvmlDeviceGetCount_v2", "--code", "999"]) == 0
    ticket = json.loads(capsys.readouterr().out)["ticket"]
    with pytest.raises(nvml.NVMLError_Unknown):
        nvml.nvmlDeviceGetCount()
    assert main([str(machine.path), "clear-faults", "--ticket", str(ticket)]) == 0
    assert nvml.nvmlDeviceGetCount() == 1


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["reset-counter", "7"], 2, "found GPU 7, expected an index of 0 to 3"),
        (["set-power-limit", "0", "9000"], 2, "found a limit of 9000.0 W, expected one within the range of 'A100'"),
        (["fault", "nvmlDeviceGetNothing"], 2, "found function 'nvmlDeviceGetNothing'"),
        (["stop-driver", "--stale-code", "0"], 2, "found stale_code 0"),
    ],
)
def test_invalid_arguments_are_rejected_with_the_expected_values(
    arguments: list[str], code: int, message: str, make_machine: MakeMachine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(make_machine(count=4).path), *arguments]) == code
    assert message in capsys.readouterr().err


def test_an_invalid_state_file_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["/nowhere/gpus", "describe"]) == 1
    assert "/nowhere/gpus is not a readable state file" in capsys.readouterr().err
