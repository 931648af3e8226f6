"""Recurrences that `wattloop simulate --arrivals` simulates in a minute, and in one of processor time, by policy.

``python -P benchmarks/arrivals.py [--seeds 10] [--repeats 3]`` assigns the trace of tests/data/cluster to three of the
workloads of tests/data/zeus-traces, and runs the command with each policy in turn: all of it counts, the start, policy
`default` on the same arrivals and the file too. The policies alternate, and the least time of each remains.
"""

from __future__ import annotations

import argparse
import csv
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

DATA = Path(__file__).parents[1] / "tests" / "data"
TRACES, CLUSTER = DATA / "zeus-traces", DATA / "cluster"
WATTLOOP = str(Path(sys.executable).parent / "wattloop")
POLICIES = ("zeus", "thompsonSampling", "default")
WORKLOADS = """job,dataset,network,optimizer,target_metric,max_epochs,default_batch_size
vision,cifar100,shufflenetv2,adadelta,0.6,100,1024
ranking,movielens-1m,ncf,adam,0.41,100,1024
language,sentiment140,bert_base_uncased,adamw,0.84,10,128
"""


class Seconds(NamedTuple):
    """Time that passed, and time of the processors."""

    elapsed: float
    of_processors: float


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        recurrences = arguments.seeds * assign(folder)
        taken: dict[str, list[Seconds]] = {policy: [] for policy in POLICIES}
        for _ in range(arguments.repeats):
            for policy in POLICIES:
                taken[policy].append(simulate(folder, policy, arguments.seeds))
    least = {policy: Seconds(*map(min, zip(*each, strict=True))) for policy, each in taken.items()}
    print(f"{recurrences} recurrences on {os.cpu_count()} processors\n")
    print("| policy | recurrences per minute | per minute of processor time | processor time relative to policy zeus |")
    print("|---|---:|---:|---:|")
    for policy, seconds in least.items():
        rates = (recurrences / each * 60 for each in seconds)
        ratio = seconds.of_processors / least["zeus"].of_processors
        print(f"| `{policy}` |", *(f"{rate:,.0f} |" for rate in rates), f"{ratio:.2f} |")


def assign(folder: Path) -> int:
    """Assign the trace of the cluster to workloads; returns the number of recurrences."""
    (folder / "jobs.csv").write_text(WORKLOADS)
    speeds = ("--throughputs", str(CLUSTER / "throughputs.csv"), "--gpu-model", "v100")
    traces = ("--train", str(TRACES / "summary_train.csv"), "--power", str(TRACES / "summary_power_v100.csv"))
    outputs = ("--output", "arrivals.csv", "--output-jobs", "groups.csv")
    run(folder, "assign", "--jobs", "jobs.csv", *traces, "--trace", str(CLUSTER / "2869ce.csv"), *speeds, *outputs)
    with (folder / "arrivals.csv").open(newline="") as file:
        return sum(1 for _ in csv.DictReader(file))


def simulate(folder: Path, policy: str, seeds: int) -> Seconds:
    """Simulate the arrivals by the command and its workers."""
    options = ("--policy", policy, "--seeds", f"1-{seeds}", "--output", "attempts.csv")
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    run(folder, "--jobs", "groups.csv", "--arrivals", "arrivals.csv", *options)
    elapsed = time.monotonic() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor_seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Seconds(elapsed, processor_seconds)


def run(folder: Path, *options: str) -> None:
    """Run `wattloop simulate`."""
    command = [WATTLOOP, "simulate", *options]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


if __name__ == "__main__":
    main()
