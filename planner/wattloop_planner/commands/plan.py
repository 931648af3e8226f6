"""`wattloop plan`: GPU frequency plans of a training pipeline."""

from __future__ import annotations

import argparse
import csv
import json
import math
import sys
import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from wattloop.commands.contract import Command
from wattloop.errors import UsageError
from wattloop_planner.frequency.baselines import baselines, maximum
from wattloop_planner.frequency.files.folder import check_output, replaced
from wattloop_planner.frequency.files.plan_file import plan_file_name, read_plan
from wattloop_planner.frequency.files.result import (
    read_realised,
    write_baselines,
    write_frontier,
    write_plans,
    write_stragglers,
    write_summary,
)
from wattloop_planner.frequency.graph import OperationGraph, schedule_graph
from wattloop_planner.frequency.planning import MOST_PLANS, Planning, plan_pipeline
from wattloop_planner.frequency.plans import Realised, evaluate, plan_energy_joules
from wattloop_planner.frequency.problem import Problem, pipeline_problem
from wattloop_planner.frequency.profiles import read_profile
from wattloop_planner.frequency.schedules import SCHEDULES
from wattloop_planner.frequency.stragglers import choose
from wattloop_planner.frequency.user_graph import read_graph

INTERLEAVED = "interleaved"
USUAL_CHUNKS = 2
CHOOSE_EXAMPLE = "  wattloop plan choose --directory plans --deadline 3.2"
EVALUATE_EXAMPLE = """\
  wattloop plan evaluate --profile profile.csv --stages 8 --microbatches 12 --blocking-power 83.64 \\
    plans/freqs_pipeline_00000.py"""


def _configure(parser: argparse.ArgumentParser) -> None:
    _add_pipeline(parser)
    parser.add_argument("--plans", type=_plans, default=40, help="how many plans, 3 to 10000, or all (default: 40)")
    parser.add_argument(
        "--steady-state",
        choices=("auto", "off"),
        default="auto",
        help="plan long iterations by their repeated structure, within 0.001 %% (default: auto)",
    )
    parser.add_argument("--output", metavar="DIR", help="folder for the result: missing, empty or an earlier result")
    parser.add_argument("--pictures", action="store_true", help="draw each plan and the frontier, as PNG and SVG")
    parser.add_argument(
        "--baselines", action="store_true", help="also what EnvPipe, Zeus and maximum clocks would take"
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="other actions")
    evaluating = actions.add_parser(
        "evaluate",
        help="what plan files take: CSV with file, time, energy on stdout",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"example:\n{EVALUATE_EXAMPLE}",
    )
    _add_pipeline(evaluating)
    evaluating.add_argument("files", nargs="+", metavar="PLAN", help="plan file of ours or of Lowtime")
    choosing = actions.add_parser(
        "choose",
        help="the plan for a deadline, as JSON on stdout",
        description="The slowest plan that meets the deadline. Where none does: the fastest, and the exit code 1.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"example:\n{CHOOSE_EXAMPLE}",
    )
    choosing.add_argument("--directory", metavar="DIR", required=True, help="folder that this command wrote")
    choosing.add_argument("--deadline", metavar="SECONDS", type=float, required=True, help="when the straggler is done")


