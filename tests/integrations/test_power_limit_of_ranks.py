"""Two ranks with gloo choose one power limit: `PowerLimitOptimizer` in a process group of PyTorch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.agents.simulated_node import simulated_node
from support.free_ports import free_port
from wattloop.power.profile_result import read_result

pytestmark = [pytest.mark.integrations, pytest.mark.timeout(300)]

RANKS = 2

# Both ranks are forked, which saves an import of PyTorch.
TRAINING = """
import json, os, sys
import torch.distributed as dist
import nvml_simulator
from wattloop import PowerLimitOptimizer
from wattloop.power.selectors import Energy

state, socket, port = sys.argv[1:]

def train(rank):
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    dist.init_process_group("gloo")
    with (
        nvml_simulator.Machine(state) as gpus,
        PowerLimitOptimizer(
            socket, Energy(), limits_watts=(400.0, 300.0, 200.0), profile_file=f"profile-{rank}.json"
        ) as optimizer,
    ):
        for epoch in range(40):
            optimizer.on_epoch_begin(epoch)
            for _ in range(4):
                gpus.occupy(rank, work=312.0 * (1 + 0.2 * rank), intensity=0.9 - 0.3 * rank)
                dist.barrier()
                optimizer.on_step_end()
            optimizer.on_epoch_end(epoch)
        held = gpus.describe().gpus[rank].power_limit_watts
        with open(f"limits-{rank}.json", "w") as stream:
            json.dump([optimizer.result.power_limit_watts, held], stream)
        # The store ends with rank 0.
        dist.barrier()
    dist.destroy_process_group()

child = os.fork()
code = 1
try:
    train(1 if child == 0 else 0)
    code = 0
finally:
    if child == 0:
        os._exit(code)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_two_ranks_with_gloo_hold_the_same_limit_and_rank_0_writes_the_sums(tmp_path: Path) -> None:
    with simulated_node(RANKS) as node:
        command = [sys.executable, "-c", TRAINING, str(node.state), str(node.socket), str(free_port())]
        subprocess.run(command, cwd=tmp_path, check=True, timeout=240)
        assert [gpu.power_limit_watts for gpu in node.gpus.describe().gpus] == [400.0] * RANKS
    result = read_result(tmp_path / "profile-0.json")
    assert not (tmp_path / "profile-1.json").exists()
    assert [each.gpus for each in result.measurements] == [RANKS] * 3
    limits = [json.loads((tmp_path / f"limits-{rank}.json").read_text()) for rank in range(RANKS)]
    assert limits == [[result.power_limit_watts] * 2] * RANKS
