"""Runs all plans of a folder in one training, and the best one afterwards: docs/internals/pipeline-experiments.md."""

import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Unpack

from wattloop.errors import InputError, OperationError
from wattloop.files.atomic_write import open_atomic
from wattloop.gpus.agent import GpuDescription
from wattloop.pipeline.directives import allowed_clocks
from wattloop.pipeline.iteration_energy import JoulesBetween
from wattloop.pipeline.iteration_record import IterationRecord
from wattloop.pipeline.plan_messages import InstructionMeasurement
from wattloop.pipeline.plan_source import PlannedRank, Recorder
from wattloop.pipeline.rank_plan_file import PLAN_FILE, PlannedInstruction, PlanRow, given_plan
from wattloop_research.training.run_dump import Entry, dumped_ranks
from wattloop_research.training.run_series import (
    BASE_RUN,
    BEST_PLAN,
    END,
    FREE_CLOCKS,
    MeasuredRuns,
    RunOptions,
    RunSeries,
    SeriesRun,
    iteration_for_all,
    read_fields,
)

logger = logging.getLogger("wattloop")

WARM_UP_RUNS = 2
MAX_PLANS = 10_000
BEST_FILE = "best.json"
# Of Perseus' server, which runs the plans of a folder in the same way.
PLAN_SCHEDULER = "PointSolution"
# A plan that takes longer than the highest clock by less is not slower: measurements of iterations differ by more.
SAME_TIME = 0.01


class PlanFolder(MeasuredRuns):
    """All plans of a folder: its ``.py`` files, by the index in their names, and then by name.

    Args:
        folder: The folder.
        gpu_product: The GPU model that the plans are for; default: the one that they name.
        options: Those of `MeasuredRuns`; `then` may also be ``best``: after the last plan, that of least energy among
            those that take at most 1 % longer than the highest clock.

    Raises:
        UsageError: A number or a name is not valid.
    """

    following: ClassVar[tuple[str, ...]] = (FREE_CLOCKS, BEST_PLAN, END)

    def __init__(self, folder: str | Path, gpu_product: str = "", **options: Unpack[RunOptions]) -> None:
        super().__init__(**options)
        self._folder = Path(folder)
        self._gpu_product = gpu_product
        self._is_decided = self.then != BEST_PLAN

    def prepare(self, rank: PlannedRank) -> None:
        """See `PlanSource`."""
        super().prepare(rank)
        folder = self._folder
        try:
            self._files = sorted((item for item in folder.iterdir() if item.suffix == ".py"), key=_order)
        except OSError as error:
            raise OperationError(f"{folder}: cannot read: {error.strerror}; name a folder of plans") from error
        if not 0 < len(self._files) <= MAX_PLANS:
            found = f"{len(self._files)} plans" if self._files else "no plan"
            expected = f"1 to {MAX_PLANS} plan files freqs_pipeline_N.py, as wattloop plan writes them"
            raise InputError(str(folder), found, expected)
        plans = [given_plan(file, rank.place, self._gpu_product) for file in self._files]
        products = {product: file for (_, product), file in zip(plans, self._files, strict=True) if product}
        if len(products) > 1:
            (first, one), (second, other) = list(products.items())[:2]
            found = f"{one.name} for {first} and {other.name} for {second}"
            raise InputError(str(folder), found, "plans for one GPU model")
        self._rows = [row for row, _ in plans]
        self._product = next(iter(products), "")
        self._dumps = self.folder(rank, PLAN_SCHEDULER)

    def begin(self, gpus: Sequence[GpuDescription]) -> list[Recorder]:
        """See `PlanSource`; nothing is measured if the process may hold no clock."""
        allowed = allowed_clocks(gpus).allowed_megahertz
        if not allowed:
            logger.warning("the plans in %s do not run: this process may hold no clock of its GPUs", self._folder)
            return []
        digest = hashlib.sha256()
        for file in self._files:
            digest.update(hashlib.sha256(file.read_bytes()).digest())
        series = RunSeries(
            self._dumps,
            self.rank.place,
            self._runs(allowed[-1]),
            warm_ups=WARM_UP_RUNS,
            kind="plans",
            settings={"plans": [file.name for file in self._files], "digest": digest.hexdigest()[:32]},
            iterations=self.iterations,
        )
        self.run(series)
        if not series.remaining and self.then == BEST_PLAN and (self._dumps / BEST_FILE).exists():
            self._run_best(series, is_restarted=True)
        self.end_at(series.end)
        return [self]

    def collect(
        self,
        before_seconds: float,
        joules_between: JoulesBetween,
        measurements: Callable[[], Sequence[InstructionMeasurement]],
    ) -> None:
        """See `Recorder`."""
        super().collect(before_seconds, joules_between, measurements)
        (series,) = self.series
        if not self._is_decided and self.latest is not None and not any(run >= BASE_RUN for run in series.left):
            self._agree(series, self.latest)

    def _runs(self, highest_megahertz: int) -> list[SeriesRun]:
        highest: PlanRow = tuple(PlannedInstruction(entry.kind, highest_megahertz) for entry in self._rows[0])
        warm_up = SeriesRun("warm-up at the highest clock", highest, self._product)
        plans = zip(self._files, self._rows, strict=True)
        return [warm_up] * WARM_UP_RUNS + [
            SeriesRun(f"plan {number} of {len(self._rows)}: {file.name}", row, self._product)
            for number, (file, row) in enumerate(plans, start=1)
        ]

    def _agree(self, series: RunSeries, latest: IterationRecord) -> None:
        """Let rank 0 choose the best plan, and all ranks begin with it at the same iteration."""
        path = self._dumps / BEST_FILE
        try:
            if self.rank.place.rank == 0 and not path.exists():
                points = measured_points(self._dumps, len(series.runs), self.rank.place.ranks)
                if points is not None:
                    run = best_run(points)
                    with open_atomic(path) as stream:
                        json.dump({"run": run, "first_iteration": iteration_for_all(latest)}, stream)
                    logger.info("the best run is %d, %s", run, series.runs[run].text)
            if path.exists():
                self._is_decided = True
                self._run_best(series)
        except (InputError, OperationError) as error:
            self._is_decided = True
            logger.warning("the clocks stay free after the last plan: %s", error)

    def _run_best(self, series: RunSeries, *, is_restarted: bool = False) -> None:
        """Run the plan that was chosen; after a restart from the first iteration on.

        Raises:
            InputError: The file of the choice is another one.
        """
        path = self._dumps / BEST_FILE
        run, first = read_fields(path, run=int, first_iteration=int)
        if not WARM_UP_RUNS <= run < len(series.runs):
            found = f"run {run!r:.20} from iteration {first!r:.20}"
            raise InputError(str(path), found, f"a run from {WARM_UP_RUNS} on")
        chosen = replace(series.runs[run], text=f"the best, {series.runs[run].text}")
        self.rank.state.receive(chosen.directive(series.last_directive + 1, 0 if is_restarted else first))


