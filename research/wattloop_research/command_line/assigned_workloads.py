"""``wattloop simulate assign``: the trace of a cluster as recurrences of measured workloads."""

from __future__ import annotations

import argparse
import sys

from wattloop.errors import UsageError
from wattloop.files.atomic_write import open_atomic
from wattloop.files.csv_table import write_csv_table
from wattloop_research.simulation.simulation_options import (
    OPTIONS,
    JobOptions,
    flag_of,
    options_of_jobs_file,
    required_options,
)

EXAMPLE = """  wattloop simulate assign --trace trace.csv --throughputs throughputs.csv --gpu-model v100 \\
    --jobs workloads.csv --output arrivals.csv --output-jobs groups.csv
  wattloop simulate --jobs groups.csv --arrivals arrivals.csv --output cluster.csv"""
# What a job of the output needs from its workload; the rest may come from the command line again.
JOB_COLUMNS = ("job", *required_options(), "gpu", "eta")


def add_assign_action(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the action ``assign``."""
    parser = actions.add_parser(
        "assign",
        help="make --arrivals and --jobs of a cluster's trace",
        description="Assigns each group of a cluster's trace to a measured workload by duration: the mean durations of "
        "the groups are divided into as many clusters as there are workloads (k-means), and both are matched in order. "
        "Each group becomes a job of its own, with the arrivals of the trace.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"example:\n{EXAMPLE}",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--trace",
        metavar="FILE",
        required=True,
        help="CSV in order of time: arrival_seconds, and group,duration_seconds or model,batch_size,gpus,steps",
    )
    parser.add_argument(
        "--throughputs",
        metavar="FILE",
        help="CSV: gpu_model,model,batch_size,gpus,steps_per_second, for a trace with steps; rows with a beside_model "
        "are left out",
    )
    parser.add_argument("--gpu-model", metavar="NAME", help="the GPU model of --throughputs on which the groups ran")
    parser.add_argument("--jobs", metavar="FILE", required=True, help="CSV: one workload per row, as for simulate")
    for name in required_options():
        parser.add_argument(flag_of(name), dest=name, metavar=name.upper(), help=OPTIONS[name].meaning)
    parser.add_argument(
        "--output", metavar="FILE", required=True, help="CSV: the arrivals, with workload and trace_seconds"
    )
    parser.add_argument("--output-jobs", metavar="FILE", required=True, help="CSV: one row per group, for --jobs")


def assign(arguments: argparse.Namespace) -> int:
    """Write the arrivals and the jobs of a trace.

    Raises:
        UsageError: Options exclude or need each other, or two workloads have one name.
        InputError: A file is invalid.
    """
    from wattloop_research.simulation.cluster_trace import (
        assigned_workloads,
        expected_seconds,
        read_cluster_trace,
        read_throughputs,
    )
    from wattloop_research.simulation.tasks import TraceFiles, tasks_of

    if (arguments.throughputs is None) != (arguments.gpu_model is None):
        raise UsageError("--throughputs and --gpu-model require each other: the file has several GPU models")
    workloads = list(options_of_jobs_file(arguments.jobs, {name: getattr(arguments, name, None) for name in OPTIONS}))
    files = TraceFiles()
    seconds = [expected_seconds(tasks_of(options, files)[0].scenario) for options in workloads]
    throughputs = None
    if arguments.throughputs is not None:
        throughputs = read_throughputs(arguments.throughputs, arguments.gpu_model)
    groups = read_cluster_trace(arguments.trace, throughputs)
    chosen = assigned_workloads(groups, seconds)
    with open_atomic(arguments.output) as stream:
        rows = sorted(
            (arrival, number, duration)
            for number, group in enumerate(groups)
            for arrival, duration in zip(group.arrivals, group.durations, strict=True)
        )
        cells = (
            (f"{arrival:.10g}", groups[number].name, workloads[chosen[number]].job, f"{duration:.10g}")
            for arrival, number, duration in rows
        )
        write_csv_table(stream, ("arrival_seconds", "job", "workload", "trace_seconds"), cells)
    with open_atomic(arguments.output_jobs) as stream:
        jobs = (_job_cells(group.name, workloads[index]) for group, index in zip(groups, chosen, strict=True))
        write_csv_table(stream, JOB_COLUMNS, jobs)
    for index in sorted(range(len(workloads)), key=seconds.__getitem__):
        assigned = [group for group, workload in zip(groups, chosen, strict=True) if workload == index]
        recurrences = sum(len(group.arrivals) for group in assigned)
        bounds = [group.mean_seconds for group in assigned]
        spans = f", mean durations {min(bounds):.4g} to {max(bounds):.4g} s" if bounds else ""
        sys.stderr.write(
            f"{workloads[index].job} ({seconds[index]:.4g} s expected): {len(assigned)} groups, {recurrences} "
            f"recurrences{spans}\n"
        )
    return 0


def _job_cells(name: str, workload: JobOptions) -> list[object]:
    return [name, *(_cell(getattr(workload, column)) for column in JOB_COLUMNS[1:])]


def _cell(value: object) -> object:
    return f"{value:.10g}" if isinstance(value, float) else value
