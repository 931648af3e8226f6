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
from wattloop_research.command_line.arriving_recurrences import (
    add_arrival_options,
    arriving,
    check_arrival_options,
    print_totals,
)
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
    from wattloop_research.simulation.tasks import TaskGroup, TaskResult

OUTPUT = "CSV: one row per attempt; - for stdout"
MAX_LINE_CHARACTERS = 79


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = _usage()
    parser.add_argument(
        "--jobs", metavar="FILE", help="CSV: one job per row, with these options as columns, with underscores"
    )
    parser.add_argument("--output", metavar="FILE", help=f"{OUTPUT}; required")
    add_arrival_options(parser)
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
    check_arrival_options(arguments)
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
        groups = arriving(arguments, jobs)
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
        print_totals(jobs, results)
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
