"""A local run uses only the GPUs that it was given."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import nvml_simulator
from support.agents.simulated_node import simulated_node
from support.local_runs.local_runs import LocalJob
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
    gpus = [gpu.uuid for gpu in run._gpus.energy()]
    with open(f"gpus-{os.environ['RANK']}", "w") as stream:
        json.dump([gpus, run.per_device_batch_size], stream)
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
