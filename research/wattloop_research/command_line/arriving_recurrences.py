"""``wattloop simulate --arrivals``: recurrences that arrive at given times, and may overlap."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from wattloop.errors import UsageError

if TYPE_CHECKING:
    from wattloop_research.simulation.arrivals import ArrivalTotals
    from wattloop_research.simulation.simulation_options import JobOptions
    from wattloop_research.simulation.tasks import TaskGroup, TaskResult

OVERLAPS = ("best-known", "posterior")
MAX_SLOTS = 1_000_000


def add_arrival_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of recurrences that arrive."""
    group = parser.add_argument_group("recurrences that arrive")
    group.add_argument(
        "--arrivals",
        metavar="FILE",
        help="CSV: arrival_seconds,job in order of time, one row per recurrence of a job of --jobs. A recurrence is "
        "decided by what has ended when it starts. `wattloop simulate assign` makes this file of a cluster's trace",
    )
    group.add_argument(
        "--slots",
        type=_slots,
        metavar="N",
        help="recurrences that can run at once, in the order of their arrivals (default: any number, so none waits)",
    )
    group.add_argument(
        "--overlap",
        choices=OVERLAPS,
        metavar="RULE",
        help="what policy zeus runs while attempts of the job are in flight: best-known (the default) runs the "
        "cheapest batch size so far, as in the published simulation; posterior samples, as the published server does "
        "after its pruning stage",
    )


def _slots(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if not 1 <= number <= MAX_SLOTS:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a whole number from 1 to {MAX_SLOTS}")
    return number


def check_arrival_options(arguments: argparse.Namespace) -> None:
    """Check the options against each other.

    Raises:
        UsageError: An option needs another one, or excludes it.
    """
    if arguments.arrivals is None:
        for name in ("slots", "overlap"):
            if getattr(arguments, name) is not None:
                raise UsageError(f"--{name} has a meaning only with --arrivals FILE")
        return
    if not arguments.jobs:
        raise UsageError("--arrivals names jobs: give them with --jobs FILE")
    if arguments.picture:
        raise UsageError("--picture draws recurrences in sequence: leave it out with --arrivals")


def arriving(arguments: argparse.Namespace, jobs: Sequence[JobOptions]) -> list[TaskGroup]:
    """The jobs on the arrivals."""
    from wattloop_research.simulation.arrivals import arriving_groups, check_arriving, read_arrivals
    from wattloop_research.simulation.tasks import TraceFiles, tasks_of

    check_arriving(jobs, arguments.slots)
    arrivals = read_arrivals(arguments.arrivals, jobs)
    files = TraceFiles()
    tasks = [task for options in jobs if options.job in arrivals for task in tasks_of(options, files)]
    return arriving_groups(tasks, arrivals, arguments.slots, arguments.overlap or OVERLAPS[0])


def print_totals(jobs: Sequence[JobOptions], results: Sequence[TaskResult]) -> None:
    """Print the totals of each job, and of all."""
    ran = {result.task.options.job for result in results}
    idle = [options.job for options in jobs if options.job not in ran]
    if idle:
        sys.stderr.write(f"{len(idle)} of the jobs have no arrival and did not run: {', '.join(idle[:10])}\n")
    ordered = sorted(results, key=lambda each: (each.task.options.job, each.task.seed))
    complete: list[TaskResult] = []
    for name, of_job in groupby(ordered, key=lambda each: each.task.options.job):
        found = list(of_job)
        for result in found:
            if result.failure:
                sys.stderr.write(
                    f"{name}, seed {result.task.seed}: ended after {len(result.attempts)} attempts, and is "
                    f"excluded below: {result.failure}\n"
                )
        left = [result for result in found if not result.failure]
        complete += left
        if left:
            sys.stderr.write(f"{name}: {_totals_text(left)}\n")
    number = len({each.task.options.job for each in complete})
    if number > 1:
        sys.stderr.write(f"all {number} jobs: {_totals_text(complete)}\n")


def _totals_text(results: Sequence[TaskResult]) -> str:
    """The totals over the jobs, as the mean over the seeds, and the range of the cost against policy `default`."""
    from wattloop_research.simulation.arrivals import mean_totals, totals_of

    by_seed: dict[int, list[tuple[ArrivalTotals, ArrivalTotals]]] = {}
    for each in results:
        pair = totals_of(each.arrivals, each.attempts), totals_of(each.arrivals, each.default_result.attempts)
        by_seed.setdefault(each.task.seed, []).append(pair)
    own = mean_totals([[mine for mine, _ in pairs] for pairs in by_seed.values()])
    default = mean_totals([[theirs for _, theirs in pairs] for pairs in by_seed.values()])
    ratios = [
        sum(mine.cost_joules for mine, _ in pairs) / sum(theirs.cost_joules for _, theirs in pairs)
        for pairs in by_seed.values()
    ]
    overlapping = 100 * own.overlapping / own.attempts
    later = own.waiting_seconds - default.waiting_seconds
    return (
        f"{own.recurrences:g} recurrences, mean of {len(by_seed)} seeds: energy {own.energy_joules:.6g} J, training "
        f"time {own.time_seconds:.6g} s, mean wait {own.waiting_seconds / own.recurrences:.4g} s; against policy "
        f"default: energy {own.energy_joules / default.energy_joules:.4f}, time "
        f"{own.time_seconds / default.time_seconds:.4f}, cost {own.cost_joules / default.cost_joules:.4f} "
        f"({min(ratios):.4f} to {max(ratios):.4f}), wait {later:+.4g} s in all; "
        f"{overlapping:.1f} % of {own.attempts:g} attempts began while others of their job ran; "
        f"{own.unreached:g} recurrences did not reach the target"
    )
