"""A local run uses only the GPUs that it was given."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import nvml_simulator
from support.agents.simulated_node import simulated_node
from support.local_runs.local_runs import LocalJob
from support.test_sets.parameters import exhaustive_after
from wattloop.commands.main import main
from wattloop.errors import OperationError
from wattloop_operator.local.local_gpus import given_gpus

# Each rank writes the GPUs that it measures to a file.
RANKS = """
import json, os, subprocess, sys
import wattloop
if "RANK" not in os.environ:
    ranks = [
        subprocess.Popen([sys.executable, __file__], env={**os.environ, "RANK": rank, "WORLD_SIZE": "2",
                         "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": "2"})
        for rank in "01"
    ]
    sys.exit(max(rank.wait() for rank in ranks))
with wattloop.Run() as run:
    gpus = [gpu.uuid for gpu in run.gpus.energy()]
    with open(f"gpus-{os.environ['RANK']}", "w") as stream:
        json.dump([gpus, run.per_device_batch_size], stream)
    run.report(metric=0.5)
"""

ONE_PROCESS = """
import json, os
import wattloop
with wattloop.Run() as run:
    with open("gpus", "w") as stream:
        json.dump([os.environ["CUDA_VISIBLE_DEVICES"], [gpu.uuid for gpu in run.gpus.energy()]], stream)
    run.report(metric=0.5)
"""


@pytest.fixture(scope="module")
def socket() -> Iterator[Path]:
    with simulated_node(4) as simulated:
        yield simulated.socket


@pytest.mark.parametrize(("variables", "count"), [({}, 4), ({"CUDA_VISIBLE_DEVICES": "3,1"}, 2)])
def test_a_run_is_given_the_gpus_of_its_environment(socket: Path, variables: dict[str, str], count: int) -> None:
    everything = given_gpus(socket, {})
    expected = [everything[index] for index in ((3, 1) if variables else range(4))]
    assert list(given_gpus(socket, variables)) == expected
    assert len(expected) == count


def test_a_run_that_is_given_no_gpu_says_why(socket: Path) -> None:
    with pytest.raises(OperationError, match=r"CUDA_VISIBLE_DEVICES='7' names none of the 4 GPUs"):
        given_gpus(socket, {"CUDA_VISIBLE_DEVICES": "7"})


def test_two_ranks_of_a_local_run_share_its_gpus(local_job: LocalJob, monkeypatch: pytest.MonkeyPatch) -> None:
    # The numbers of this machine's GPUs are not those of simulated ones.
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    local_job.job(RANKS)
    assert local_job.run("--recurrences", "1", "--simulated-gpus", "2") == 0
    uuids = [gpu.uuid for gpu in nvml_simulator.describe(local_job.output / "simulated-gpus").gpus]
    found = [json.loads((local_job.folder / f"gpus-{rank}").read_text()) for rank in "01"]
    assert found == [[[uuid], 16] for uuid in uuids]


@pytest.mark.parametrize(("devices", "indices"), exhaustive_after([(None, [0]), ("2,1", [2, 1])]))
def test_a_training_sees_as_many_gpus_of_its_machine_as_the_manifest_requests(
    local_job: LocalJob, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, devices: str | None, indices: list[int]
) -> None:
    state = nvml_simulator.create(tmp_path / "gpus", model="A100", count=3, clock="virtual", permission="anyone")
    for name, value in nvml_simulator.environment(state).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if devices is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", devices)
    container: dict[str, object] = {"name": "train", "image": "none", "command": ["python", "train.py"]}
    container["resources"] = {"limits": {"nvidia.com/gpu": 1}}
    pod = {"restartPolicy": "Never", "containers": [container]}
    local_job.job(ONE_PROCESS, template={"spec": {"template": {"spec": pod}}})
    assert main(["run", str(local_job.manifest), "--output", str(local_job.output), "--recurrences", "1"]) == 0
    uuids = [gpu.uuid for gpu in nvml_simulator.describe(state).gpus]
    seen, measured = json.loads((local_job.folder / "gpus").read_text())
    assert measured == [uuids[index] for index in indices]
    assert seen == (devices or uuids[0])


def test_a_training_whose_variables_hide_the_gpu_says_so(
    local_job: LocalJob, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = nvml_simulator.create(tmp_path / "gpus", model="A100", count=1, clock="virtual", permission="anyone")
    for name, value in nvml_simulator.environment(state).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    container = {"name": "train", "image": "none", "command": ["python", "train.py"]}
    hidden = container | {"env": [{"name": "CUDA_VISIBLE_DEVICES", "value": ""}]}
    pod = {"restartPolicy": "Never", "containers": [hidden]}
    local_job.job(ONE_PROCESS, template={"spec": {"template": {"spec": pod}}})
    assert main(["run", str(local_job.manifest), "--output", str(local_job.output), "--recurrences", "1"]) == 0
    assert "check that CUDA_VISIBLE_DEVICES hides none of them" in capsys.readouterr().err
    (row,) = local_job.rows()
    assert (row["energy_joules"], row["cost_joules"], row["cost_saving_percent"]) == ("", "", "")
