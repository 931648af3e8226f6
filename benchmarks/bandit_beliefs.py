"""How often the stated intervals of 90 % contain what a run then costs, on 500 simulated jobs of each kind.

Run from the repository's root:

    .venv/bin/python -P benchmarks/bandit_beliefs.py [--jobs 500]

It prints the table of docs/decisions/bandit.md. The jobs are those of tests/support/noisy_jobs.py. "width" is the upper
end of an interval over its lower end, the median of all.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.noisy_jobs import Kind, Stated, stated_intervals
from wattloop_research.simulation.process_pool import map_in_processes

# Runs of a batch size before an interval of it was stated.
GROUPS = ((0, 0), (1, 1), (2, 3), (4, 99))


def cells(stated: Sequence[Stated]) -> str:
    """Share of the intervals that contain the cost, and their width."""
    if not stated:
        return "–"
    share = 100 * sum(each.contains for each in stated) / len(stated)
    return f"{share:.1f} %, {median(each.width for each in stated):.2f}"


def main() -> int:
    """Simulate and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=500, help="jobs of each kind (default: 500)")
    arguments = parser.parse_args()
    print("| jobs | all | no run | 1 run | 2 or 3 runs | more |", "|---|--:|--:|--:|--:|--:|", sep="\n")
    for kind in Kind:
        simulate = partial(stated_intervals, kind)
        jobs = map_in_processes(simulate, range(arguments.jobs), len(os.sched_getaffinity(0)), lambda _: None)
        stated = [each for of_job in jobs for each in of_job]
        groups = ([each for each in stated if least <= each.runs <= most] for least, most in GROUPS)
        print(f"| {kind} | {' | '.join(map(cells, (stated, *groups)))} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
