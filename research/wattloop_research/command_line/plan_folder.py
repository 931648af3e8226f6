"""`wattloop plan --output`: plans a pipeline, and writes the folder of the result."""

from __future__ import annotations

import argparse
import base64
import json
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from wattloop.commands.output import console
from wattloop.errors import InputError, UsageError
from wattloop.wire.message_fields import MessageError, String
from wattloop.wire.training_messages import MAX_PRODUCT_CHARACTERS
from wattloop_planner.frequency.files.archive import (
    ARCHIVE,
    MAX_COMPRESSED_BYTES,
    MAX_MANIFEST_BYTES,
    PlanArchive,
    archive_of,
    write_within,
)
from wattloop_planner.frequency.pipeline.planning_problem import Problem
from wattloop_planner.frequency.pipeline.plans import Realised, plan_energy_joules
from wattloop_planner.frequency.pipeline.profile_file import read_gpu_product
from wattloop_planner.frequency.solver.planning import MAX_PLANS, Planning, plan_pipeline
from wattloop_research.command_line.pipeline_options import read_problem
from wattloop_research.frequency.baselines import baselines, max_frequency
from wattloop_research.frequency.files.folder import check_output, replaced
from wattloop_research.frequency.files.result import (
    write_baselines,
    write_frontier,
    write_plans,
    write_stragglers,
    write_summary,
)

if TYPE_CHECKING:
    from rich.progress import Progress

MANIFEST = "frequencyplan.json"
# kubectl keeps a copy of the manifest in an annotation, all of which take at most 256 KiB.
MAX_APPLIED_CHARACTERS = 250 * 1024
OBJECT_NAME = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")


def write_plan_folder(arguments: argparse.Namespace) -> int:
    """Execute ``wattloop plan`` without an action."""
    check_output(arguments.output)
    if arguments.manifest is not None and OBJECT_NAME.fullmatch(arguments.manifest) is None:
        raise UsageError(
            f"--manifest {arguments.manifest[:80]}: must be the name of an object: up to 253 lower-case letters, "
            "digits, - and ."
        )
    seconds: dict[str, float] = {}
    started = time.perf_counter()
    problem, product = read_problem(arguments, seconds), _gpu_product(arguments)
    for note in problem.profile.notes:
        print_message(f"{problem.profile.source}: {note}")
    with _ProgressBar() as progress:
        planning = plan_pipeline(
            problem, arguments.plans, use_steady_state=arguments.steady_state == "auto", on_progress=progress.update
        )
        seconds |= planning.phase_seconds
        if arguments.plans is None and len(planning.frontier.times_seconds) > MAX_PLANS:
            print_message(
                f"{len(planning.frontier.times_seconds)} breakpoints were thinned evenly to {len(planning.plans)} plans"
            )
        _write(arguments, problem, planning, seconds, progress, product=product)
    _report(arguments, problem, planning, time.perf_counter() - started)
    return 0


def _write(
    arguments: argparse.Namespace,
    problem: Problem,
    planning: Planning,
    seconds: dict[str, float],
    progress: _ProgressBar,
    *,
    product: str,
) -> None:
    started = time.perf_counter()
    realised = [Realised(plan.time_seconds, plan_energy_joules(problem, plan)) for plan in planning.plans]
    points = list(baselines(problem)) if arguments.baselines else []
    schedule = "graph" if arguments.graph is not None else arguments.schedule
    with replaced(arguments.output) as folder:
        write_frontier(folder, planning)
        write_plans(folder, problem, planning, realised, product)
        max_clocks = max_frequency(problem)
        write_stragglers(folder, problem, realised, max_clocks)
        archive = archive_of(problem, planning, max_clocks, schedule=schedule, gpu_product=product)
        try:
            (folder / ARCHIVE).write_bytes(write_within(archive, MAX_COMPRESSED_BYTES)[1])
        except InputError as error:
            print_message(f"no archive of the plans was written: {error}")
        if arguments.manifest is not None:
            _write_manifest(arguments, folder, archive)
        if arguments.baselines:
            write_baselines(folder, problem, points, product)
        if arguments.pictures != 0:
            # Deferred, because the import of matplotlib takes longer than most plans.
            from wattloop_research.frequency.plots.frontier_figure import draw_frontier
            from wattloop_research.frequency.plots.iteration import draw_plans, plans_to_draw

            draw_frontier(folder, planning, realised, points)
            draw_plans(folder, problem, planning, plans_to_draw(realised, arguments.pictures), progress.update)
        seconds["write"] = time.perf_counter() - started
        inputs = {"profile": arguments.profile}
        if arguments.graph is not None:
            inputs["graph"] = arguments.graph
        write_summary(
            folder, problem, planning, phase_seconds=seconds, inputs=inputs, schedule=schedule, max_clocks=max_clocks
        )


