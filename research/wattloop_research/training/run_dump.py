"""Writes ``N.prof.json`` and ``N.sched.json``: what each rank of a pipeline measured under plan N, in Perseus' form.

Additions are ``iterations``, by which the records of ranks are joined, ``instructions``, and ``unit`` of limits.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeGuard

from wattloop.errors import InputError, OperationError
from wattloop.files.atomic_write import locked, open_atomic
from wattloop.files.csv_table import MAX_FILE_BYTES
from wattloop.files.reading import MAX_JSON_BYTES, parse_json, read_text
from wattloop.pipeline.activities import Activity, instruction_spans
from wattloop.pipeline.directives import LocalDirective
from wattloop.pipeline.instruction import Instruction
from wattloop.pipeline.iteration_energy import JoulesBetween
from wattloop.pipeline.iteration_record import IterationRecord
from wattloop.pipeline.plan_messages import InstructionMeasurement
from wattloop.pipeline.plan_source import Recorder
from wattloop.pipeline.rank_plan_file import PLAN_FILE, Plan
from wattloop.wire.message_fields import shown
from wattloop.wire.training_messages import MAX_NUMBER

logger = logging.getLogger("wattloop")

# Times of instructions that a run keeps; some 30 MB as JSON.
MAX_TIMES = 1_000_000
EXPECTED = "a list with one object per rank"
TOTALS = ("iter_time", "iter_energy")
BREAKDOWNS = ("time_breakdown", "energy_breakdown")
# The unit of power limits; that of clocks is not written.
WATTS = "W"

Entry = dict[str, Any]


class RunDump(Recorder):
    """The records of one rank, by run.

    Args:
        folder: Where to write; made if it is missing.
        rank: The rank.
        number_of: Number of the run under a directive.

    Attributes:
        records: The iterations of each run with their energies.
        pending: Those whose energy is not looked up yet.

    Raises:
        OperationError: The folder cannot be made.
    """

    def __init__(self, folder: Path, rank: int, number_of: Callable[[int], int]) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OperationError(f"{folder}: cannot make the folder: {error.strerror}") from error
        self.folder = folder
        self.rank = rank
        self.number_of = number_of
        self.records: dict[int, list[tuple[IterationRecord, float]]] = {}
        self.pending: list[IterationRecord] = []
        self._times = 0

    @classmethod
    def of_plan(cls, folder: Path, rank: int, plan: Plan | None) -> RunDump:
        """A run for each directive; see `run_number`."""
        return cls(folder, rank, run_number(plan))

    def add(self, record: IterationRecord) -> None:
        """See `Recorder`."""
        if self._times + len(record.instructions) > MAX_TIMES:
            if self._times < MAX_TIMES:
                logger.warning("the dump of this run has %d times; later iterations are left out", self._times)
                self._times = MAX_TIMES
            return
        self._times += len(record.instructions)
        self.pending.append(record)

    def collect(
        self,
        before_seconds: float,
        joules_between: JoulesBetween,
        measurements: Callable[[], Sequence[InstructionMeasurement]],  # noqa: ARG002 - it writes at the end
    ) -> None:
        """See `Recorder`; an iteration whose energy is not known is left out."""
        while self.pending and self.pending[0].end_seconds <= before_seconds:
            record = self.pending.pop(0)
            joules = joules_between(record.begin_seconds, record.end_seconds)
            if joules is not None:
                self.records.setdefault(self.number_of(record.directive.number), []).append((record, joules))

    def close(self, measurements: Sequence[InstructionMeasurement], blocking_watts: float | None) -> None:  # noqa: ARG002
        """See `Recorder`."""
        for number in self.records:
            self.write_run(number, measurements)

    def write_run(self, number: int, measurements: Sequence[InstructionMeasurement]) -> None:
        """Write a run, joined with the records of the other ranks.

        A file that cannot be joined or written is left as it is, with a warning.

        Args:
            number: Its number.
            measurements: Their energy and time give the power of an instruction.
        """
        watts = {
            Activity(each.kind, each.stage, each.megahertz): each.energy_joules / each.time_seconds
            for each in measurements
            if each.energy_joules is not None
        }
        records = self.records[number]
        last = records[-1][0]
        clocks = {"rank": self.rank, **_states(last), "instructions": [each.text for each in last.instructions]}
        try:
            # In this order: who finds a rank in the records of a run reads its instructions, too.
            self._join(f"{number}.sched.json", clocks, joined=False)
            self._join(f"{number}.prof.json", _entry(self.rank, records, watts), joined=True)
        except (InputError, OperationError) as error:
            logger.warning("run %d of this rank is not in the dumps: %s", number, error)

    def forget(self, number: int) -> None:
        """Make room for later runs."""
        self._times -= sum(len(record.instructions) for record, _ in self.records.pop(number))

    def _join(self, name: str, entry: Entry, *, joined: bool) -> None:
        path = self.folder / name
        with locked(path):
            others = [each for each in _entries(path) if each["rank"] != self.rank]
            # Perseus' records have no numbers of iterations, and cannot be joined.
            known = (
                [each for each in others if _is_record(each)] if joined else list(filter(None, map(_clocks, others)))
            )
            entries = sorted([*known, entry], key=lambda each: int(each["rank"]))
            if joined:
                entries = _with_common_iterations(entries, entry)
            with open_atomic(path) as stream:
                written = [{key: each[key] for key in entry if key in each} for each in entries]
                json.dump(written, stream, allow_nan=False)


def run_number(plan: Plan | None) -> Callable[[int], int]:
    """The number of the run under a directive, by which its dumps are named.

    Free clocks are run 0. A plan file ``freqs_pipeline_00016.py`` is run 17, so that plan 0 differs from free
    clocks. Another plan of a script is run 1, and a plan of the operator has its directive's number.

    Example:
        >>> run_number("plans/freqs_pipeline_00016.py")(1), run_number([1410, 1200])(1), run_number(None)(5)
        (17, 1, 5)
        >>> run_number("plans/freqs_pipeline_00016.py")(0)
        0
    """
    found = PLAN_FILE.fullmatch(Path(plan).name) if isinstance(plan, (str, Path)) else None
    number = None if found is None else int(found[1]) + 1
    return lambda directive: directive if number is None or directive == 0 else number


def dumped_ranks(path: Path) -> dict[int, Entry]:
    """The valid records in a file N.prof.json, by rank; none if there is no file.

    Raises:
        InputError: The file is another one, or too large.
    """
    return {each["rank"]: each for each in _entries(path) if _is_record(each) and each["iterations"]}


def dumped_instructions(path: Path) -> dict[int, tuple[Instruction, ...]]:
    """The instructions of each rank in a file N.sched.json; none if there is no file.

    Raises:
        InputError: The file is another one, or too large.
    """
    try:
        return {each["rank"]: tuple(map(Instruction.of, each.get("instructions", ()))) for each in _entries(path)}
    except (TypeError, ValueError) as error:
        raise InputError(str(path), str(error)[:80], "instructions kind:stage:microbatch of each rank") from error


def _states(record: IterationRecord) -> Entry:
    """The settings of the instructions in the run of an iteration, as N.sched.json has them."""
    directive = record.directive
    if isinstance(directive, LocalDirective) and directive.limit_watts is not None:
        return {"power_states": [directive.limit_watts] * len(record.instructions), "unit": WATTS}
    return {"power_states": list(record.clocks_megahertz)}


def _entry(rank: int, records: Sequence[tuple[IterationRecord, float]], watts: Mapping[Activity, float]) -> Entry:
    times: dict[str, list[list[float]]] = {}
    energies: dict[str, list[list[float]]] = {}
    for index, (record, _) in enumerate(records):
        for span in instruction_spans(record):
            assert span.activity is not None, "an instruction has one"
            kind, seconds = span.activity.kind, span.end_seconds - span.begin_seconds
            power = watts.get(span.activity)
            for breakdown, value in ((times, seconds), (energies, None if power is None else power * seconds)):
                of_kind = breakdown.setdefault(kind, [[] for _ in records])
                if value is not None:
                    of_kind[index].append(value)
    return {
        "rank": rank,
        "iter_time": [record.end_seconds - record.begin_seconds for record, _ in records],
        "iter_energy": [joules for _, joules in records],
        "time_breakdown": times,
        "energy_breakdown": energies,
        "iterations": [record.number for record, _ in records],
    }


def _entries(path: Path) -> list[Entry]:
    """The entries of the file; none if there is no file.

    Raises:
        InputError: The file is another one, or too large for ``wattloop pipeline analyze``.
    """
    if not os.path.lexists(path):
        return []
    found = parse_json(read_text(path, MAX_FILE_BYTES, EXPECTED), str(path), EXPECTED, MAX_JSON_BYTES)
    if not isinstance(found, list):
        raise InputError(str(path), shown(found), EXPECTED)
    return [each for each in found if isinstance(each, dict) and type(each.get("rank")) is int]


def _is_record(entry: Entry) -> bool:
    """Whether an entry has numbers for each of its iterations."""
    numbers = entry.get("iterations")
    kinds: list[Any] = [entry.get(name) for name in BREAKDOWNS]
    if not _is_numbers(numbers) or not all(isinstance(each, dict) for each in kinds):
        return False
    rows = [lists for each in kinds for lists in each.values()]
    return all(_is_numbers(entry.get(name)) and len(entry[name]) == len(numbers) for name in TOTALS) and all(
        isinstance(lists, list) and len(lists) == len(numbers) and all(map(_is_numbers, lists)) for lists in rows
    )


def _clocks(entry: Entry) -> Entry | None:
    """The clocks of a rank, with their instructions if they are named as such; None if it has no clocks."""
    clocks, instructions = entry.get("power_states"), entry.get("instructions")
    if not _is_numbers(clocks):
        return None
    known: Entry = {"rank": entry["rank"], "power_states": clocks}
    if entry.get("unit") == WATTS:
        known["unit"] = WATTS
    if isinstance(instructions, list) and all(isinstance(each, str) for each in instructions):
        known["instructions"] = instructions
    return known


def _is_numbers(value: object) -> TypeGuard[list[float]]:
    # The comparison also rejects NaN, infinities, and integers beyond all floats.
    return isinstance(value, list) and all(type(each) in (int, float) and 0 <= each <= MAX_NUMBER for each in value)


def _with_common_iterations(entries: Sequence[Entry], own: Entry) -> list[Entry]:
    """The entries with the iterations that all ranks have; those that share none with ours are of an earlier run."""
    mine = set(own["iterations"])
    current = [each for each in entries if mine & set(each["iterations"])]
    common = mine.intersection(*(each["iterations"] for each in current))
    return [_only(each, common) for each in current]


def _only(entry: Entry, iterations: set[int]) -> Entry:
    kept = [index for index, number in enumerate(entry["iterations"]) if number in iterations]

    def only(values: Sequence[Any]) -> list[Any]:
        return [values[index] for index in kept]

    return {
        "rank": entry["rank"],
        **{name: only(entry[name]) for name in TOTALS},
        **{name: {kind: only(lists) for kind, lists in entry[name].items()} for name in BREAKDOWNS},
        "iterations": only(entry["iterations"]),
    }
