"""Measures how many attempts end at a plateau, and how many of those would have reached their target.

``PYTHONPATH=tests python benchmarks/plateaus.py [--seeds 200]`` prints the table of docs/unreached-target.md. It
takes ten minutes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from statistics import median

from support.plateau_measurement import MEASURED, Tally, measured_jobs, misleading_jobs, plateau_jobs, tally_of
from support.synthetic_jobs import KINDS

# Seeds of plateau jobs for each seed of a kind of misleading jobs.
PLATEAU_JOBS_PER_SEED = 10


def line(name: str, tally: Tally) -> str:
    """One row of the table."""
    at = f"{100 * median(tally.shares):.0f} %" if tally.shares else "–"
    cover = f"{100 * tally.covered / tally.predictions:.0f} %" if tally.predictions else "–"
    bound = f"{100 * tally.upper_bound:.2g} %" if tally.ended else "–"
    return f"| {name} | {tally.runs} | {tally.missing} | {tally.ended} | {tally.wrong} | {bound} | {at} | {cover} |"


def main(arguments: Sequence[str]) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="seeds of each kind of misleading jobs")
    seeds = parser.parse_args(arguments).seeds
    print("| curves | runs | miss the target | ended | would have reached | 95 % bound | median end | 90 % interval |")
    print("|---|---|---|---|---|---|---|---|")
    for name in MEASURED:
        print(line(name, tally_of(measured_jobs(name, orders=20))), flush=True)
    for kind in KINDS:
        print(line(kind, tally_of(misleading_jobs(kind, seeds))), flush=True)
    print(line("plateau jobs", tally_of(plateau_jobs(range(PLATEAU_JOBS_PER_SEED * seeds)))), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
