"""Runs all plans of a folder in one training, one after the other, each for the same number of iterations.

All ranks find the same plans and so change them at the same iterations, without messages. As Perseus' server does, runs
0 and 1 warm up at the highest clock, and run k + 2 is under plan k of the folder. The first iteration of each run
is not measured. A run is dumped when all its iterations are measured, so a training that is killed goes on, when it
is started again, at the first plan that some rank has not dumped. The warm-up is repeated then.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from wattloop.errors import InputError, OperationError, UsageError
from wattloop.files.atomic_write import locked, open_atomic
from wattloop.files.reading import MAX_JSON_BYTES, parse_json, read_text
from wattloop.pipeline.measurement_files import PLAN_FILE
from wattloop.pipeline.place import PipelinePlace, require_integer
from wattloop.pipeline.plan_messages import FREE, PLAN, Directive
from wattloop.pipeline.rank_plan_file import PlannedInstruction, PlanRow, given_plan, knob_choices
from wattloop.pipeline.run_dump import dumped_ranks

logger = logging.getLogger("wattloop")

WARM_UP_RUNS = 2
# Iteration 0 shows what the instructions are.
FIRST_ITERATION = 1
# The first iteration of a run, after a change of the clocks.
UNMEASURED_ITERATIONS = 1
DEFAULT_ITERATIONS_PER_PLAN = 10
MAX_PLANS = 10_000
MAX_ITERATIONS_PER_PLAN = 1_000_000
MAX_DIGITS = 7
# What follows the last plan.
FREE_CLOCKS, BEST_PLAN, END = "free", "best", "end"
FOLLOWING = (FREE_CLOCKS, BEST_PLAN, END)
SERIES_FILE = "series.json"
MAX_SERIES_BYTES = 4 * 1024 * 1024
# For a script that gives no plan itself.
PLANS_VARIABLE = "WATTLOOP_PIPELINE_PLANS"
PLAN_ITERATIONS_VARIABLE = "WATTLOOP_PIPELINE_PLAN_ITERATIONS"
PLANS_THEN_VARIABLE = "WATTLOOP_PIPELINE_PLANS_THEN"


class PlansCompleted(SystemExit):
    """All plans of the folder have run, and the training is to end; without a handler, it ends with exit code 0."""

    def __init__(self) -> None:
        super().__init__(0)


@dataclass(frozen=True)
class PlanSeries:
    """The plans of a folder, for one rank.

    Attributes:
        folder: The folder.
        files: The plan files, in the order in which they run.
        rows: The rank's instructions under each.
        gpu_product: The GPU model that they are for; empty: not known.
        iterations: Iterations measured under each plan.
        following: What follows the last plan: `FREE_CLOCKS`, `BEST_PLAN` or `END`.
        digest: Of the content of all files.
    """

    folder: Path
    files: tuple[Path, ...]
    rows: tuple[PlanRow, ...]
    gpu_product: str
    iterations: int
    following: str
    digest: str

    @property
    def runs(self) -> int:
        """Number of runs, those that warm up included."""
        return WARM_UP_RUNS + len(self.rows)

    @property
    def iterations_of_run(self) -> int:
        """Iterations of a run, with the one that is not measured."""
        return UNMEASURED_ITERATIONS + self.iterations

    def remaining(self, dumps: Path, ranks: int) -> tuple[int, ...]:
        """The runs to run: those that warm up, and those that the dumps lack.

        Args:
            dumps: Folder of the dumps; made if it is missing.
            ranks: Number of ranks of the job.

        Raises:
            UsageError: The dumps are of other plans.
            InputError: A file in it is another one.
            OperationError: It cannot be read or written.
        """
        self._claim(dumps)
        plans = range(WARM_UP_RUNS, self.runs)
        missing = [run for run in plans if len(dumped_ranks(dumps / f"{run}.prof.json")) < ranks]
        if not missing:
            logger.info("the dumps in %s have all %d plans", dumps, len(plans))
            return ()
        if len(missing) < len(plans):
            logger.info("the dumps in %s have %d of %d plans", dumps, len(plans) - len(missing), len(plans))
        remaining = (*range(WARM_UP_RUNS), *missing)
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
        own = {"plans": [file.name for file in self.files], "digest": self.digest, "iterations": self.iterations}
        with locked(path):
            if not path.exists():
                with open_atomic(path) as stream:
                    json.dump(own, stream)
                return
            expected = "what an earlier run with a folder of plans wrote"
            found = parse_json(read_text(path, MAX_SERIES_BYTES, expected), str(path), expected, MAX_JSON_BYTES)
        if found != own:
            raise UsageError(
                f"dumps: {dumps} has runs of other plans, or of another number of iterations, than {self.folder} with "
                f"plan_iterations={self.iterations}; name another folder, or delete it"
            )

    def directives(self, remaining: Sequence[int], highest_megahertz: int) -> list[Directive]:
        """What the rank does: a directive a run, with the number of the run plus 1, and free clocks at the end.

        Args:
            remaining: The runs.
            highest_megahertz: The clock of the runs that warm up.
        """
        found = []
        for position, run in enumerate(remaining):
            row = self.row(run, highest_megahertz)
            found.append(
                Directive(
                    number=run + 1,
                    mode=PLAN,
                    first_iteration=FIRST_ITERATION + position * self.iterations_of_run,
                    clocks_megahertz=tuple(entry.megahertz for entry in row),
                    knobs=knob_choices(row),
                    reason=self.described(run),
                )
            )
        return [*found, Directive(number=self.runs + 1, mode=FREE, first_iteration=self.end(remaining))]

    def end(self, remaining: Sequence[int]) -> int:
        """The iteration after the last run."""
        return FIRST_ITERATION + len(remaining) * self.iterations_of_run if remaining else 0

    def row(self, run: int, highest_megahertz: int) -> PlanRow:
        """The instructions of a run with their clocks."""
        if run < WARM_UP_RUNS:
            return tuple(PlannedInstruction(entry.kind, highest_megahertz) for entry in self.rows[0])
        return self.rows[run - WARM_UP_RUNS]

    def described(self, run: int) -> str:
        """A run, for messages."""
        if run < WARM_UP_RUNS:
            return "warm-up at the highest clock"
        number = run - WARM_UP_RUNS
        return f"plan {number + 1} of {len(self.rows)}: {self.files[number].name}"


@dataclass(frozen=True)
class SeriesOptions:
    """What a script says of a series, or the job that it runs in.

    Attributes:
        folder: The folder of plans.
        iterations: Iterations measured under each plan.
        following: What follows the last plan.
    """

    folder: Path
    iterations: int
    following: str


def series_options(plan: object, iterations: int, following: str, variables: Mapping[str, str]) -> SeriesOptions | None:
    """The series to run: the folder that the script gives as plan, else that of ``WATTLOOP_PIPELINE_PLANS``.

    Raises:
        InputError: A variable has another form.
    """
    if plan is not None:
        is_folder = isinstance(plan, (str, Path)) and Path(plan).is_dir()
        return SeriesOptions(Path(str(plan)), iterations, following) if is_folder else None
    named = variables.get(PLANS_VARIABLE, "")
    if not named:
        return None
    text = variables.get(PLAN_ITERATIONS_VARIABLE, "") or str(iterations)
    if not text.isdecimal() or len(text) > MAX_DIGITS:
        raise InputError(PLAN_ITERATIONS_VARIABLE, repr(text)[:40], f"1 to {MAX_ITERATIONS_PER_PLAN} iterations")
    return SeriesOptions(Path(named), int(text), variables.get(PLANS_THEN_VARIABLE, "") or following)


def read_plan_series(options: SeriesOptions, place: PipelinePlace, gpu_product: str) -> PlanSeries:
    """The plans of a folder: its ``.py`` files, by the index in their names, and then by name.

    Args:
        options: Folder, iterations, and what follows.
        place: The place of the rank.
        gpu_product: The GPU model that the script names; empty: that of the plan files.

    Raises:
        UsageError: An option has another value, or a plan names another GPU model.
        InputError: There is no plan, or one is not valid.
        OperationError: The folder cannot be read.
    """
    path, folder = options.folder, str(options.folder)
    require_integer("plan_iterations", options.iterations, 1, MAX_ITERATIONS_PER_PLAN)
    if options.following not in FOLLOWING:
        raise UsageError(f"plans_then: found {options.following!r:.40}, expected one of {', '.join(FOLLOWING)}")
    try:
        files = sorted((item for item in path.iterdir() if item.suffix == ".py" and item.is_file()), key=_order)
    except OSError as error:
        raise OperationError(f"{folder}: cannot read: {error.strerror}; name a folder of plans") from error
    if not 0 < len(files) <= MAX_PLANS:
        found = f"{len(files)} plans" if files else "no plan"
        expected = f"1 to {MAX_PLANS} plan files freqs_pipeline_N.py, as wattloop plan writes them"
        raise InputError(folder, found, expected)
    plans = tuple(given_plan(file, place, gpu_product) for file in files)
    products = {product: file for (_, product), file in zip(plans, files, strict=True) if product}
    if len(products) > 1:
        (first, one), (second, other) = list(products.items())[:2]
        raise InputError(folder, f"{one.name} for {first} and {other.name} for {second}", "plans for one GPU model")
    digest = hashlib.sha256()
    for file in files:
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return PlanSeries(
        path,
        tuple(files),
        tuple(row for row, _ in plans),
        next(iter(products), ""),
        options.iterations,
        options.following,
        digest.hexdigest()[:32],
    )


def _order(file: Path) -> tuple[bool, int, str]:
    match = PLAN_FILE.fullmatch(file.name)
    return (match is None, 0 if match is None else int(match[1]), file.name)
