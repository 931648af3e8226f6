"""`wattloop simulate`: recurrences on measured traces."""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from wattloop.commands.contract import Command
from wattloop.commands.output import console
from wattloop.errors import UsageError
from wattloop.files.atomic_write import open_atomic
from wattloop_research.command_line.assigned_workloads import add_assign_action, assign
from wattloop_research.simulation.simulation_options import (
    OPTIONS,
    check_required,
    flag_of,
    options_of_command,
    options_of_jobs_file,
    required_options,
)

if TYPE_CHECKING:
    from wattloop_research.simulation.arrivals import ArrivalTotals
    from wattloop_research.simulation.simulation_options import JobOptions
    from wattloop_research.simulation.tasks import TaskGroup, TaskResult

OVERLAPS = ("best-known", "posterior")
MAX_SLOTS = 1_000_000
OUTPUT = "CSV: one row per attempt; - for stdout"
MAX_LINE_CHARACTERS = 79


def _add_arrival_options(parser: argparse.ArgumentParser) -> None:
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


def _check_arrival_options(arguments: argparse.Namespace) -> None:
    if arguments.arrivals is None:
        for name in ("slots", "overlap"):
            if getattr(arguments, name) is not None:
                raise UsageError(f"--{name} has a meaning only with --arrivals FILE")
        return
    if not arguments.jobs:
        raise UsageError("--arrivals names jobs: give them with --jobs FILE")
    if arguments.picture:
        raise UsageError("--picture draws recurrences in sequence: leave it out with --arrivals")


def _arriving(arguments: argparse.Namespace, jobs: Sequence[JobOptions]) -> list[TaskGroup]:
    from wattloop_research.simulation.arrivals import arriving_groups, check_arriving, read_arrivals
    from wattloop_research.simulation.tasks import TraceFiles, tasks_of

    check_arriving(jobs, arguments.slots)
    arrivals = read_arrivals(arguments.arrivals, jobs)
    files = TraceFiles()
    tasks = [task for options in jobs if options.job in arrivals for task in tasks_of(options, files)]
    return arriving_groups(tasks, arrivals, arguments.slots, arguments.overlap or OVERLAPS[0])


def _print_totals(jobs: Sequence[JobOptions], results: Sequence[TaskResult]) -> None:
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


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = _usage()
    parser.add_argument(
        "--jobs", metavar="FILE", help="CSV: one job per row, with these options as columns, with underscores"
    )
    parser.add_argument("--output", metavar="FILE", help=f"{OUTPUT}; required")
    _add_arrival_options(parser)
    parser.add_argument("--picture", metavar="FILE", help="PNG: mean regret of each policy over the jobs and seeds")
    workload = parser.add_argument_group("the workload", "all required, here or in every row of --jobs")
    further = parser.add_argument_group("further options")
    for name, option in OPTIONS.items():
        default = f" (default: {option.default})" if option.default else ""
        group = workload if option.default is None else further
        group.add_argument(flag_of(name), dest=name, metavar=name.upper(), help=f"{option.meaning}{default}")
    add_assign_action(parser.add_subparsers(dest="action", metavar="ACTION", title="another action"))


def _usage() -> str:
    """The two forms of the command, with all options that each requires."""
    required = [f"{flag_of(name)}={name.upper()}" for name in required_options()]
    words = " ".join(["--output=FILE", *required, "[OPTIONS]"])
    start = "       wattloop simulate "
    lines = textwrap.fill(
        words, MAX_LINE_CHARACTERS, initial_indent=start, subsequent_indent=" " * len(start), break_on_hyphens=False
    )
    return f"%(prog)s --output=FILE --jobs=FILE [OPTIONS]\n{lines}"