def _add_pipeline(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--profile", metavar="CSV", help="stage, instruction, frequency (MHz), time (s), energy (J)")
    parser.add_argument("--stages", type=int, metavar="S", help="number of pipeline stages")
    parser.add_argument("--microbatches", type=int, metavar="M", help="number of microbatches in an iteration")
    parser.add_argument("--blocking-power", type=float, metavar="W", help="power of a GPU that waits for another stage")
    parser.add_argument(
        "--schedule", choices=tuple(SCHEDULES), default="1f1b", help="order of operations (default: 1f1b)"
    )
    parser.add_argument("--chunks", type=int, metavar="V", help="model chunks a stage, for interleaved (default: 2)")
    parser.add_argument("--graph", metavar="FILE", help="JSON of a graph of your own, in place of a schedule")


def _plans(text: str) -> int | None:
    if text == "all":
        return None
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: must be a whole number from 3 to 10000, or all") from None


def _run(arguments: argparse.Namespace) -> int:
    if arguments.action == "choose":
        return _choose(arguments)
    if arguments.action == "evaluate":
        return _evaluate(arguments)
    return _plan(arguments)


def _plan(arguments: argparse.Namespace) -> int:
    _need(arguments, "output")
    check_output(arguments.output)
    seconds: dict[str, float] = {}
    started = time.perf_counter()
    problem = _problem(arguments, seconds)
    for note in problem.profile.notes:
        _say(f"{problem.profile.source}: {note}")
    with _Progress() as progress:
        planning = plan_pipeline(
            problem, arguments.plans, use_steady_state=arguments.steady_state == "auto", said=progress.say
        )
        seconds |= planning.phase_seconds
        if arguments.plans is None and len(planning.frontier.times_seconds) > MOST_PLANS:
            _say(
                f"{len(planning.frontier.times_seconds)} breakpoints were thinned evenly to {len(planning.plans)} plans"
            )
        _write(arguments, problem, planning, seconds, progress)
    _report(arguments, problem, planning, time.perf_counter() - started)
    return 0


def _problem(arguments: argparse.Namespace, seconds: dict[str, float]) -> Problem:
    _need(arguments, "profile", "blocking_power")
    started = time.perf_counter()
    graph = _graph(arguments)
    read = time.perf_counter()
    problem = pipeline_problem(graph, read_profile(arguments.profile), arguments.blocking_power)
    seconds["profile"] = time.perf_counter() - read
    seconds["graph"] = read - started
    return problem


def _graph(arguments: argparse.Namespace) -> OperationGraph:
    if arguments.graph is not None:
        graph = read_graph(arguments.graph)
        for name, found in (("stages", graph.stages), ("microbatches", graph.microbatches)):
            given = getattr(arguments, name)
            if given is not None and given != found:
                raise UsageError(f"--{name} {given}: {arguments.graph} has {found}; leave the option out with --graph")
        return graph
    _need(arguments, "stages", "microbatches")
    chunks = arguments.chunks
    if chunks is None:
        chunks = USUAL_CHUNKS if arguments.schedule == INTERLEAVED else 1
    elif arguments.schedule != INTERLEAVED:
        raise UsageError(f"--chunks {chunks}: only --schedule {INTERLEAVED} has several chunks a stage")
    return schedule_graph(SCHEDULES[arguments.schedule](arguments.stages, arguments.microbatches, chunks))


def _write(
    arguments: argparse.Namespace, problem: Problem, planning: Planning, seconds: dict[str, float], progress: _Progress
) -> None:
    started = time.perf_counter()
    realised = [Realised(plan.time_seconds, plan_energy_joules(problem, plan)) for plan in planning.plans]
    points = list(baselines(problem)) if arguments.baselines else []
    with replaced(arguments.output) as folder:
        write_frontier(folder, planning)
        write_plans(folder, problem, planning, realised)
        write_stragglers(folder, problem, realised, maximum(problem))
        if arguments.baselines:
            write_baselines(folder, points)
        if arguments.pictures:
            # Matplotlib takes longer to import than most plans to make.
            from wattloop_planner.frequency.pictures import draw_frontier, draw_plans  # noqa: PLC0415

            draw_frontier(folder, planning, realised, points)
            draw_plans(folder, problem, planning, progress.say)
        seconds["write"] = time.perf_counter() - started
        inputs = {"profile": arguments.profile}
        if arguments.graph is not None:
            inputs["graph"] = arguments.graph
        schedule = "graph" if arguments.graph is not None else arguments.schedule
        write_summary(folder, problem, planning, phase_seconds=seconds, inputs=inputs, schedule=schedule)


def _report(arguments: argparse.Namespace, problem: Problem, planning: Planning, seconds: float) -> None:
    frontier, gaps = planning.frontier, planning.gaps * 100
    steady = planning.steady_microbatches
    _say(
        f"{problem.graph.operations} operations, {len(frontier.times_seconds)} breakpoints"
        + (f" (by the repeated structure, from {steady} microbatches)" if steady else "")
        + f": {frontier.time_least_seconds:.6g} s to {frontier.time_most_seconds:.6g} s, "
        f"least energy at {frontier.time_of_least_energy_seconds:.6g} s"
    )
    _say(
        f"{len(planning.plans)} plans in {arguments.output}, above the least possible energy by "
        f"{_rounded(gaps.mean())} % in the mean and {_rounded(gaps.max())} % at most; {seconds:.2f} s"
    )


def _rounded(percent: float) -> str:
    """Three decimals; a rounding error below zero is zero."""
    return f"{round(float(percent), 3) + 0.0:.3f}"


def _evaluate(arguments: argparse.Namespace) -> int:
    problem = _problem(arguments, {})
    rows = []
    for file in arguments.files:
        frequencies = read_plan(file, problem.graph)
        try:
            found = evaluate(problem, frequencies)
        except UsageError as error:
            raise UsageError(f"{file}: {error}") from error
        rows.append((file, repr(found.time_seconds), repr(found.energy_joules)))
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(("file", "time", "energy"))
    writer.writerows(rows)
    return 0


def _choose(arguments: argparse.Namespace) -> int:
    if not 0 < arguments.deadline < math.inf:
        raise UsageError(f"--deadline {arguments.deadline:g}: must be a finite number of seconds above 0")
    numbers, realised, waiting_power = read_realised(arguments.directory)
    answer = choose(realised, arguments.deadline, waiting_power)
    number = numbers[answer.plan]
    document = {
        "plan": number,
        "file": plan_file_name(number),
        "time_seconds": answer.realised.time_seconds,
        "energy_joules": answer.realised.energy_joules,
        "energy_until_deadline_joules": answer.energy_until_deadline_joules,
        "meets_deadline": answer.meets_deadline,
    }
    sys.stdout.write(json.dumps(document, indent=2) + "\n")
    if not answer.meets_deadline:
        _say(
            f"no plan in {arguments.directory} ends within {arguments.deadline:.9g} s: this is the fastest, "
            f"{answer.realised.time_seconds:.9g} s"
        )
    return 0 if answer.meets_deadline else 1


def _need(arguments: argparse.Namespace, *names: str) -> None:
    missing = [f"--{name.replace('_', '-')}" for name in names if getattr(arguments, name) is None]
    if missing:
        raise UsageError(f"{', '.join(missing)}: missing; see wattloop plan --help")


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


class _Progress:
    """A bar on a terminal, nothing where stderr is piped."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._bar.add_task("reading", total=1.0)

    def __enter__(self) -> _Progress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def say(self, what: str, share: float) -> None:
        self._bar.update(self._task, description=what, completed=share)


COMMAND = Command(
    summary="GPU frequency plans of a training pipeline",
    description="Finds the whole time-energy frontier of a pipeline-parallel training iteration, and plans along it: "
    "one GPU frequency for each operation of each stage.",
    example="  wattloop plan --profile profile.csv --stages 8 --microbatches 12 --blocking-power 83.64 --output plans\n"
    f"{CHOOSE_EXAMPLE}\n{EVALUATE_EXAMPLE}",
    configure=_configure,
    run=_run,
)
