"""Distributed trainings with gloo: all ranks end after the same epoch, and the energy of all is counted."""

from __future__ import annotations

import json
from typing import Any

import pytest

import nvml_simulator
from support.free_ports import free_port
from support.local_runs.local_runs import LocalJob

pytestmark = [pytest.mark.integrations, pytest.mark.timeout(400)]

RANKS = 4
# The ranks are forked, which saves three imports of PyTorch. Only rank 0 evaluates; at epoch END it reaches the
# target or diverges. Each rank writes how many epochs it ran and what it knows.
TRAINING = """
import json, math, os, signal, sys
import nvml_simulator
import torch
import torch.distributed as dist
import wattloop

RANKS, GROUP, PORT, END, KILLED = json.loads(os.environ["TEST"])

def train(rank):
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(RANKS), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(RANKS)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(PORT)}
    torch.set_num_threads(1)
    model = torch.nn.Linear(4, 1)
    if GROUP:
        dist.init_process_group("gloo")
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with wattloop.Run() as run:
        attempt = int(open("count").read())
        end = END[attempt % len(END)]
        epochs = 0
        for epoch in run.epochs():
            for _ in range(2):
                optimizer.zero_grad()
                model(torch.ones(2, 4)).sum().backward()
                optimizer.step()
                nvml_simulator.occupy(rank, work=3000.0, intensity=0.8)
                run.step()
            epochs += 1
            if rank == KILLED and epochs == 2 and attempt == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            metric = 0.0
            if rank == 0:
                metric = (0.9 if end > 0 else math.nan) if epochs == abs(end) else 0.1
            run.report(metric=metric)
        with open(f"epochs-{attempt}-{rank}", "w") as stream:
            json.dump([epochs, run.reached, run.stopped], stream)
    if GROUP:
        dist.destroy_process_group()

count = int(open("count").read()) + 1 if os.path.exists("count") else 0
with open("count", "w") as stream:
    stream.write(str(count))
children = []
for rank in range(RANKS):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            train(rank)
            code = 0
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    children.append(pid)
codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
sys.exit(max(map(abs, codes)))
"""


def run_ranks(local_job: LocalJob, *, group: bool, end: list[int], recurrences: int, killed: int | None = None) -> None:
    test = json.dumps([RANKS, group, free_port(), end, killed])
    container = {
        "name": "train",
        "image": "none",
        "command": ["python", "train.py"],
        "env": [{"name": "TEST", "value": test}],
    }
    local_job.job(
        TRAINING,
        template={"job": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}},
        batchSize={"default": 32, "candidates": [32]},
        power={"limit": {"mode": "None"}},
    )
    local_job.run("--recurrences", str(recurrences), "--simulated-gpus", str(RANKS))


def last_epochs(local_job: LocalJob, attempt: int) -> list[Any]:
    return [json.loads((local_job.folder / f"epochs-{attempt}-{rank}").read_text()) for rank in range(RANKS)]


@pytest.mark.parametrize("group", [True, False])
def test_all_ranks_end_after_the_epoch_in_which_rank_0_reaches_or_diverges(local_job: LocalJob, group: bool) -> None:
    # An attempt that diverges is retried.
    end = [-1, 3]
    run_ranks(local_job, group=group, end=end, recurrences=1)
    for attempt, epoch in enumerate(end):
        assert last_epochs(local_job, attempt) == [[abs(epoch), epoch > 0, epoch < 0]] * RANKS
    rows = local_job.rows()
    assert [row["outcome"] for row in rows] == ["diverged", "reached"]
    # All energy of all GPUs was used in the runs.
    gpus = nvml_simulator.describe(local_job.output / "simulated-gpus").gpus
    used = sum(gpu.energy_microjoules for gpu in gpus) / 1e6
    assert sum(float(row["energy_joules"]) for row in rows) == pytest.approx(used, rel=0.02)


def test_no_rank_hangs_when_another_is_killed(local_job: LocalJob) -> None:
    run_ranks(local_job, group=True, end=[4], recurrences=1, killed=2)
    assert [row["outcome"] for row in local_job.rows()] == ["crashed", "reached"]
