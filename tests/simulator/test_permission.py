"""Permission to change simulated GPUs."""

import os
import subprocess
import sys

import pytest

import nvml_simulator
from support.agents.simulated_programs import MakeMachine

CHANGE = """
import os, sys, pynvml
pynvml.nvmlInit()
if sys.argv[1] == "nobody":
    os.seteuid(65534)
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
try:
    pynvml.nvmlDeviceSetPowerManagementLimit(handle, 250000)
    print("changed")
except pynvml.NVMLError_NoPermission:
    print("refused")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize(
    ("permission", "user", "outcome"),
    [
        ("root", "root", "changed"),
        ("root", "nobody", "refused"),
        ("anyone", "nobody", "changed"),
        ("nobody", "root", "refused"),
    ],
)
def test_a_change_requires_the_permission_of_the_state(
    permission: str, user: str, outcome: str, make_machine: MakeMachine
) -> None:
    machine = make_machine(permission=permission, model="A100")
    environment = {**os.environ, **nvml_simulator.environment(machine.path)}
    command = [sys.executable, "-c", CHANGE, user]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == outcome
    assert machine.describe().gpus[0].power_limit_watts == (250 if outcome == "changed" else 400)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has capabilities to give up")
def test_root_without_the_capability_cannot_change_gpus(make_machine: MakeMachine) -> None:
    machine = make_machine(permission="root", model="A100")
    environment = {**os.environ, **nvml_simulator.environment(machine.path)}
    command = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", sys.executable, "-c", CHANGE, "root"]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "refused"
    assert machine.describe().gpus[0].power_limit_watts == 400
