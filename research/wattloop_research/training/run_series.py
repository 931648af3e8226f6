"""A series of runs in one training: a setting of the GPUs after the other, each for the same number of iterations.

All ranks find the same runs and so change the setting at the same iterations, without messages. A training that is
killed goes on, when it is started again, at the first run that some rank has not dumped, after those that warm up.
"""

import json
import logging
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypedDict

from wattloop.errors import InputError, UsageError
from wattloop.files.atomic_write import locked, open_atomic
from wattloop.files.reading import MAX_JSON_BYTES, parse_json, read_text
from wattloop.pipeline.directives import LocalDirective
from wattloop.pipeline.iteration_energy import JoulesBetween
from wattloop.pipeline.iteration_record import IterationRecord
from wattloop.pipeline.pipeline_place import PipelinePlace, require_integer
from wattloop.pipeline.plan_messages import InstructionMeasurement
from wattloop.pipeline.plan_source import DUMPS_VARIABLE, PlannedRank, PlanSource, Recorder
from wattloop.pipeline.rank_plan_file import PlanRow
from wattloop.printable import printable
from wattloop_research.training.experiment_name import experiment_folder
from wattloop_research.training.run_dump import RunDump, dumped_ranks

logger = logging.getLogger("wattloop")

# Iteration 0 shows what the instructions are.
FIRST_ITERATION = 1
# The first iteration of a run, after a change of the setting.
UNMEASURED_ITERATIONS = 1
MAX_ITERATIONS = 1_000_000
# What follows the last run.
FREE_CLOCKS, BEST_PLAN, END = "free", "best", "end"
# The first run whose dump is needed: it is compared with the others, or it is one of them.
BASE_RUN = 1
SERIES_FILE = "series.json"
MAX_SERIES_BYTES = 4 * 1024 * 1024
# Of its iterations, a run must have so many with their setting and a known energy.
LEAST_SHARE = 0.5
# All ranks have read by then what rank 0 wrote; they look for it every second.
AGREEMENT_SECONDS = 5.0
MARGIN_ITERATIONS = 2


@dataclass(frozen=True)
class SeriesRun:
    """What the rank does in a run.

    Attributes:
        text: What it is, for messages.
        row: The instructions with their clocks; empty: free clocks.
        gpu_product: The GPU model that they are for; empty: not known.
        limit_watts: The power limit, with free clocks.
    """

    text: str
    row: PlanRow = ()
    gpu_product: str = ""
    limit_watts: int | None = None

    def directive(self, number: int, first_iteration: int) -> LocalDirective:
        """The directive of the run."""
        if self.row:
            return LocalDirective.of_plan(number, first_iteration, self.row, self.gpu_product, self.text)
        return LocalDirective(
            number=number, first_iteration=first_iteration, reason=self.text, limit_watts=self.limit_watts
        )