def _gpu_product(arguments: argparse.Namespace) -> str:
    """The GPUs of the profile, as the option or the profile names them."""
    given, found = arguments.gpu_product or "", read_gpu_product(arguments.profile)
    if given and found and given != found:
        raise UsageError(f"--gpu-product {given}: {arguments.profile} is of {found}; leave the option out")
    try:
        return String(MAX_PRODUCT_CHARACTERS, min_length=0).parse("--gpu-product", given or found)
    except MessageError as error:
        raise UsageError(str(error)) from error


def _write_manifest(arguments: argparse.Namespace, folder: Path, archive: PlanArchive) -> None:
    held, data = write_within(archive, MAX_MANIFEST_BYTES)
    spec = {"gpuProduct": archive.gpu_product} if archive.gpu_product else {}
    document = {
        "apiVersion": "wattloop.dev/v1alpha1",
        "kind": "FrequencyPlan",
        "metadata": {"name": arguments.manifest},
        "spec": {**spec, "archive": base64.b64encode(data).decode("ascii")},
    }
    text = json.dumps(document, indent=2) + "\n"
    (folder / MANIFEST).write_text(text, encoding="utf-8")
    server_side = " --server-side" if len(text) > MAX_APPLIED_CHARACTERS else ""
    fewer = f" (with {len(held.points)} of {len(archive.points)} plans)" if held is not archive else ""
    print_message(f"kubectl apply{server_side} -f {Path(arguments.output) / MANIFEST}{fewer}")


def _report(arguments: argparse.Namespace, problem: Problem, planning: Planning, seconds: float) -> None:
    frontier, gaps = planning.frontier, planning.gaps * 100
    steady = planning.steady_microbatches
    print_message(
        f"{problem.graph.operations} operations, {len(frontier.times_seconds)} breakpoints"
        + (f" (by the repeated structure, from {steady} microbatches)" if steady else "")
        + f": {frontier.min_time_seconds:.6g} s to {frontier.max_time_seconds:.6g} s, "
        f"minimum energy at {frontier.min_energy_time_seconds:.6g} s"
    )
    print_message(
        f"{len(planning.plans)} plans in {arguments.output}, above the lower bound of energy by "
        f"{_rounded(gaps.mean())} % on average and {_rounded(gaps.max())} % at most; {seconds:.2f} s"
    )


def _rounded(percent: float) -> str:
    """Format with three decimals; a rounding error below zero gives zero."""
    return f"{round(float(percent), 3) + 0.0:.3f}"


def print_message(text: str) -> None:
    """Print a line on stderr."""
    sys.stderr.write(text + "\n")


class _ProgressBar:
    """A progress bar on a terminal; nothing if stderr is not a terminal."""

    def __init__(self) -> None:
        self._bar = _bar() if sys.stderr.isatty() else None

    def __enter__(self) -> _ProgressBar:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, phase: str, fraction: float) -> None:
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], description=phase, completed=fraction)


def _bar() -> Progress:
    # Deferred, because the import takes as long as planning a small pipeline.
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    bar = Progress(*columns, console=console(stderr=True), transient=True)
    bar.add_task("reading", total=1.0)
    return bar
