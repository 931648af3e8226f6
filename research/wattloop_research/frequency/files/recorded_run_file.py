"""Reads ``N.prof.json``: what the ranks of a pipeline reported under plan N, as Perseus' artifact has it.

The file is a list with one object per rank: ``rank``, ``iter_time`` (s), ``iter_energy`` (J), and
``time_breakdown`` and ``energy_breakdown``, which give a list of repetitions per iteration for each
instruction. ``N.sched.json`` beside it lists each rank's clocks or power limits: ``rank``, ``power_states`` (MHz or
watts). ``perseus.json`` of the folder names the scheduler of Perseus' server that set them.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from wattloop.errors import InputError, OperationError
from wattloop.files.csv_table import MAX_FILE_BYTES
from wattloop.files.reading import MAX_JSON_BYTES, parse_json, read_text
from wattloop.wire.message_fields import shown
from wattloop.wire.training_messages import MAX_NUMBER
from wattloop_planner.frequency.pipeline.planning_problem import Floats
from wattloop_research.frequency.files.plan_file import plan_file_name
from wattloop_research.frequency.recorded_runs import RankRecord, RecordedRun, Repetitions
from wattloop_research.training.plan_folder import WARM_UP_RUNS
from wattloop_research.training.run_series import MAX_SERIES_BYTES, SERIES_FILE

RUN_FILE = re.compile(r"(0|[1-9]\d{0,8})\.prof\.json")
EXPECTED_LIST = "a list with one object per rank"
EXPECTED_SETTINGS = "a list with an object per rank: rank, power_states and, by Wattloop, instructions"
SERVER_FILE = "perseus.json"
EXPECTED_SERVER = "an object with scheduler, a text, and scheduler_args, an object"


def read_runs(folder: str | Path) -> list[RecordedRun]:
    """All runs of a folder, in the order of their numbers.

    Raises:
        OperationError: The folder cannot be read.
        InputError: The folder has no run, or a file is invalid.
    """
    path = Path(folder)
    try:
        numbers = sorted(int(match[1]) for item in path.iterdir() if (match := RUN_FILE.fullmatch(item.name)))
    except OSError as error:
        raise OperationError(
            f"{folder}: cannot read: {error.strerror}; name a folder with N.prof.json files"
        ) from error
    if not numbers:
        raise InputError(str(folder), "no run", "files named N.prof.json, with N = 0, 1, …")
    return [read_run(path / f"{number}.prof.json", number) for number in numbers]


def plans_of_runs(folder: str | Path, numbers: Iterable[int]) -> dict[int, str]:
    """Name of the plan file of each run under a plan.

    Run 0 is at free clocks, and run K + 1 under plan K. Of a folder of plans, ``series.json`` names the plans of the
    runs after those that warm up.

    Raises:
        InputError: ``series.json`` is another file.
    """
    path = Path(folder) / SERIES_FILE
    if not path.exists():
        return {number: plan_file_name(number - 1) for number in numbers if number > 0}
    expected = "an object with the names of plans"
    found = parse_json(read_text(path, MAX_SERIES_BYTES, expected), str(path), expected, MAX_JSON_BYTES)
    names = found.get("plans") if isinstance(found, dict) else None
    if not isinstance(names, list) or not all(isinstance(name, str) and "/" not in name for name in names):
        raise InputError(str(path), shown(found), expected)
    named = dict(enumerate(names, start=WARM_UP_RUNS))
    return {number: named[number] for number in numbers if number in named}


@dataclass(frozen=True)
class RecordedScheduler:
    """What set the clocks or power limits of the runs of a folder.

    Attributes:
        warm_up_runs: Number of first runs that warm up; None if it is not stated.
    """

    name: str
    warm_up_runs: int | None


def recorded_scheduler(folder: str | Path) -> RecordedScheduler | None:
    """The scheduler that ``perseus.json`` names; None if there is no such file.

    Raises:
        InputError: It is another file.
    """
    path = Path(folder) / SERVER_FILE
    if not path.exists():
        return None
    found = parse_json(read_text(path, MAX_SERIES_BYTES, EXPECTED_SERVER), str(path), EXPECTED_SERVER, MAX_JSON_BYTES)
    name, given = (found.get("scheduler"), found.get("scheduler_args", {})) if isinstance(found, dict) else (None, None)
    if not isinstance(name, str) or not isinstance(given, dict):
        raise InputError(str(path), shown(found), EXPECTED_SERVER)
    warm_up_runs = given.get("warmup_iters")
    if warm_up_runs is not None and (type(warm_up_runs) is not int or warm_up_runs < 0):
        raise InputError(str(path), shown(warm_up_runs), "a whole number of at least 0", column="warmup_iters")
    return RecordedScheduler(name, warm_up_runs)


def read_settings(path: Path) -> Mapping[int, dict[str, Any]]:
    """The entries of a file ``N.sched.json``, by rank.

    Raises:
        InputError: It is another file.
    """
    text = read_text(path, MAX_FILE_BYTES, EXPECTED_SETTINGS)
    found = parse_json(text, str(path), EXPECTED_SETTINGS, MAX_JSON_BYTES)
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise InputError(str(path), shown(found), EXPECTED_SETTINGS)
    return {each["rank"]: each for each in found if type(each.get("rank")) is int}


def limit_runs(folder: str | Path, numbers: Iterable[int]) -> list[int]:
    """The runs of a baseline that count, from the highest power limit down.

    A run warms up if a later one has the same limits. If the limits of a run are not known, run 0 warms up, and the
    others are in the order of their numbers.

    Raises:
        InputError: A file ``N.sched.json`` is another file.
    """
    listed = sorted(numbers)
    limits = {number: _limits(Path(folder) / f"{number}.sched.json") for number in listed}
    if not all(limits.values()):
        return [number for number in listed if number > 0]
    last_runs = {of_ranks: number for number, of_ranks in limits.items()}
    return [
        last_runs[of_ranks] for of_ranks in sorted(last_runs, key=lambda each: (max(each), sum(each)), reverse=True)
    ]


def _limits(path: Path) -> tuple[float, ...]:
    """The one limit of each rank; none if there is no file, or a rank has several."""
    if not path.exists():
        return ()
    found: list[float] = []
    for rank, entry in sorted(read_settings(path).items()):
        states = _numbers(str(path), entry.get("power_states"), f"rank {rank}, power_states")
        if len(set(states)) != 1:
            return ()
        found.append(float(states[0]))
    return tuple(found)


def read_run(path: str | Path, number: int) -> RecordedRun:
    """One run.

    Raises:
        InputError: The file is invalid, or its ranks do not agree on the number of iterations.
    """
    source = str(path)
    text = read_text(path, MAX_FILE_BYTES, EXPECTED_LIST)
    ranks = _list(source, parse_json(text, source, EXPECTED_LIST, MAX_JSON_BYTES), EXPECTED_LIST, "")
    if not ranks:
        raise InputError(source, "no rank", EXPECTED_LIST)
    records = sorted((_rank(source, entry, place) for place, entry in enumerate(ranks)), key=lambda record: record.rank)
    for before, after in pairwise(records):
        if before.rank == after.rank:
            raise InputError(source, f"two records of rank {after.rank}", "one record per rank")
        found, expected = len(after.iteration_seconds), len(before.iteration_seconds)
        if found != expected:
            raise InputError(
                source, f"{found} iterations", f"{expected}, as rank {before.rank} has", column=f"rank {after.rank}"
            )
    return RecordedRun(number, tuple(records))


def _rank(source: str, entry: object, place: int) -> RankRecord:
    where = f"entry {place}"
    if not isinstance(entry, dict):
        raise InputError(source, shown(entry), "an object", column=where)
    rank = entry.get("rank")
    if isinstance(rank, bool) or not isinstance(rank, int) or rank < 0:
        raise InputError(source, shown(rank), "a whole number of at least 0", column=f"{where}, rank")
    where = f"rank {rank}"
    times = _numbers(source, entry.get("iter_time"), f"{where}, iter_time", above_zero=True)
    energies = _numbers(source, entry.get("iter_energy"), f"{where}, iter_energy")
    if not len(times) == len(energies) > 0:
        raise InputError(
            source,
            f"{len(times)} times and {len(energies)} energies",
            "one time and one energy for each iteration",
            column=where,
        )
    breakdowns = (
        _breakdown(source, entry.get(name, {}), f"{where}, {name}", len(times))
        for name in ("time_breakdown", "energy_breakdown")
    )
    return RankRecord(rank, times, energies, *breakdowns)


def _breakdown(source: str, value: object, where: str, iterations: int) -> dict[str, Repetitions]:
    if not isinstance(value, dict):
        raise InputError(source, shown(value), "an object with a list per instruction", column=where)
    found: dict[str, Repetitions] = {}
    for name, per_iteration in value.items():
        here = f"{where}, {name}"
        lists = _list(source, per_iteration, "a list with a list of repetitions per iteration", here)
        # Perseus writes an empty list for what was not recorded.
        if lists and len(lists) != iterations:
            raise InputError(source, f"{len(lists)} iterations", f"{iterations}", column=here)
        found[str(name)] = tuple(_numbers(source, row, f"{here}, iteration {index}") for index, row in enumerate(lists))
    return found


def _list(source: str, value: object, expected: str, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise InputError(source, shown(value), expected, column=where or None)
    return value


def _numbers(source: str, value: object, where: str, *, above_zero: bool = False) -> Floats:
    numbers = _list(source, value, "a list of numbers", where)
    for index, number in enumerate(numbers):
        # The comparison also rejects NaN, infinities, and integers beyond all floats.
        valid = isinstance(number, int | float) and not isinstance(number, bool) and 0 <= number <= MAX_NUMBER
        if not valid or (above_zero and number == 0):
            expected = f"a number {'above' if above_zero else 'of at least'} 0 and at most {MAX_NUMBER:g}"
            raise InputError(source, shown(number), expected, column=f"{where}, value {index}")
    return np.array(numbers, dtype=np.float64)
