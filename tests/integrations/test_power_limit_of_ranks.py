"""Two ranks with gloo choose one power limit: `PowerLimitOptimizer` in a process group of PyTorch."""

import json
import os
import warnings
from functools import partial
from pathlib import Path

import pytest
import torch.distributed as dist

import nvml_simulator
from support.agents.simulated_node import SimulatedNode, simulated_node
from support.forked_process import exit_codes, forked
from support.free_ports import free_port
from wattloop import PowerLimitOptimizer
from wattloop.power.profile_result import read_result
from wattloop.power.selectors import Energy

pytestmark = [pytest.mark.integrations, pytest.mark.timeout(300)]

RANKS = 2
LIMITS_WATTS = (400.0, 300.0, 200.0)


def train(node: SimulatedNode, folder: Path, rank: int, port: int) -> int:
    """Train in a process of its own as one of the ranks; writes the limit that it chose and the one that it holds."""
    # As in an interpreter of its own, where no warning is an error.
    warnings.resetwarnings()
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo")
    profile = folder / f"profile-{rank}.json"
    with (
        nvml_simulator.Machine(node.state) as gpus,
        PowerLimitOptimizer(node.socket, Energy(), limits_watts=LIMITS_WATTS, profile_file=profile) as optimizer,
    ):
        for epoch in range(40):
            optimizer.on_epoch_begin(epoch)
            for _ in range(4):
                gpus.occupy(rank, work=312.0 * (1 + 0.2 * rank), intensity=0.9 - 0.3 * rank)
                dist.barrier()
                optimizer.on_step_end()
            optimizer.on_epoch_end(epoch)
        held = gpus.describe().gpus[rank].power_limit_watts
        (folder / f"limits-{rank}.json").write_text(json.dumps([optimizer.result.power_limit_watts, held]))
        # The store ends with rank 0.
        dist.barrier()
    dist.destroy_process_group()
    return 0


def test_two_ranks_with_gloo_hold_the_same_limit_and_rank_0_writes_the_sums(tmp_path: Path) -> None:
    port, log = free_port(), tmp_path / "log"
    with simulated_node(RANKS) as node:
        codes = exit_codes([forked(partial(train, node, tmp_path, rank, port), log, log) for rank in range(RANKS)])
        assert codes == [0] * RANKS, log.read_text()
        assert [gpu.power_limit_watts for gpu in node.gpus.describe().gpus] == [400.0] * RANKS
    result = read_result(tmp_path / "profile-0.json")
    assert not (tmp_path / "profile-1.json").exists()
    assert [each.gpus for each in result.measurements] == [RANKS] * 3
    limits = [json.loads((tmp_path / f"limits-{rank}.json").read_text()) for rank in range(RANKS)]
    assert limits == [[result.power_limit_watts] * 2] * RANKS
