"""A series of runs in one training: a setting of the GPUs after the other, each for the same number of iterations.

All ranks find the same runs and so change the setting at the same iterations, without messages. The first iteration
of each run is not measured. A run is dumped when all its iterations are measured, so a training that is killed goes
on, when it is started again, at the first run that some rank has not dumped. The runs that warm up are repeated then.
"""

from __future__ import annotations

import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from wattloop.errors import InputError, OperationError, UsageError
from wattloop.files.atomic_write import locked, open_atomic
from wattloop.files.reading import MAX_JSON_BYTES, parse_json, read_text
from wattloop.pipeline.pipeline_place import require_integer
from wattloop.pipeline.run_dump import dumped_ranks

logger = logging.getLogger("wattloop")

# Iteration 0 shows what the instructions are.
FIRST_ITERATION = 1
# The first iteration of a run, after a change of the setting.
UNMEASURED_ITERATIONS = 1
DEFAULT_ITERATIONS_PER_RUN = 10
MAX_ITERATIONS_PER_RUN = 1_000_000
MAX_DIGITS = 7
# What follows the last run.
FREE_CLOCKS, BEST_PLAN, END = "free", "best", "end"
SERIES_FILE = "series.json"
MAX_SERIES_BYTES = 4 * 1024 * 1024
# For a script that says neither itself.
ITERATIONS_VARIABLE = "WATTLOOP_PIPELINE_PLAN_ITERATIONS"
FOLLOWING_VARIABLE = "WATTLOOP_PIPELINE_PLANS_THEN"


class PlansCompleted(SystemExit):
    """All runs of a series are over, and the training is to end; without a handler, it ends with exit code 0."""

    def __init__(self) -> None:
        super().__init__(0)


@dataclass(frozen=True)
class RunSeries(ABC):
    """The runs of a series, for one rank.

    Attributes:
        iterations: Iterations measured in each run.
        following: What follows the last run: `FREE_CLOCKS`, `BEST_PLAN` or `END`.
        setting: What differs between the runs, in the plural.
        warm_up_runs: Number of first runs, which warm up.
        base_run: The first run whose dump is needed: it is compared with the others, or it is one of them.
    """

    setting: ClassVar[str]
    warm_up_runs: ClassVar[int]
    base_run: ClassVar[int] = 1

    iterations: int
    following: str

    @property
    @abstractmethod
    def measured_runs(self) -> int:
        """Number of runs after those that warm up."""

    @abstractmethod
    def settings(self) -> Mapping[str, object]:
        """What the runs are, as JSON."""

    @abstractmethod
    def described(self, run: int) -> str:
        """A run, for messages."""

    @property
    def runs(self) -> int:
        """Number of runs, those that warm up included."""
        return self.warm_up_runs + self.measured_runs

    @property
    def iterations_of_run(self) -> int:
        """Iterations of a run, with the one that is not measured."""
        return UNMEASURED_ITERATIONS + self.iterations

    def missing(self, dumps: Path, ranks: int) -> list[int]:
        """The runs from `base_run` on that not all ranks have dumped.

        Raises:
            InputError: A file in the dumps is another one.
        """
        needed = range(self.base_run, self.runs)
        return [run for run in needed if len(dumped_ranks(dumps / f"{run}.prof.json")) < ranks]

    def remaining(self, dumps: Path, ranks: int) -> tuple[int, ...]:
        """The runs to run: those that warm up, and those that the dumps lack.

        Args:
            dumps: Folder of the dumps; made if it is missing.
            ranks: Number of ranks of the job.

        Raises:
            UsageError: The dumps are of other settings.
            InputError: A file in it is another one.
            OperationError: It cannot be read or written.
        """
        self._claim(dumps)
        missing = self.missing(dumps, ranks)
        if not missing:
            logger.info("the dumps in %s have all %d %s", dumps, self.measured_runs, self.setting)
            return ()
        have = self.measured_runs - sum(run >= self.warm_up_runs for run in missing)
        if have:
            logger.info("the dumps in %s have %d of %d %s", dumps, have, self.measured_runs, self.setting)
        remaining = tuple(sorted({*range(self.warm_up_runs), *missing}))
        # What some ranks of an earlier process dumped would be joined with the records of this one. No rank has a run
        # of its own yet: the first iteration ends after all ranks have begun.
        for run in remaining:
            for name in (f"{run}.prof.json", f"{run}.sched.json"):
                (dumps / name).unlink(missing_ok=True)
        return remaining

    def _claim(self, dumps: Path) -> None:
        """Write what the dumps are of, or compare it."""
        try:
            dumps.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OperationError(f"{dumps}: cannot make the folder: {error.strerror}") from error
        path = dumps / SERIES_FILE
        own = {**self.settings(), "iterations": self.iterations}
        with locked(path):
            if not path.exists():
                with open_atomic(path) as stream:
                    json.dump(own, stream)
                return
            expected = f"what an earlier run of {self.setting} wrote"
            found = parse_json(read_text(path, MAX_SERIES_BYTES, expected), str(path), expected, MAX_JSON_BYTES)
        if found != own:
            raise UsageError(
                f"dumps: {dumps} has runs of other {self.setting}, or of another number of iterations, than this rank "
                f"with plan_iterations={self.iterations}; name another folder, or delete it"
            )


@dataclass(frozen=True)
class RunSchedule:
    """When each run of a series begins.

    Attributes:
        series: The series.
        remaining: The runs to run.
        first_iteration: Iteration at which the first of them begins.
        first_directive: Number of the directive of run 0; run N has the number N higher.
    """

    series: RunSeries
    remaining: Sequence[int]
    first_iteration: int = FIRST_ITERATION
    first_directive: int = 1

    @property
    def end(self) -> int:
        """The iteration after the last run; 0 without a run."""
        return self.begin_of(len(self.remaining)) if self.remaining else 0

    @property
    def last_directive(self) -> int:
        """Number of the directive that follows the last run."""
        return self.first_directive + self.series.runs

    def begin_of(self, position: int) -> int:
        """The first iteration of a run, by its position among those that remain."""
        return self.first_iteration + position * self.series.iterations_of_run

    def last_iterations(self) -> dict[int, int]:
        """The last iteration of each run that remains, by its number."""
        return {run: self.begin_of(position + 1) - 1 for position, run in enumerate(self.remaining)}

    def run_of(self, directive: int) -> int:
        """Number of the run under a directive."""
        return directive - self.first_directive


def job_run_options(iterations: int, following: str, variables: Mapping[str, str]) -> tuple[int, str]:
    """Iterations of a run and what follows the last one, as the job says, else as given.

    Raises:
        InputError: A variable has another form.
    """
    text = variables.get(ITERATIONS_VARIABLE, "") or str(iterations)
    if not text.isdecimal() or len(text) > MAX_DIGITS:
        raise InputError(ITERATIONS_VARIABLE, repr(text)[:40], f"1 to {MAX_ITERATIONS_PER_RUN} iterations")
    return int(text), variables.get(FOLLOWING_VARIABLE, "") or following


def check_run_options(iterations: int, following: str, choices: Sequence[str]) -> None:
    """Check what a script or a job says of the runs of a series.

    Raises:
        UsageError: The number of iterations is out of its range, or nothing of this name follows the last run.
    """
    require_integer("plan_iterations", iterations, 1, MAX_ITERATIONS_PER_RUN)
    if following not in choices:
        raise UsageError(f"plans_then: found {following!r:.40}, expected one of {', '.join(choices)}")
