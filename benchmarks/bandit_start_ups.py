"""What policy `thompsonSampling` pays over one that knows the start-ups of a job, on 200 simulated jobs.

Run from the repository's root:

    .venv/bin/python -P benchmarks/bandit_start_ups.py [--jobs 200] [--first 0]

It prints the tables of benchmarks/bandit.md. The jobs are those of tests/support/start_up_jobs.py, 40
recurrences each. "stuck" counts jobs with a recurrence that did not reach its target. A policy draws no random numbers
here, because no two attempts run at once. So the second table shows by how much two runs of the policy that knows the
start-ups differ by chance, where the same draws come in another order.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median, quantiles

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.start_up_jobs import RECURRENCES, Attempt, Comparison, Kind
from wattloop_planner.observations import Outcome
from wattloop_research.simulation.process_pool import map_in_processes

# A job that costs more than this over the reference is counted, and printed.
MAX_RATIO = 1.03


def comparison(seed: int) -> tuple[Comparison, float]:
    """The comparison of a seed's job, and what chance does to its reference."""
    found = Comparison.of(seed)
    return found, found.chance()


def missed(attempts: Sequence[Attempt]) -> int:
    """Recurrences that did not reach the target."""
    return RECURRENCES - sum(each.outcome is Outcome.REACHED for each in attempts)


def table(title: str, ratios_by_kind: dict[str, list[float]]) -> str:
    """A Markdown table with a row for each kind of start-ups."""
    lines = [
        f"| {title} | jobs | mean | median | 5 % to 95 % | jobs over {MAX_RATIO} | max |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for name, ratios in ratios_by_kind.items():
        low, *_, high = quantiles(ratios, n=20, method="inclusive") if len(ratios) > 1 else ratios * 2
        over = sum(ratio > MAX_RATIO for ratio in ratios)
        figures = f"{fmean(ratios):.4f} | {median(ratios):.4f} | {low:.3f} to {high:.3f} | {over} | {max(ratios):.3f}"
        lines.append(f"| {name} | {len(ratios)} | {figures} |")
    return "\n".join(lines) + "\n"


def dearest(found: Sequence[Comparison]) -> str:
    """The jobs above the bound, and their batch sizes in the order of their attempts."""
    lines = []
    for each in sorted(found, key=lambda each: -each.ratio):
        if each.ratio > MAX_RATIO:
            ran = " ".join(f"{a.batch_size}{'' if a.outcome is Outcome.REACHED else '!'}" for a in each.attempts[:14])
            slow = ", ".join(map(str, sorted(each.job.slow_sizes)))
            lines.append(f"{each.job.seed} {each.job.kind.value} {each.ratio:.3f} (slow {slow}): {ran} ...")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Simulate and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=200, help="number of jobs, at least 5 (default: 200)")
    parser.add_argument("--first", type=int, default=0, help="seed of the first job (default: 0)")
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.jobs)
    names = [*(kind.value for kind in Kind), "all"]
    ratios: dict[str, list[float]] = {name: [] for name in names}
    chances: dict[str, list[float]] = {name: [] for name in names}
    comparisons: list[Comparison] = []
    for found, chance in map_in_processes(comparison, seeds, len(os.sched_getaffinity(0)), lambda _: None):
        comparisons.append(found)
        for name in (found.job.kind.value, "all"):
            ratios[name].append(found.ratio)
            chances[name].append(chance)
    sys.stderr.write(dearest(comparisons))
    sys.stdout.write(table("start-ups", ratios))
    sys.stdout.write(f"\nstuck: {sum(missed(each.attempts) > 0 for each in comparisons)} jobs\n\n")
    sys.stdout.write(table("reference in another order", chances))
    return 0


if __name__ == "__main__":
    sys.exit(main())