class RunSeries(RunDump):
    """The runs of one rank, and their dumps.

    Args:
        folder: Folder of the dumps; made if it is missing.
        place: The place of the rank.
        runs: All runs, those that warm up first.
        warm_ups: Number of runs that warm up.
        kind: What differs between the runs, in the plural.
        settings: What the runs are, as JSON.
        iterations: Iterations measured in each run.
        first_iteration: When the first of them begins.
        first_directive: Number of the directive of run 0; run N has the number N higher.
        later_runs: Runs that follow those of the series, for the time left.

    Attributes:
        remaining: The runs to run: those that warm up, and those that the dumps lack.
        left: Those of them that are not dumped yet.

    Raises:
        UsageError: The dumps are of other settings.
        InputError: A file in them is another one.
        OperationError: They cannot be read or written.
    """

    def __init__(
        self,
        folder: Path,
        place: PipelinePlace,
        runs: Sequence[SeriesRun],
        *,
        warm_ups: int,
        kind: str,
        settings: Mapping[str, object],
        iterations: int,
        first_iteration: int = FIRST_ITERATION,
        first_directive: int = 1,
        later_runs: int = 0,
    ) -> None:
        super().__init__(folder, place.rank, lambda directive: directive - first_directive)
        self.runs = tuple(runs)
        self._ranks = place.ranks
        self._kind = kind
        self._iterations = iterations
        self._first_iteration = first_iteration
        self._first_directive = first_directive
        self._later_runs = later_runs
        self._seen: dict[int, int] = {}
        self._latest = -1
        self._claim({**settings, "iterations": iterations})
        self.remaining = self._remaining(warm_ups)
        self.left = list(self.remaining)

    @property
    def end(self) -> int:
        """The iteration after the last run; 0 without a run."""
        return self._begin_of(len(self.remaining)) if self.remaining else 0

    @property
    def last_directive(self) -> int:
        """Number of the directive that follows the last run."""
        return self._first_directive + len(self.runs)

    def directives(self) -> list[LocalDirective]:
        """What the rank does: a directive a run, and free clocks at the end."""
        found = [
            self.runs[run].directive(self._first_directive + run, self._begin_of(position))
            for position, run in enumerate(self.remaining)
        ]
        return [*found, LocalDirective(number=self.last_directive, first_iteration=self.end)]

    def missing(self) -> list[int]:
        """The runs from `BASE_RUN` on that not all ranks have dumped.

        Raises:
            InputError: A file in the dumps is another one.
        """
        needed = range(BASE_RUN, len(self.runs))
        return [run for run in needed if len(dumped_ranks(self.folder / f"{run}.prof.json")) < self._ranks]

    def add(self, record: IterationRecord) -> None:
        """Keep an iteration of a run, if it had the setting of the run."""
        self._latest = record.number
        run = self.number_of(record.directive.number)
        if run in self.left and bool(record.clocks_megahertz) == bool(self.runs[run].row) and not record.interrupted:
            self._seen[run] = self._seen.get(run, 0) + 1
            super().add(record)

    def collect(
        self,
        before_seconds: float,
        joules_between: JoulesBetween,
        measurements: Callable[[], Sequence[InstructionMeasurement]],
    ) -> None:
        """See `Recorder`."""
        super().collect(before_seconds, joules_between, measurements)
        pending = {self.number_of(record.directive.number) for record in self.pending}
        for run in [run for run in self.left if self._is_complete(run, pending)]:
            self.write_run(run, measurements())
            self.left.remove(run)
            self._report(run)
            self.forget(run)

    def close(self, measurements: Sequence[InstructionMeasurement], blocking_watts: float | None) -> None:  # noqa: ARG002
        """Leave out the runs that are not complete, with a message."""
        for run in self.left:
            if self._seen.get(run):
                logger.warning(
                    "run %d (%s) has %d of %d iterations, and is not in the dumps; a training with the same folders "
                    "repeats it",
                    run,
                    self.runs[run].text,
                    len(self.records.get(run, ())),
                    self._iterations,
                )

    def _begin_of(self, position: int) -> int:
        """The first iteration of a run, by its position among those that remain."""
        return self._first_iteration + position * (UNMEASURED_ITERATIONS + self._iterations)

    def _claim(self, own: Mapping[str, object]) -> None:
        """Write what the dumps are of, or compare it."""
        path = self.folder / SERIES_FILE
        with locked(path):
            if not path.exists():
                with open_atomic(path) as stream:
                    json.dump(own, stream)
                return
            found = read_json(path, f"what an earlier run of {self._kind} wrote")
        if found != own:
            raise UsageError(
                f"dumps: {self.folder} has runs of other {self._kind}, or of another number of iterations, than this "
                f"rank with iterations={self._iterations}; name another folder, or delete it"
            )

    def _remaining(self, warm_ups: int) -> tuple[int, ...]:
        missing, measured = self.missing(), len(self.runs) - warm_ups
        if not missing:
            logger.info("the dumps in %s have all %d %s", self.folder, measured, self._kind)
            return ()
        have = measured - sum(run >= warm_ups for run in missing)
        if have:
            logger.info("the dumps in %s have %d of %d %s", self.folder, have, measured, self._kind)
        remaining = tuple(sorted({*range(warm_ups), *missing}))
        # What some ranks of an earlier process dumped would be joined with the records of this one. No rank has a run
        # of its own yet: the first iteration ends after all ranks have begun.
        for run in remaining:
            for name in (f"{run}.prof.json", f"{run}.sched.json"):
                (self.folder / name).unlink(missing_ok=True)
        return remaining

    def _is_complete(self, run: int, pending: set[int]) -> bool:
        if self._latest < self._begin_of(self.remaining.index(run) + 1) - 1 or run in pending:
            return False
        # Some iterations may lack: their energy is not known, or the agent did not hold the setting.
        return len(self.records.get(run, ())) >= LEAST_SHARE * self._iterations

    def _report(self, run: int) -> None:
        """Log progress; on a terminal show it, where the script shows no such log."""
        times = [record.end_seconds - record.begin_seconds for record, _ in self.records[run]]
        if self.rank or not times:
            return
        seconds = sum(times) / len(times)
        left = len(self.left) + self._later_runs
        minutes = left * (UNMEASURED_ITERATIONS + self._iterations) * seconds / 60
        text = f"run {run} is complete, {self.runs[run].text}: {seconds:.4g} s an iteration; {left} runs left"
        progress = f"{text}, about {minutes:.3g} min"
        logger.info("%s", progress)
        if sys.stderr.isatty() and not logger.isEnabledFor(logging.INFO):
            sys.stderr.write(f"{printable(progress)}\n")
            sys.stderr.flush()


