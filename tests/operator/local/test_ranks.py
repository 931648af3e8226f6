"""The ranks of a local run without a process group measure power limits together, through the operator."""

import json

import pytest

import nvml_simulator
from support.local_runs.local_runs import LocalJob
from wattloop_operator.store.store import open_store

RANKS = 2
# Each rank writes the limit of its GPU in each step. Rank 1 has more work, so it is the slower one.
TRAINING = """
import json, os, subprocess, sys
if "RANK" not in os.environ:
    environments = [{**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank)} for rank in range(2)]
    ranks = [subprocess.Popen([sys.executable, __file__], env=each) for each in environments]
    sys.exit(max(rank.wait() for rank in ranks))
import nvml_simulator
import wattloop
rank = int(os.environ["RANK"])
limits = []
with wattloop.Run() as run:
    for epoch in run.epochs():
        for _ in range(4):
            limits.append(nvml_simulator.machine().describe().gpus[rank].power_limit_watts)
            nvml_simulator.occupy(rank, work=3120.0 * (1.0 + 0.2 * rank), intensity=0.9)
            run.step()
        run.report(metric=0.1 * (epoch + 1))
with open(f"limits-{os.environ['WATTLOOP_RECURRENCE'].split('-')[-2]}-{rank}", "w") as stream:
    json.dump(limits, stream)
"""


def test_ranks_without_a_process_group_hold_the_same_limit_in_the_same_steps(local_job: LocalJob) -> None:
    local_job.job(
        TRAINING,
        objective={"target": {"metric": "accuracy", "threshold": "0.75"}, "maxEpochs": 9},
        batchSize={"default": 32, "candidates": [32]},
        power={"mode": "Auto", "selector": "Cost"},
    )
    assert local_job.run("--recurrences", "2", "--simulated-gpus", str(RANKS)) == 0
    logs = sorted(local_job.folder.glob("limits-*"))
    first, second = ([json.loads(log.read_text()) for log in logs[index : index + RANKS]] for index in (0, RANKS))
    # 400 W in the first epoch, in which rank 0 measures the duration of a step, then each limit in two steps.
    scheduled = [watts for watts in (400.0, 350.0, 300.0, 250.0, 200.0, 150.0, 100.0) for _ in range(2)]
    assert first[0][4:18] == scheduled
    assert first[0] == first[1]
    with open_store(local_job.output / "wattloop.db") as store:
        stored = store.objects.get("RecurringTrainingJob", "local", "tiny")
        (profile,) = store.profiles.of_job(stored.body["metadata"]["uid"])
    assert [each.power_limit_watts for each in profile.measurements] == [100, 150, 200, 250, 300, 350, 400]
    model = nvml_simulator.model_named("A100")
    for each in profile.measurements:
        # For an epoch of four steps: the energy of both GPUs, and the time of the slower one.
        assert each.energy_joules / each.time_seconds > 1.5 * min(each.power_limit_watts, 200)
        assert each.time_seconds > 1.1 * 4 * 3120.0 / model.teraflops_per_second
    # What the ranks chose is what the next recurrence holds from its first step on. On a busy machine the first one can
    # end before the answer with all ranks' sums has come.
    chosen = second[0][0]
    assert chosen < 400.0
    assert first[0][-1] in (chosen, 400.0)
    assert second == [[chosen] * len(second[0])] * RANKS
    assert [row["outcome"] for row in local_job.rows()] == ["reached", "reached"]
    assert float(local_job.rows()[1]["power_limit_watts"]) == pytest.approx(chosen)


# Rank 0 of 4 reports, and torchrun prints which one was killed.
KILLED = """
import os, sys
os.environ |= {"RANK": "0", "WORLD_SIZE": "4"}
import wattloop
with wattloop.Run():
    print("x" * 200_000)
print("  rank      : 2 (local_rank: 2)")
print("  exitcode  : -9 (pid: 4713) (SIGKILL)")
sys.exit(1)
"""


def test_a_killed_rank_is_known_from_the_end_of_the_log(
    local_job: LocalJob, capsys: pytest.CaptureFixture[str]
) -> None:
    local_job.job(KILLED, retries=0)
    local_job.run("--recurrences", "1", "--simulated-gpus", "1")
    assert "rank 2 of 4 was killed; exit code 1; see /" in capsys.readouterr().err