def measured_points(folder: Path, runs: int, ranks: int) -> dict[int, tuple[float, float]] | None:
    """Time of the slowest rank and energy of all in each run from run 1 on, by run; None until all ranks dumped all.

    Raises:
        InputError: A file is another one.
    """
    found = {}
    for run in range(BASE_RUN, runs):
        entries = dumped_ranks(folder / f"{run}.prof.json")
        if len(entries) < ranks:
            return None
        found[run] = _point(list(entries.values()))
    return found


def _point(entries: Sequence[Entry]) -> tuple[float, float]:
    count = len(entries[0]["iter_time"])
    seconds = sum(max(entry["iter_time"][index] for entry in entries) for index in range(count))
    joules = sum(sum(entry["iter_energy"]) for entry in entries)
    return seconds / count, joules / count


def best_run(points: dict[int, tuple[float, float]]) -> int:
    """The run under a plan of least energy among those that take no longer than run 1; the fastest if all do.

    Example:
        >>> best_run({1: (1.0, 100.0), 2: (1.3, 70.0), 3: (1.005, 80.0), 4: (0.99, 90.0)})
        3
        >>> best_run({1: (1.0, 100.0), 2: (1.3, 70.0), 3: (1.2, 80.0)})
        3
    """
    limit = points[BASE_RUN][0] * (1 + SAME_TIME)
    plans = {run: point for run, point in points.items() if run >= WARM_UP_RUNS}
    in_time = [run for run, (seconds, _) in plans.items() if seconds <= limit]
    return min(in_time, key=lambda run: plans[run][1]) if in_time else min(plans, key=lambda run: plans[run][0])


def _order(file: Path) -> tuple[bool, int, str]:
    match = PLAN_FILE.fullmatch(file.name)
    return (match is None, 0 if match is None else int(match[1]), file.name)
