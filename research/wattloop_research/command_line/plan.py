"""`wattloop plan`: GPU frequency plans of a training pipeline."""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from wattloop.commands.contract import Command
from wattloop.errors import InputError, OperationError, UsageError
from wattloop.files.reading import read_text
from wattloop.pipeline.rank_plan_file import MAX_FILE_BYTES, PLAN_FILE
from wattloop.wire.training_messages import MAX_PRODUCT_CHARACTERS
from wattloop_research.command_line.pipeline_options import (
    add_pipeline_options,
    check_pipeline_options,
    read_problem,
    write_rows,
)

if TYPE_CHECKING:
    from wattloop_research.frequency.files.result import PlannedResult

# The slowest plan, the plan of minimum energy and the fastest plan are always drawn.
MIN_PLOTS = 3
DEFAULT_PLOTS = 6
EVALUATE_EXAMPLE = """\
  wattloop plan evaluate --profile profile.csv --stages 8 --microbatches 12 --blocking-power 83.64 \\
    plans/freqs_pipeline_00000.py"""
CHOOSE_EXAMPLE = "  wattloop plan choose --directory plans --deadline 3.2"
SAMPLE_EXAMPLE = "  wattloop plan sample plans sampled -n 300"
# Of Lowtime's script.
DEFAULT_DISTANCE = 50


def _configure(parser: argparse.ArgumentParser) -> None:
    add_pipeline_options(parser)
    parser.add_argument("--plans", type=_plans, default=40, help="number of plans, 3 to 10000, or all (default: 40)")
    parser.add_argument(
        "--steady-state",
        choices=("auto", "off"),
        default="auto",
        help="plan long iterations by their repeated structure, within 0.001 %% (default: auto)",
    )
    parser.add_argument("--output", metavar="DIR", help="folder of the result: missing, empty or an earlier result")
    parser.add_argument(
        "--pictures",
        metavar="N",
        nargs="?",
        type=_plot_count,
        const=DEFAULT_PLOTS,
        default=0,
        help="draw the frontier and at most N plans, as PNG and SVG: the slowest, the one of minimum energy, the "
        f"fastest and some between; {MIN_PLOTS} or more, or all (without a number: {DEFAULT_PLOTS})",
    )
    parser.add_argument(
        "--baselines",
        action="store_true",
        help="also compute the plans of EnvPipe, Zeus and maximum clocks, and write that of EnvPipe as "
        "envpipe/freqs_pipeline_00000.py",
    )
    parser.add_argument(
        "--gpu-product",
        metavar="NAME",
        help="product name of the profiled GPUs, which the result then states (default: the profile's column "
        "gpu_product)",
    )
    parser.add_argument(
        "--manifest",
        metavar="NAME",
        help="also write frequencyplan.json, the manifest of a FrequencyPlan of this name",
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="other actions")
    evaluating = actions.add_parser(
        "evaluate",
        help="time and energy of plan files, as CSV on stdout",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"example:\n{EVALUATE_EXAMPLE}",
    )
    add_pipeline_options(evaluating)
    evaluating.add_argument("files", nargs="+", metavar="PLAN", help="plan file of this command or of Lowtime")
    sampling = actions.add_parser(
        "sample",
        help="copy every Nth plan file of a folder, and the last one, into a new folder",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"example:\n{SAMPLE_EXAMPLE}",
    )
    sampling.add_argument("source", metavar="DIR", help="folder with freqs_pipeline_N.py of this command or of Lowtime")
    sampling.add_argument("target", metavar="OUTPUT", help="the new folder")
    sampling.add_argument(
        "-n",
        dest="distance",
        type=int,
        metavar="N",
        default=DEFAULT_DISTANCE,
        help=f"distance of two plans (default: {DEFAULT_DISTANCE})",
    )
    choosing = actions.add_parser(
        "choose",
        help="the plan for a deadline, as JSON on stdout",
        description="Prints the slowest plan that meets the deadline; if none does, the fastest, with exit code 1. Or "
        "prints the plan by the rule of a running pipeline, with a straggler or without.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"example:\n{CHOOSE_EXAMPLE}",
    )
    choosing.add_argument("--directory", metavar="DIR", required=True, help="folder written by this command")
    rule = choosing.add_mutually_exclusive_group(required=True)
    rule.add_argument("--deadline", metavar="SECONDS", type=float, help="time of the straggler")
    rule.add_argument(
        "--fastest", action="store_true", help="minimum energy among the plans that are no slower than maximum clocks"
    )
    rule.add_argument(
        "--eta", type=float, help="minimum cost, with this weight of energy from 0 to 1; needs --max-power"
    )
    choosing.add_argument(
        "--max-power", metavar="W", type=float, help="sum of the maximum power limits of one GPU of each stage"
    )
    choosing.add_argument(
        "--straggler", metavar="SECONDS", type=float, help="with --fastest or --eta, the time of a straggler"
    )


def _plans(text: str) -> int | None:
    if text == "all":
        return None
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: must be a whole number from 3 to 10000, or all") from None


def _plot_count(text: str) -> int | None:
    if text == "all":
        return None
    try:
        count = int(text)
    except ValueError:
        count = 0
    if count < MIN_PLOTS:
        raise argparse.ArgumentTypeError(f"{text!r}: must be a whole number of at least {MIN_PLOTS}, or all")
    return count


def _check_choice(arguments: argparse.Namespace) -> None:
    for name in ("deadline", "straggler"):
        seconds = getattr(arguments, name)
        if seconds is not None and not 0 < seconds < math.inf:
            raise UsageError(f"--{name} {seconds:g}: must be a finite number of seconds above 0")
    if arguments.deadline is not None and arguments.straggler is not None:
        raise UsageError("--straggler: --deadline is the time of the straggler; leave one of them out")
    if (arguments.eta is None) != (arguments.max_power is None):
        raise UsageError("--eta, --max-power: must be given together")


