"""What policy `thompsonSampling` pays over one that knows the start-ups of a job, on 200 simulated jobs.

Run from the repository's root:

    .venv/bin/python -P benchmarks/bandit_start_ups.py [--jobs 200]

It prints the table of docs/bandit-measurements.md. The jobs are those of tests/support/start_up_jobs.py, 40
recurrences each. "stuck" counts jobs with a recurrence that did not reach its target.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import defaultdict
from pathlib import Path
from statistics import fmean, median

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.start_up_jobs import RECURRENCES, excess
from wattloop_planner.observations import Outcome
from wattloop_planner.simulation.process_pool import map_in_processes


def result_of(seed: int) -> tuple[str, float, int, int, int]:
    """Kind of a job, excess of its policy, recurrences without the target, its seed, and stopped attempts."""
    job, ratio, attempts = excess(seed)
    outcomes = [each.outcome for each in attempts]
    missed = RECURRENCES - outcomes.count(Outcome.REACHED)
    return job.kind.value, ratio, missed, seed, outcomes.count(Outcome.STOPPED)


def main() -> int:
    """Simulate and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=200, help="number of jobs (default: 200)")
    jobs = parser.parse_args().jobs
    by_kind: dict[str, list[tuple[float, int, int]]] = defaultdict(list)
    for kind, ratio, missed, seed, stopped in map_in_processes(
        result_of, range(jobs), len(os.sched_getaffinity(0)), lambda _: None
    ):
        for name in (kind, "all"):
            by_kind[name].append((ratio, missed, seed))
        sys.stderr.write(f"{seed} {kind} {ratio:.4f} {stopped} stopped\n")
    sys.stdout.write(
        "| start-ups | jobs | mean | median | jobs over 1.03 | max | stuck |\n|---|--:|--:|--:|--:|--:|--:|\n"
    )
    for name, found in by_kind.items():
        ratios = [ratio for ratio, _, _ in found]
        over, stuck = sum(ratio > 1.03 for ratio in ratios), sum(missed > 0 for _, missed, _ in found)
        figures = f"{fmean(ratios):.4f} | {median(ratios):.4f} | {over} | {max(ratios):.3f} | {stuck}"
        sys.stdout.write(f"| {name} | {len(found)} | {figures} |\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
