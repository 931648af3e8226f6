"""Recurrences that `wattloop simulate --arrivals` simulates in a minute of processor time, by policy.

``python -P benchmarks/arrivals.py [--seeds 10] [--repeats 3]`` assigns the trace of tests/data/cluster to three of the
workloads of tests/data/zeus-traces, and runs the command with each policy in turn: all of it counts, the start, policy
`default` on the same arrivals and the file too. The policies alternate, and the least time of each remains.
"""

from __future__ import annotations

import argparse
import csv
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

DATA = Path(__file__).parents[1] / "tests" / "data"
TRACES, CLUSTER = DATA / "zeus-traces", DATA / "cluster"
WATTLOOP = str(Path(sys.executable).parent / "wattloop")
POLICIES = ("zeus", "knowledgeGradient", "thompsonSampling", "default")
WORKLOADS = """job,dataset,network,optimizer,target_metric,max_epochs,default_batch_size
vision,cifar100,shufflenetv2,adadelta,0.6,100,1024
ranking,movielens-1m,ncf,adam,0.41,100,1024
language,sentiment140,bert_base_uncased,adamw,0.84,10,128
"""


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        recurrences = arguments.seeds * assign(folder)
        seconds: dict[str, list[float]] = {policy: [] for policy in POLICIES}
        for _ in range(arguments.repeats):
            for policy in POLICIES:
                seconds[policy].append(simulate(folder, policy, arguments.seeds))
    zeus = min(seconds["zeus"])
    print(f"{recurrences} recurrences\n")
    print("| policy | recurrences per minute of processor time | time relative to policy zeus |")
    print("|---|---:|---:|")
    for policy, taken in seconds.items():
        print(f"| `{policy}` | {recurrences / min(taken) * 60:,.0f} | {min(taken) / zeus:.2f} |")


def assign(folder: Path) -> int:
    """Assign the trace of the cluster to workloads; returns the number of recurrences."""
    (folder / "jobs.csv").write_text(WORKLOADS)
    speeds = ("--throughputs", str(CLUSTER / "throughputs.csv"), "--gpu-model", "v100")
    traces = ("--train", str(TRACES / "summary_train.csv"), "--power", str(TRACES / "summary_power_v100.csv"))
    outputs = ("--output", "arrivals.csv", "--output-jobs", "groups.csv")
    run(folder, "assign", "--jobs", "jobs.csv", *traces, "--trace", str(CLUSTER / "2869ce.csv"), *speeds, *outputs)
    with (folder / "arrivals.csv").open(newline="") as file:
        return sum(1 for _ in csv.DictReader(file))


def simulate(folder: Path, policy: str, seeds: int) -> float:
    """Simulate the arrivals; returns the processor time of the command and its workers."""
    options = ("--policy", policy, "--seeds", f"1-{seeds}", "--output", "attempts.csv")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run(folder, "--jobs", "groups.csv", "--arrivals", "arrivals.csv", *options)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def run(folder: Path, *options: str) -> None:
    """Run `wattloop simulate`."""
    command = [WATTLOOP, "simulate", *options]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


if __name__ == "__main__":
    main()
