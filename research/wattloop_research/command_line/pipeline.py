"""`wattloop pipeline`: analyses, compares, evaluates and emulates pipelines that run under frequency plans."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from wattloop.commands.contract import Command
from wattloop.commands.output import console
from wattloop.errors import UsageError
from wattloop_research.command_line.pipeline_evaluation import (
    EVALUATE_EXAMPLE,
    check_evaluate,
    configure_evaluate,
    evaluate,
)
from wattloop_research.command_line.pipeline_options import (
    add_pipeline_options,
    check_pipeline_options,
    finite,
    write_rows,
)
from wattloop_research.command_line.pipeline_profile import PROFILE_EXAMPLE, check_profile, configure_profile, profile

if TYPE_CHECKING:
    from wattloop_planner.frequency.pipeline.plans import Realised
    from wattloop_research.frequency.recorded_runs import RunSummary

ANALYZE_EXAMPLE = """\
  wattloop pipeline analyze runs
  wattloop pipeline analyze runs --base baseline --warm-up 2"""
COMPARE_EXAMPLE = "  wattloop pipeline compare --plans plans --runs runs --output comparison.png"
EMULATE_EXAMPLE = """\
  wattloop pipeline emulate --profile profile.csv --stages 8 --microbatches 12 --blocking-power 83.64 \\
    --clock-latency 0.01 --noise 0.02 plans/freqs_pipeline_*.py"""
# Of `recorded_runs.DEFAULT_WARM_UP_ITERATIONS`, whose import needs NumPy; a test compares them.
WARM_UP_ITERATIONS = 1
BASE_RUN = 1
PICTURE_SUFFIXES = (".png", ".svg")


def _configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    _configure_analyze(_action(actions, "analyze", "time and energy of recorded runs", ANALYZE_EXAMPLE))
    _configure_compare(_action(actions, "compare", "draw recorded runs, plans and baselines", COMPARE_EXAMPLE))
    configure_profile(_action(actions, "profile", "make a profile of exported or dumped runs", PROFILE_EXAMPLE))
    configure_evaluate(
        _action(actions, "evaluate", "savings of all experiments of a folder, as tables and pictures", EVALUATE_EXAMPLE)
    )
    _configure_emulate(_action(actions, "emulate", "run plans in virtual time, with clock latency", EMULATE_EXAMPLE))


def _action(
    actions: argparse._SubParsersAction[argparse.ArgumentParser], name: str, summary: str, example: str
) -> argparse.ArgumentParser:
    return actions.add_parser(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"example:\n{example}",
    )


def _configure_analyze(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", help="folder with N.prof.json files; N orders the runs")
    parser.add_argument(
        "--base",
        metavar="DIR",
        help="folder with the runs of a baseline, to compare with (default: with the first run of DIR)",
    )
    parser.add_argument(
        "--base-run",
        type=int,
        metavar="N",
        help="run of --base (default: the last one at the highest power limit, as N.sched.json has it; without these "
        f"files run {BASE_RUN}, after run 0, which warms up)",
    )
    _add_warm_up(parser)
    parser.add_argument(
        "--format", choices=("table", "csv", "json"), default="table", help="json has each instruction (default: table)"
    )


def _configure_compare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--plans", metavar="DIR", help="folder written by `wattloop plan` (default: draw only what was measured)"
    )
    parser.add_argument("--runs", metavar="DIR", required=True, help="folder with N.prof.json files")
    parser.add_argument(
        "--baseline",
        metavar="DIR",
        action="append",
        default=[],
        help="folder with the runs of a baseline to draw beside them, such as power limits; a run with the limits of a "
        "later one warms up and is left out, and run 0 without N.sched.json; may be repeated",
    )
    parser.add_argument(
        "--pipelines",
        type=int,
        metavar="D",
        default=1,
        help="number of data-parallel pipelines of a run, by which its energy is divided (default: 1)",
    )
    _add_warm_up(parser)
    parser.add_argument("--output", metavar="FILE", required=True, help="picture, .png or .svg")


def _add_warm_up(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--warm-up",
        type=int,
        metavar="N",
        default=WARM_UP_ITERATIONS,
        help=f"number of first iterations to exclude (default: {WARM_UP_ITERATIONS})",
    )


def _configure_emulate(parser: argparse.ArgumentParser) -> None:
    add_pipeline_options(parser)
    parser.add_argument(
        "--clock-latency",
        type=float,
        metavar="SECONDS",
        default=0.01,
        help="time from the request of a clock until it is in effect (default: 0.01)",
    )
    parser.add_argument(
        "--lead", type=float, metavar="SECONDS", default=0.0, help="request clocks this long ahead (default: 0)"
    )
    parser.add_argument(
        "--noise", type=float, metavar="SD", default=0.0, help="relative standard deviation of times (default: 0)"
    )
    parser.add_argument(
        "--slow-stage",
        type=_slow_stage,
        metavar="STAGE:FACTOR",
        action="append",
        default=[],
        help="a stage that is slower than profiled by this factor; may be repeated",
    )
    parser.add_argument(
        "--straggler",
        type=float,
        metavar="SLOWDOWN",
        help="another pipeline takes this many times the time of an iteration at maximum clocks",
    )
    parser.add_argument("--iterations", type=int, metavar="N", default=20, help="iterations of a plan (default: 20)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the noise (default: 0)")
    parser.add_argument(
        "--group",
        metavar="DIR",
        help="write the plans with groups of operations that share a clock into this folder, where they are better",
    )
    parser.add_argument("--format", choices=("csv", "json"), default="csv", help="default: csv")
    parser.add_argument("files", nargs="+", metavar="PLAN", help="plan file of `wattloop plan` or of Lowtime")


def _slow_stage(text: str) -> tuple[int, float]:
    stage, _, factor = text.partition(":")
    try:
        return int(stage), float(factor)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: must be STAGE:FACTOR, for example 2:1.1") from None


def _check(arguments: argparse.Namespace) -> None:
    if arguments.action == "analyze" and arguments.base is None and arguments.base_run is not None:
        raise UsageError(f"--base-run {arguments.base_run}: is a run of --base, which is missing")
    if arguments.action == "evaluate":
        check_evaluate(arguments)
    if arguments.action == "profile":
        check_profile(arguments)
    if arguments.action == "compare":
        if not str(arguments.output).endswith(PICTURE_SUFFIXES):
            raise UsageError(f"--output {arguments.output}: must end with {' or '.join(PICTURE_SUFFIXES)}")
        if arguments.pipelines < 1:
            raise UsageError(f"--pipelines {arguments.pipelines}: must be at least 1")
    if arguments.action == "emulate":
        check_pipeline_options(arguments, "wattloop pipeline emulate")
        if arguments.straggler is not None and not 1 <= arguments.straggler < math.inf:
            raise UsageError(f"--straggler {arguments.straggler:g}: must be a finite number of at least 1")
        if arguments.seed < 0:
            raise UsageError(f"--seed {arguments.seed}: must be at least 0")


def _run(arguments: argparse.Namespace) -> int:
    actions = {"analyze": _analyze, "compare": _compare, "evaluate": evaluate, "profile": profile, "emulate": _emulate}
    return actions[arguments.action](arguments)


def _analyze(arguments: argparse.Namespace) -> int:
    found = _summaries(arguments.folder, arguments.warm_up)
    base = found[0] if arguments.base is None else _base(arguments)
    rows = [_row(summary, base) for summary in found]
    if arguments.format == "json":
        documents = [
            row | {"instructions": {name: asdict(mean) for name, mean in summary.instructions.items()}}
            for row, summary in zip(rows, found, strict=True)
        ]
        sys.stdout.write(json.dumps(finite(documents), indent=2, allow_nan=False) + "\n")
    elif arguments.format == "csv":
        write_rows(rows)
    else:
        _print_table(found, base)
    return 0


def _base(arguments: argparse.Namespace) -> RunSummary:
    """The run of the baseline that the others are compared with."""
    from wattloop_research.frequency.files.recorded_run_file import limit_runs

    summaries = {summary.number: summary for summary in _summaries(arguments.base, arguments.warm_up)}
    number = arguments.base_run
    if number is None:
        number = next(iter(limit_runs(arguments.base, summaries)), BASE_RUN)
    if number in summaries:
        return summaries[number]
    listed = ", ".join(map(str, summaries))
    raise UsageError(f"--base-run {number}: {arguments.base} has the runs {listed}; name one of them")


def _summaries(folder: str, warm_up_iterations: int) -> list[RunSummary]:
    from wattloop_research.frequency.files.recorded_run_file import read_runs
    from wattloop_research.frequency.recorded_runs import run_summary

    return [run_summary(found, warm_up_iterations) for found in read_runs(folder)]


def _row(summary: RunSummary, first: RunSummary) -> dict[str, float]:
    return {
        "run": summary.number,
        "ranks": summary.ranks,
        "iterations": summary.iterations,
        "time_seconds": summary.time_seconds,
        "time_error_seconds": summary.time_error_seconds,
        "energy_joules": summary.energy_joules,
        "energy_error_joules": summary.energy_error_joules,
        "average_power_watts": summary.average_power_watts,
        "slowdown_percent": summary.slowdown_percent(first),
        "energy_reduction_percent": summary.reduction_percent(first),
    }


def _print_table(found: Sequence[RunSummary], base: RunSummary) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in ("run", "ranks", "iterations", "time", "energy", "power", "slowdown", "energy saved"):
        table.add_column(name, justify="right")
    for summary in found:
        table.add_row(
            str(summary.number),
            str(summary.ranks),
            str(summary.iterations),
            f"{summary.time_seconds:.4g} ± {summary.time_error_seconds:.2g} s",
            f"{summary.energy_joules:.5g} ± {summary.energy_error_joules:.2g} J",
            f"{summary.average_power_watts:.4g} W",
            f"{summary.slowdown_percent(base):.2f} %",
            f"{summary.reduction_percent(base):.2f} %",
        )
    console(width=None if sys.stdout.isatty() else 120).print(table)


def _compare(arguments: argparse.Namespace) -> int:
    from wattloop_research.frequency.files.recorded_run_file import limit_runs, plans_of_runs
    from wattloop_research.frequency.plots.frontier_figure import write_comparison

    runs = _realised(arguments.runs, arguments)
    baselines = {}
    for folder in arguments.baseline:
        points = _realised(folder, arguments)
        baselines[Path(folder).name] = [points[number] for number in limit_runs(folder, points)]
    names = plans_of_runs(arguments.runs, runs)
    write_comparison(arguments.output, arguments.plans, runs, baselines, plan_names=names)
    return 0


def _realised(folder: str, arguments: argparse.Namespace) -> dict[int, Realised]:
    """Time and energy of an iteration of one pipeline in each run of a folder, by number of the run."""
    from wattloop_planner.frequency.pipeline.plans import Realised

    return {
        summary.number: Realised(summary.time_seconds, summary.energy_joules / arguments.pipelines)
        for summary in _summaries(folder, arguments.warm_up)
    }


def _emulate(arguments: argparse.Namespace) -> int:
    from wattloop_research.command_line.pipeline_emulation import emulate

    return emulate(arguments)


COMMAND = Command(
    description="Analyses, compares, evaluates and emulates pipelines that run under frequency plans.",
    example=f"{ANALYZE_EXAMPLE}\n{COMPARE_EXAMPLE}\n{EVALUATE_EXAMPLE}\n{PROFILE_EXAMPLE}\n{EMULATE_EXAMPLE}",
    configure=_configure,
    run=_run,
    check=_check,
)