def _check(arguments: argparse.Namespace) -> None:
    if arguments.action == "choose":
        _check_choice(arguments)
        return
    if arguments.action == "sample":
        if arguments.distance < 1:
            raise UsageError(f"-n {arguments.distance}: must be at least 1")
        return
    check_pipeline_options(arguments, "wattloop plan", *(() if arguments.action else ("output",)))
    product = arguments.gpu_product
    if product is not None and not (
        0 < len(product) <= MAX_PRODUCT_CHARACTERS and product.isascii() and product.isprintable()
    ):
        raise UsageError(
            f"--gpu-product {product[:MAX_PRODUCT_CHARACTERS]!r}: must be 1 to {MAX_PRODUCT_CHARACTERS} characters of "
            "printable ASCII"
        )


def _run(arguments: argparse.Namespace) -> int:
    if arguments.action == "choose":
        return _choose(arguments)
    if arguments.action == "evaluate":
        return _evaluate(arguments)
    if arguments.action == "sample":
        return _sample(arguments)
    from wattloop_research.command_line.plan_folder import write_plan_folder

    return write_plan_folder(arguments)


def _sample(arguments: argparse.Namespace) -> int:
    """Copy every plan at the distance, from the first one on, and the last one."""
    source, target = Path(arguments.source), Path(arguments.target)
    try:
        numbered = {int(match[1]): file for file in source.iterdir() if (match := PLAN_FILE.fullmatch(file.name))}
    except OSError as error:
        raise OperationError(f"{arguments.source}: cannot read: {error.strerror}; name a folder of plans") from error
    if not numbered:
        raise InputError(arguments.source, "no plan", "files freqs_pipeline_N.py, as wattloop plan writes them")
    files = [numbered[number] for number in sorted(numbered)]
    chosen = files[:: arguments.distance]
    if chosen[-1] != files[-1]:
        chosen.append(files[-1])
    texts = {file.name: read_text(file, MAX_FILE_BYTES, "a plan file") for file in chosen}
    try:
        target.mkdir(parents=True)
        for name, text in texts.items():
            (target / name).write_text(text, encoding="utf-8", newline="")
    except FileExistsError as error:
        raise UsageError(f"{arguments.target}: found a file or folder, expected none; name a new folder") from error
    except OSError as error:
        raise OperationError(f"{arguments.target}: cannot write: {error.strerror}; name a writable folder") from error
    sys.stderr.write(f"{len(chosen)} of {len(files)} plans in {arguments.target}\n")
    return 0


def _evaluate(arguments: argparse.Namespace) -> int:
    from wattloop_planner.frequency.pipeline.plans import evaluate
    from wattloop_research.frequency.files.plan_file import read_plan

    problem = read_problem(arguments)
    rows: list[dict[str, object]] = []
    for file in arguments.files:
        rows_of_plan = read_plan(file, problem.graph, problem.profile.knobs)
        try:
            found = evaluate(problem, rows_of_plan)
        except UsageError as error:
            raise UsageError(f"{file}: {error}") from error
        rows.append({"file": file, "time": found.time_seconds, "energy": found.energy_joules})
    write_rows(rows)
    return 0


def _choose(arguments: argparse.Namespace) -> int:
    from wattloop_planner.frequency.choice_rules import choose
    from wattloop_research.frequency.files.result import read_planned_result

    result = read_planned_result(arguments.directory)
    if arguments.deadline is None:
        return _choose_by_rule(arguments, result)
    chosen = choose(result.realised, arguments.deadline, result.waiting_power_watts)
    document = _chosen(result, chosen.plan) | {
        "energy_until_deadline_joules": chosen.energy_until_deadline_joules,
        "meets_deadline": chosen.meets_deadline,
    }
    sys.stdout.write(json.dumps(document, indent=2) + "\n")
    if not chosen.meets_deadline:
        sys.stderr.write(
            f"no plan in {arguments.directory} ends within {arguments.deadline:.9g} s; the fastest takes "
            f"{chosen.realised.time_seconds:.9g} s\n"
        )
    return 0 if chosen.meets_deadline else 1


def _choose_by_rule(arguments: argparse.Namespace, result: PlannedResult) -> int:
    from wattloop.energy.cost import CostModel
    from wattloop_planner.frequency.choice_rules import CostRule, FastestRule, Rule, choose_point

    rule: Rule = FastestRule() if arguments.eta is None else CostRule(CostModel(arguments.eta, arguments.max_power))
    chosen = choose_point(
        result.realised,
        rule,
        max_clocks=result.max_clocks,
        straggler_seconds=arguments.straggler,
    )
    document = _chosen(result, chosen.plan) | {"for_straggler": chosen.for_straggler}
    sys.stdout.write(json.dumps(document, indent=2) + "\n")
    return 0


def _chosen(result: PlannedResult, plan: int) -> dict[str, object]:
    from wattloop_research.frequency.files.plan_file import plan_file_name

    number, realised = result.numbers[plan], result.realised[plan]
    return {
        "plan": number,
        "file": plan_file_name(number),
        "time_seconds": realised.time_seconds,
        "energy_joules": realised.energy_joules,
    }


COMMAND = Command(
    description="Finds the time-energy frontier of a pipeline-parallel training iteration, and plans along it: "
    "one GPU frequency for each operation of each stage.",
    example="  wattloop plan --profile profile.csv --stages 8 --microbatches 12 --blocking-power 83.64 --output plans\n"
    f"{CHOOSE_EXAMPLE}\n{EVALUATE_EXAMPLE}\n{SAMPLE_EXAMPLE}",
    configure=_configure,
    run=_run,
    check=_check,
)