class RunOptions(TypedDict, total=False):
    """Arguments of `MeasuredRuns`."""

    iterations: int
    then: str
    framework: str
    partition: str
    microbatch_size: int


class MeasuredRuns(PlanSource, Recorder):
    """Sets what each run of a series has, and writes its dumps.

    Args:
        iterations: Iterations measured in each run.
        then: What follows the last run: ``free`` clocks, or ``end``: the next iteration raises
            `wattloop.pipeline.PlansCompleted`.
        framework, partition, microbatch_size: With the pipeline's model, they name the folder in the dumps, as
            Perseus' server does: ``framework+model+partition+dp1+pp4+tp1+mbs4+nmb128+PointSolution``.

    Attributes:
        series: The series that have begun.
        latest: The newest iteration; None before the first.

    Raises:
        UsageError: The number of iterations is out of its range, or nothing of this name follows the last run.
    """

    following: ClassVar[tuple[str, ...]] = (FREE_CLOCKS, END)

    def __init__(
        self,
        *,
        iterations: int = 10,
        then: str = FREE_CLOCKS,
        framework: str = "wattloop",
        partition: str = "",
        microbatch_size: int = 0,
    ) -> None:
        require_integer("iterations", iterations, 1, MAX_ITERATIONS)
        if then not in self.following:
            raise UsageError(f"then: found {then!r:.40}, expected one of {', '.join(self.following)}")
        self.iterations = iterations
        self.then = then
        self.series: list[RunSeries] = []
        self.latest: IterationRecord | None = None
        self._names = framework, partition, microbatch_size

    def folder(self, rank: PlannedRank, scheduler: str) -> Path:
        """The folder of the dumps.

        Raises:
            UsageError: There is none, or its name cannot be made of what the script states.
        """
        if rank.dumps is None:
            raise UsageError(
                "dumps: missing; a folder of plans or a baseline is run to be measured, so name a folder, or set "
                f"{DUMPS_VARIABLE}"
            )
        return experiment_folder(rank.dumps, rank, self._names, scheduler)

    def run(self, series: RunSeries) -> None:
        """Begin with the runs of a series."""
        self.series.append(series)
        for directive in series.directives():
            self.rank.state.receive(directive)

    def end_at(self, iteration: int) -> None:
        """End the training at an iteration, if it is to end."""
        if self.then == END:
            self.end_iteration = iteration

    def add(self, record: IterationRecord) -> None:
        """See `Recorder`."""
        self.latest = record
        for series in self.series:
            series.add(record)

    def collect(
        self,
        before_seconds: float,
        joules_between: JoulesBetween,
        measurements: Callable[[], Sequence[InstructionMeasurement]],
    ) -> None:
        """See `Recorder`."""
        for series in self.series:
            series.collect(before_seconds, joules_between, measurements)

    def close(self, measurements: Sequence[InstructionMeasurement], blocking_watts: float | None) -> None:
        """See `Recorder`."""
        for series in self.series:
            series.close(measurements, blocking_watts)


def read_json(path: Path, expected: str) -> Any:
    """The content of a file that a rank wrote.

    Raises:
        InputError: It is no JSON, or too large.
        OperationError: It cannot be read.
    """
    return parse_json(read_text(str(path), MAX_SERIES_BYTES, expected), str(path), expected, MAX_JSON_BYTES)


def read_fields(path: Path, **kinds: type) -> list[Any]:
    """The fields of an object that rank 0 wrote for all: whole numbers, and lists of them.

    Raises:
        InputError: It is another one.
        OperationError: It cannot be read.
    """
    expected = f"an object with {' and '.join(kinds)}"
    found = read_json(path, expected)
    values = [found.get(name) if isinstance(found, dict) else None for name in kinds]
    numbers = [each for value in values for each in (value if isinstance(value, list) else [value])]
    if [*map(type, values)] != [*kinds.values()] or not all(type(each) is int and each >= 0 for each in numbers):
        raise InputError(str(path), repr(found)[:60], expected)
    return values


def iteration_for_all(latest: IterationRecord) -> int:
    """An iteration before which all ranks read what rank 0 writes now.

    Example:
        >>> from array import array
        >>> from wattloop.pipeline.plan_messages import Directive
        >>> iteration_for_all(IterationRecord(100, Directive(), (), (), 0.0, 0.5, array("d")))
        112
    """
    seconds = max(latest.end_seconds - latest.begin_seconds, 1e-3)
    return latest.number + math.ceil(AGREEMENT_SECONDS / seconds) + MARGIN_ITERATIONS