def _check(arguments: argparse.Namespace) -> None:
    if arguments.action == "assign":
        return
    _check_arrival_options(arguments)
    given = {name: getattr(arguments, name) for name in OPTIONS}
    if arguments.output is None and arguments.jobs:
        raise UsageError(f"--output is missing: {OUTPUT}")
    if arguments.output is None:
        check_required(given, "the command line", [f"--output: {OUTPUT}"])
    if not arguments.jobs:
        options_of_command(given)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.action == "assign":
        return assign(arguments)
    from wattloop_research.simulation.attempt_rows import write_attempts
    from wattloop_research.simulation.tasks import TraceFiles, in_sequence, tasks_of

    given = {name: getattr(arguments, name) for name in OPTIONS}
    jobs = list(options_of_jobs_file(arguments.jobs, given)) if arguments.jobs else [options_of_command(given)]
    arrive = arguments.arrivals is not None
    if arrive:
        groups = _arriving(arguments, jobs)
    else:
        files = TraceFiles()
        groups = [in_sequence(task) for options in jobs for task in tasks_of(options, files)]
    results = _with_progress(groups)
    with open_atomic(arguments.output) as stream:
        attempts = ((each.task.options, each.task.seed, attempt) for each in results for attempt in each.attempts)
        write_attempts(stream, attempts, with_times=arrive)
    if arguments.picture:
        _draw_regret(arguments.picture, results)
    if arrive:
        _print_totals(jobs, results)
    else:
        _print_summaries(results)
    return 0


def _with_progress(groups: Sequence[TaskGroup]) -> list[TaskResult]:
    from wattloop_research.simulation.tasks import run_groups

    if not sys.stderr.isatty():
        return run_groups(groups, lambda _: None)
    from rich.progress import Progress

    with Progress(console=console(stderr=True), transient=True) as progress:
        bar = progress.add_task("recurrences", total=sum(group.recurrences for group in groups))
        return run_groups(groups, lambda group: progress.advance(bar, group.recurrences))


def _draw_regret(path: str, results: Sequence[TaskResult]) -> None:
    from wattloop_research.policy_figures import mean_curve, regret_curve, write_regret_plot

    curves: dict[str, list[list[float]]] = {}
    for each in results:
        if each.summary is not None:
            curve = regret_curve(each.task.scenario, each.attempts)
            curves.setdefault(each.task.options.policy, []).append(curve)
    jobs = len({(each.task.options.job, each.task.options.gpu) for each in results})
    title = f"Mean regret over {jobs} {'job' if jobs == 1 else 'jobs'} and their seeds"
    write_regret_plot(path, title, {policy: mean_curve(found) for policy, found in curves.items()})


def _print_summaries(results: Sequence[TaskResult]) -> None:
    from wattloop_research.simulation.simulation_summary import mean_summary

    for options, of_job in groupby(results, key=lambda result: result.task.options):
        found = list(of_job)
        summaries = [result.summary for result in found if result.summary is not None]
        name = f"{options.job}{f' on {options.gpu}' if options.gpu else ''}, policy {options.policy}"
        for result in found:
            if result.failure:
                last = result.attempts[-1].recurrence if result.attempts else 0
                sys.stderr.write(
                    f"{name}, seed {result.task.seed}: ended in recurrence {last} and is excluded below: "
                    f"{result.failure}\n"
                )
        scenario = found[0].task.scenario
        targets = {scenario.target_of(recurrence) for recurrence in range(scenario.recurrences)}
        for target in sorted(targets):
            if not scenario.trace.is_reachable(target, scenario.max_epochs):
                sys.stderr.write(
                    f"{name}: no batch size reaches target {target:g} within {scenario.max_epochs} epochs: its "
                    "recurrences are dead, and their costs are relative to one attempt with the cheapest batch size\n"
                )
        if not summaries:
            continue
        mean = mean_summary(summaries)
        sys.stderr.write(
            f"{name}, {len(summaries)} seeds: cost relative to the best fixed choice: first 20 {mean.first_20:.4f}, "
            f"first 50 {mean.first_50:.4f}, all {mean.overall:.4f}, last five {mean.last_five:.4f}; largest cumulative "
            f"loss against default {mean.max_loss:.3f} (at most {max(s.max_loss for s in summaries):.3f}) default "
            f"runs; dead recurrences {mean.dead}\n"
        )


COMMAND = Command(
    description=(
        "Simulates a recurring training job, or a file of jobs, on measured traces: every recurrence draws a measured "
        "training path, the policy chooses the batch size, and the cost of every attempt counts."
    ),
    example=(
        "  wattloop simulate --train summary_train.csv --power summary_power_a40.csv --dataset cifar100 \\\n"
        "    --network shufflenetv2 --optimizer adadelta --target-metric 0.6 --max-epochs 100 \\\n"
        "    --default-batch-size 1024 --seeds 1-20 --output recurrences.csv\n"
        "  wattloop simulate --jobs jobs.csv --policy zeus --output zeus.csv\n"
        "  wattloop simulate --jobs groups.csv --arrivals arrivals.csv --output cluster.csv"
    ),
    configure=_configure,
    run=_run,
    check=_check,
)
