"""Writes and reads the files of a planning result, except figures."""

import hashlib
import json
import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from wattloop.errors import InputError
from wattloop.files.csv_table import MAX_FILE_BYTES, read_table, write_csv_table
from wattloop.files.reading import MAX_JSON_BYTES, parse_json, read_text
from wattloop.pipeline.rank_plan_file import PRODUCT_COMMENT
from wattloop.wire.message_fields import Integer, MessageError, Number
from wattloop.wire.training_messages import MAX_POWER_WATTS
from wattloop_planner.frequency.choice_rules import SLOWDOWNS, choose, energy_until
from wattloop_planner.frequency.pipeline.planning_problem import Problem
from wattloop_planner.frequency.pipeline.plans import Realised, plan_settings
from wattloop_planner.frequency.solver.planning import Planning
from wattloop_research.frequency.baselines import Baseline
from wattloop_research.frequency.files.folder import SUMMARY
from wattloop_research.frequency.files.plan_file import plan_file_name, write_plan

COMMAND = "wattloop plan"
# Seconds or joules of an iteration.
MAX_PLANNED = 1e15


def write_table(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a CSV file with exact numbers; None is an empty cell."""
    with path.open("w", encoding="utf-8", newline="") as stream:
        write_csv_table(stream, header, ([_cell(value) for value in row] for row in rows))


def _cell(value: object) -> object:
    return float.__repr__(value) if isinstance(value, float) else value


def write_frontier(folder: Path, planning: Planning) -> None:
    """``frontier.csv``: every breakpoint of the relaxation."""
    frontier = planning.frontier
    # Faster than the csv module for tens of thousands of rows; numbers need no quoting.
    lines = map("{!r},{!r}\n".format, frontier.times_seconds.tolist(), frontier.energies_joules.tolist())
    with (folder / "frontier.csv").open("w", encoding="utf-8", newline="") as stream:
        stream.write("time,energy\n")
        stream.writelines(lines)


def write_plans(
    folder: Path, problem: Problem, planning: Planning, realised: Sequence[Realised], gpu_product: str = ""
) -> None:
    """The plan files, which name the GPUs that they are for if those are known, and ``iteration_time_energy.csv``."""
    for number, (plan, found) in enumerate(zip(planning.plans, realised, strict=True)):
        comments = [
            f"Plan {number}: time {found.time_seconds!r} s",
            f"Plan {number}: energy {found.energy_joules!r} J",
            f"Plan {number}: effective energy {plan.effective_joules!r} J",
            *([f"{PRODUCT_COMMENT}{gpu_product}"] if gpu_product else []),
        ]
        with (folder / plan_file_name(number)).open("w", encoding="utf-8", newline="\n") as stream:
            write_plan(stream, problem.graph, plan_settings(problem, plan), comments, problem.profile.knobs)
    rows = ((number, found.time_seconds, found.energy_joules) for number, found in enumerate(realised))
    write_table(folder / "iteration_time_energy.csv", ("plan", "time", "energy"), rows)


def write_stragglers(folder: Path, problem: Problem, realised: Sequence[Realised], max_frequency: Realised) -> None:
    """``stragglers.csv``: the plan for each slowdown of another pipeline that runs at maximum clocks."""
    rows = []
    for slowdown in SLOWDOWNS:
        deadline = slowdown * max_frequency.time_seconds
        chosen = choose(realised, deadline, problem.waiting_power_watts)
        energy = chosen.energy_until_deadline_joules
        max_energy = energy_until(max_frequency, deadline, problem.waiting_power_watts)
        saving = None if energy is None else 100 * (1 - energy / max_energy)
        rows.append((slowdown, chosen.plan, chosen.realised.time_seconds, energy, max_energy, saving))
    header = ("slowdown", "plan", "time", "energy", "max_frequency_energy", "saving_percent")
    write_table(folder / "stragglers.csv", header, rows)


def write_baselines(folder: Path, problem: Problem, points: Sequence[Baseline], gpu_product: str = "") -> None:
    """``baselines.csv``, and EnvPipe's plan in a folder of its own, as a folder of plans is run."""
    for point in points:
        if point.settings:
            found = point.realised
            comments = [
                f"EnvPipe: time {found.time_seconds!r} s",
                f"EnvPipe: energy {found.energy_joules!r} J",
                *([f"{PRODUCT_COMMENT}{gpu_product}"] if gpu_product else []),
            ]
            (folder / point.method).mkdir()
            with (folder / point.method / plan_file_name(0)).open("w", encoding="utf-8", newline="\n") as stream:
                write_plan(stream, problem.graph, point.settings, comments, problem.profile.knobs)
    rows = ((point.method, point.point, point.realised.time_seconds, point.realised.energy_joules) for point in points)
    write_table(folder / "baselines.csv", ("method", "point", "time", "energy"), rows)


def write_summary(
    folder: Path,
    problem: Problem,
    planning: Planning,
    *,
    phase_seconds: dict[str, float],
    inputs: dict[str, str | Path],
    schedule: str,
    max_clocks: Realised,
) -> None:
    """``summary.json``: the problem, the inputs, the versions, and the quality of the plans."""
    graph, frontier, gaps = problem.graph, planning.frontier, planning.gaps * 100
    summary: dict[str, Any] = {
        "command": COMMAND,
        "schedule": schedule,
        "stages": graph.stages,
        "microbatches": graph.microbatches,
        "operations": graph.operations,
        "blocking_power_watts": problem.blocking_power_watts,
        "time_least_seconds": frontier.min_time_seconds,
        "time_of_least_energy_seconds": frontier.min_energy_time_seconds,
        "time_most_seconds": frontier.max_time_seconds,
        "max_clocks": {"time_seconds": max_clocks.time_seconds, "energy_joules": max_clocks.energy_joules},
        "breakpoints": len(frontier.times_seconds),
        "plans": len(planning.plans),
        "gap_percent": {"mean": float(gaps.mean()), "max": float(gaps.max())},
        "steady_state_microbatches": planning.steady_microbatches,
        "phase_seconds": phase_seconds,
        "profile_notes": list(problem.profile.notes),
        "versions": {
            "wattloop": version("wattloop"),
            "python": platform.python_version(),
            "numpy": version("numpy"),
            "scipy": version("scipy"),
        },
        "digests": {
            name: f"sha256:{hashlib.sha256(Path(path).read_bytes()).hexdigest()}"
            for name, path in inputs.items()
            if Path(path).is_file()
        },
    }
    text = json.dumps(summary, indent=2, ensure_ascii=False, allow_nan=False)
    (folder / SUMMARY).write_text(text + "\n", encoding="utf-8")


def read_frontier(folder: str | Path) -> list[Realised]:
    """The breakpoints of the relaxation, in order of falling time.

    Raises:
        InputError: The folder has no valid ``frontier.csv``.
    """
    file = Path(folder) / "frontier.csv"
    if not file.exists():
        raise InputError(str(folder), "no frontier.csv", "the folder of plans that `wattloop plan --output` wrote")
    rows = read_table(file, ("time", "energy"))
    return [Realised(row.number("time", above=0), row.number("energy")) for row in rows]


@dataclass(frozen=True)
class PlannedResult:
    """Time and energy of the plans of a result.

    Attributes:
        waiting_power_watts: Power of all stages while they wait.
        max_clocks: An iteration with every operation at its highest clock.
    """

    numbers: list[int]
    realised: list[Realised]
    waiting_power_watts: float
    max_clocks: Realised


def read_planned_result(folder: str | Path) -> PlannedResult:
    """Time and energy of the plans of a result.

    Raises:
        InputError: The folder has no valid result of this command.
    """
    path = Path(folder)
    expected = "a folder written by `wattloop plan`"
    text = read_text(path / SUMMARY, MAX_FILE_BYTES, expected)
    summary = parse_json(text, str(path / SUMMARY), expected, MAX_JSON_BYTES)
    if not isinstance(summary, dict) or summary.get("command") != COMMAND:
        raise InputError(str(path / SUMMARY), "another file", expected)
    rows = list(read_table(path / "iteration_time_energy.csv", ("plan", "time", "energy")))
    if not rows:
        raise InputError(str(path / "iteration_time_energy.csv"), "no plan", expected)
    numbers = [row.integer("plan", minimum=0) for row in rows]
    realised = [Realised(row.number("time", above=0), row.number("energy")) for row in rows]
    try:
        stages = Integer().parse("stages", summary.get("stages"))
        blocking_power = Number(0.0, MAX_POWER_WATTS).parse("blocking_power_watts", summary.get("blocking_power_watts"))
        max_clocks = _max_clocks(summary.get("max_clocks"))
    except MessageError as error:
        raise InputError(str(path / SUMMARY), f"an invalid summary ({error})", expected) from error
    return PlannedResult(numbers, realised, stages * blocking_power, max_clocks)


def _max_clocks(found: object) -> Realised:
    if not isinstance(found, dict):
        raise MessageError("max_clocks: found no object, expected time_seconds and energy_joules")
    number = Number(0.0, MAX_PLANNED)
    return Realised(
        number.parse("max_clocks.time_seconds", found.get("time_seconds")),
        number.parse("max_clocks.energy_joules", found.get("energy_joules")),
    )
