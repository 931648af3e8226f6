"""Reads what Perseus' training framework exports of a profile: instructions and the energy counter of each rank.

``instructions-N.csv`` of rank N has the columns instruction, start and end (s): ``forward_microstep``,
``backward_microstep`` and ``batch_input`` in the order in which they ran. ``time-energy-N.csv`` has time (s) and
energy (J, the accumulated counter). The clock changes after each round of a fixed number of iterations, from the
highest down. The energy of an instruction is the difference of the counter at its end and at its start,
interpolated linearly. The ranks are those of one pipeline, in the order of its stages.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from wattloop.errors import InputError, OperationError
from wattloop.files.csv_table import read_table
from wattloop_planner.frequency.pipeline.instruction_profiles import canonical_instruction
from wattloop_planner.frequency.pipeline.merged_profiles import ClockMeasurement
from wattloop_planner.frequency.pipeline.planning_problem import Floats

INSTRUCTION_FILE = re.compile(r"instructions-(0|[1-9]\d{0,5})\.csv")
NAMES = {"forward_microstep": "forward", "backward_microstep": "backward", "batch_input": "load"}
LOAD = "load"


@dataclass(frozen=True)
class Rounds:
    """How the clocks of an export changed.

    Attributes:
        clocks_megahertz: The clock of each round, in order.
        microbatches: Microbatches in an iteration: each has one instruction of a kind.
        warm_up_rounds: Rounds before the first clock, which are left out.
    """

    clocks_megahertz: tuple[int, ...]
    microbatches: int
    iterations: int
    warm_up_rounds: int

    @property
    def repetitions(self) -> int:
        """Instructions of a kind in a round."""
        return self.microbatches * self.iterations


def published_warm_up_rounds(iterations: int) -> int:
    """The published rule: a tenth of the iterations of a round, at most 10.

    Example:
        >>> [published_warm_up_rounds(iterations) for iterations in (5, 20, 400)]
        [0, 2, 10]
    """
    return min(iterations // 10, 10)


def export_ranks(folder: str | Path) -> list[int]:
    """Ranks whose instructions a folder has, in order; none if it is no such export.

    Raises:
        OperationError: The folder cannot be read.
    """
    try:
        names = [item.name for item in Path(folder).iterdir()]
    except OSError as error:
        raise OperationError(f"{folder}: cannot read: {error.strerror}; name a folder of exports or dumps") from error
    return sorted(int(match[1]) for name in names if (match := INSTRUCTION_FILE.fullmatch(name)))


def read_export(folder: str | Path, rounds: Rounds) -> Iterator[ClockMeasurement]:
    """The mean time and energy of each kind of instruction of each rank at each clock, with standard errors.

    A round that did not end is left out. Of the last rank's loads, every second one counts: the other of each pair
    is an artefact of how its input is received.

    Raises:
        OperationError: The folder cannot be read.
        InputError: A rank or a file is missing or invalid, or there are more rounds than clocks.
    """
    path, ranks = Path(folder), export_ranks(folder)
    if ranks != list(range(len(ranks))):
        raise InputError(str(folder), f"instructions of the ranks {ranks}", "those of all ranks from 0 on")
    for rank in ranks:
        counter = _read_counter(path / f"time-energy-{rank}.csv")
        file = path / f"instructions-{rank}.csv"
        for kind, spans in _spans(file).items():
            is_doubled = kind == LOAD and rank == ranks[-1]
            yield from _measurements(file, kind, spans[1::2] if is_doubled else spans, rounds, counter)


@dataclass(frozen=True)
class _Counter:
    """The readings of a rank's energy counter."""

    rank: int
    times: Floats
    joules: Floats


def _read_counter(file: Path) -> _Counter:
    rows = list(read_table(file, ("time", "energy")))
    if len(rows) < 2:
        raise InputError(str(file), f"{len(rows)} readings", "at least 2 readings of the counter")
    times = np.array([row.number("time") for row in rows])
    joules = np.array([row.number("energy", minimum=0) for row in rows])
    for name, values in (("time", times), ("energy", joules)):
        falls = np.flatnonzero(np.diff(values) < 0)
        if len(falls):
            row = rows[int(falls[0]) + 1]
            raise InputError(
                row.source, f"{row.cells[name]}, less than before", "values that do not fall", row.line, name
            )
    return _Counter(int(file.stem.rpartition("-")[2]), times, joules)


def _spans(file: Path) -> dict[str, Floats]:
    """Start and end of the instructions of each kind, shape (repetitions, 2), in the order of the file."""
    found: dict[str, list[tuple[float, float]]] = {}
    for row in read_table(file, ("instruction", "start", "end")):
        name = row.text("instruction")
        start = row.number("start")
        kind = NAMES.get(name, canonical_instruction(name))
        found.setdefault(kind, []).append((start, row.number("end", above=start)))
    if not found:
        raise InputError(str(file), "no instruction", "a row for each instruction that ran", 1)
    return {kind: np.array(spans) for kind, spans in found.items()}


def _measurements(
    file: Path, kind: str, spans: Floats, rounds: Rounds, counter: _Counter
) -> Iterator[ClockMeasurement]:
    count = len(spans) // rounds.repetitions - rounds.warm_up_rounds
    if not 0 < count <= len(rounds.clocks_megahertz):
        raise InputError(
            str(file),
            f"{len(spans)} instructions {kind}, which are {count} whole rounds of {rounds.repetitions} after "
            f"{rounds.warm_up_rounds} that warm up",
            f"1 to {len(rounds.clocks_megahertz)} rounds, one for each clock; check --microbatches, --iterations, "
            "--warm-up-rounds and --clocks",
        )
    times, rank = counter.times, counter.rank
    if spans.min() < times[0] or spans.max() > times[-1]:
        raise InputError(
            str(file),
            f"an instruction {kind} outside of {times[0]:.9g} to {times[-1]:.9g} s",
            f"instructions within the readings of time-energy-{rank}.csv",
        )
    first = rounds.warm_up_rounds * rounds.repetitions
    seconds = np.diff(spans, axis=1)[:, 0]
    energies = np.diff(np.interp(spans, times, counter.joules), axis=1)[:, 0]
    for number, clock in enumerate(rounds.clocks_megahertz[:count]):
        kept = slice(first + number * rounds.repetitions, first + (number + 1) * rounds.repetitions)
        yield measurement(rank, rank, kind, clock, seconds=seconds[kept].tolist(), joules=energies[kept].tolist())


def measurement(
    rank: int, stage: int, kind: str, megahertz: int, *, seconds: Sequence[float], joules: Sequence[float]
) -> ClockMeasurement:
    """The means over repetitions with their standard errors; without energies, the energy is not known."""
    return ClockMeasurement(
        str(rank),
        stage,
        kind,
        megahertz,
        float(np.mean(seconds)),
        float(np.mean(joules)) if len(joules) else None,
        _standard_error(seconds),
        _standard_error(joules),
    )


def _standard_error(values: Sequence[float]) -> float | None:
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None
