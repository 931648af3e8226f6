"""Runs all plans of a folder in one training, one after the other.

As Perseus' server does, runs 0 and 1 warm up at the highest clock, and run k + 2 is under plan k of the folder.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from wattloop.errors import InputError, OperationError
from wattloop.pipeline.measurement_files import PLAN_FILE
from wattloop.pipeline.pipeline_place import PipelinePlace
from wattloop.pipeline.plan_messages import FREE, PLAN, Directive
from wattloop.pipeline.rank_plan_file import PlannedInstruction, PlanRow, given_plan, knob_choices
from wattloop.pipeline.run_series import (
    BEST_PLAN,
    END,
    FREE_CLOCKS,
    RunSchedule,
    RunSeries,
    check_run_options,
    job_run_options,
)

WARM_UP_RUNS = 2
MAX_PLANS = 10_000
FOLLOWING = (FREE_CLOCKS, BEST_PLAN, END)
# For a script that gives no plan itself.
PLANS_VARIABLE = "WATTLOOP_PIPELINE_PLANS"


@dataclass(frozen=True)
class PlanSeries(RunSeries):
    """The plans of a folder, for one rank.

    Attributes:
        folder: The folder.
        files: The plan files, in the order in which they run.
        rows: The rank's instructions under each.
        gpu_product: The GPU model that they are for; empty: not known.
        digest: Of the content of all files.
    """

    setting: ClassVar[str] = "plans"
    warm_up_runs: ClassVar[int] = WARM_UP_RUNS

    folder: Path
    files: tuple[Path, ...]
    rows: tuple[PlanRow, ...]
    gpu_product: str
    digest: str

    @property
    def measured_runs(self) -> int:
        """See `RunSeries`."""
        return len(self.rows)

    def settings(self) -> Mapping[str, object]:
        """See `RunSeries`."""
        return {"plans": [file.name for file in self.files], "digest": self.digest}

    def directives(self, schedule: RunSchedule, highest_megahertz: int) -> list[Directive]:
        """What the rank does: a directive a run, and free clocks at the end.

        Args:
            schedule: When the runs begin.
            highest_megahertz: The clock of the runs that warm up.
        """
        found = []
        for position, run in enumerate(schedule.remaining):
            row = self.row(run, highest_megahertz)
            found.append(
                Directive(
                    number=schedule.first_directive + run,
                    mode=PLAN,
                    first_iteration=schedule.begin_of(position),
                    clocks_megahertz=tuple(entry.megahertz for entry in row),
                    knobs=knob_choices(row),
                    reason=self.described(run),
                )
            )
        return [*found, Directive(number=schedule.last_directive, mode=FREE, first_iteration=schedule.end)]

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
    return SeriesOptions(Path(named), *job_run_options(iterations, following, variables))


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
    check_run_options(options.iterations, options.following, FOLLOWING)
    try:
        files = sorted((item for item in path.iterdir() if item.suffix == ".py"), key=_order)
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
        options.iterations,
        options.following,
        path,
        tuple(files),
        tuple(row for row, _ in plans),
        next(iter(products), ""),
        digest.hexdigest()[:32],
    )


def _order(file: Path) -> tuple[bool, int, str]:
    match = PLAN_FILE.fullmatch(file.name)
    return (match is None, 0 if match is None else int(match[1]), file.name)
