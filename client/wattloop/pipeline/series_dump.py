"""The dumps of a series of plans: each run is written once, when all its iterations are measured.

After the last plan, rank 0 may choose the best one. The other ranks read its choice, and the iteration from which on it
holds, from a file in the folder of the dumps, in the thread that measures.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from wattloop.errors import InputError, OperationError, UsageError
from wattloop.files.atomic_write import open_atomic
from wattloop.files.reading import MAX_JSON_BYTES, parse_json, read_text
from wattloop.pipeline.clock_choice import ClockChoice
from wattloop.pipeline.directives import DirectiveState
from wattloop.pipeline.experiment_name import WorkloadNames, experiment_folder
from wattloop.pipeline.iteration_record import IterationRecord
from wattloop.pipeline.measurement_files import DUMPS_VARIABLE
from wattloop.pipeline.place import PipelinePlace
from wattloop.pipeline.plan_messages import PLAN, Directive, InstructionMeasurement
from wattloop.pipeline.plan_series import BEST_PLAN, MAX_SERIES_BYTES, WARM_UP_RUNS, PlanSeries
from wattloop.pipeline.rank_plan_file import knob_choices
from wattloop.pipeline.run_dump import Entry, RunDump, dumped_ranks

logger = logging.getLogger("wattloop")

BEST_FILE = "best.json"
# Of Perseus' server, which runs the plans of a folder in the same way.
SCHEDULER = "PointSolution"
# A plan that takes longer than the highest clock by less is not slower: measurements of iterations differ by more.
SAME_TIME = 0.01
# All ranks have read the choice by then; they look for it every second.
AGREEMENT_SECONDS = 5.0
MARGIN_ITERATIONS = 2
# Of its iterations, a run must have so many with their clocks and a known energy.
LEAST_SHARE = 0.5
# The run that the plans are compared with.
BASE_RUN = WARM_UP_RUNS - 1


def series_dumps(dumps: Path | None, place: PipelinePlace, microbatches: int, names: WorkloadNames) -> Path:
    """The folder of a series' dumps.

    Raises:
        UsageError: There is none, or its name cannot be made of what the script states.
    """
    if dumps is None:
        raise UsageError(
            f"dumps: missing; a folder of plans is run to be measured, so name a folder, or set {DUMPS_VARIABLE}"
        )
    return experiment_folder(dumps, place, microbatches, names, SCHEDULER)


def begin_series(
    series: PlanSeries, dumps: Path, place: PipelinePlace, choice: ClockChoice, state: DirectiveState
) -> tuple[SeriesDump, int] | None:
    """Begin with the runs that the dumps lack.

    Args:
        series: The plans.
        dumps: Folder of the dumps.
        place: The place of the rank.
        choice: Chooses the clocks; its GPUs are known.
        state: Receives the directives.

    Returns:
        The dumps to write, and the iteration after the last run; None if the process may hold no clock.

    Raises:
        UsageError: The dumps are of other plans.
        InputError: A file in them is another one.
        OperationError: They cannot be read or written.
    """
    allowed = choice.allowed.allowed_megahertz
    if not allowed:
        logger.warning("the plans in %s do not run: this process may hold no clock of its GPUs", series.folder)
        return None
    remaining = series.remaining(dumps, place.ranks)
    for run in remaining:
        choice.give_row(run + 1, series.row(run, allowed[-1]), series.gpu_product)
    for directive in series.directives(remaining, allowed[-1]):
        state.receive(directive)
    if not remaining and series.following == BEST_PLAN and (dumps / BEST_FILE).exists():
        state.receive(best_directive(dumps, series, is_restarted=True))
    dump = SeriesDump(dumps, place.rank, ranks=place.ranks, series=series, remaining=remaining, receive=state.receive)
    return dump, series.end(remaining)


class SeriesDump(RunDump):
    """The records of one rank in a series of plans.

    Args:
        folder: Where to write.
        rank: The rank.
        ranks: Number of ranks of the job.
        series: The plans.
        remaining: The runs that this process runs.
        receive: Takes the directive of the best plan.
    """

    def __init__(
        self,
        folder: Path,
        rank: int,
        *,
        ranks: int,
        series: PlanSeries,
        remaining: Sequence[int],
        receive: Callable[[Directive], None],
    ) -> None:
        super().__init__(folder, rank, lambda directive: directive - 1)
        self._ranks = ranks
        self._series = series
        self._left = list(remaining)
        self._last = {run: series.end(remaining[: position + 1]) - 1 for position, run in enumerate(remaining)}
        self._receive = receive
        self._seen: dict[int, int] = {}
        self._latest: IterationRecord | None = None
        self._is_decided = series.following != BEST_PLAN

    def add(self, record: IterationRecord) -> None:
        """Keep an iteration of a run, if it had the clocks of the run."""
        self._latest = record
        run = record.directive.number - 1
        if run in self._left and record.clocks_megahertz and not record.interrupted:
            self._seen[run] = self._seen.get(run, 0) + 1
            super().add(record)

    def write(self, measurements: Sequence[InstructionMeasurement]) -> None:
        """Write the runs that are complete and not written yet; an incomplete one is left out, with a message."""
        self.write_complete(lambda: measurements)
        for run in self._left:
            if self._seen.get(run):
                logger.warning(
                    "run %d (%s) has %d of %d iterations, and is not in the dumps; a training with the same folders "
                    "repeats it",
                    run,
                    self._series.described(run),
                    self._seen[run],
                    self._series.iterations,
                )

    def write_complete(self, measurements: Callable[[], Sequence[InstructionMeasurement]]) -> None:
        """See `RunDump`."""
        pending = {record.directive.number - 1 for record in self._pending}
        for run in [run for run in self._left if self._is_complete(run, pending)]:
            self._write_run(run, measurements())
            self._left.remove(run)
            self._report(run)
            self._forget(run)
        if not self._is_decided and not any(run >= BASE_RUN for run in self._left) and self._latest is not None:
            self._agree(self._latest)

    def _is_complete(self, run: int, pending: set[int]) -> bool:
        if self._latest is None or self._latest.number < self._last[run] or run in pending:
            return False
        # Some iterations may lack: their energy is not known, or the agent did not hold the clocks.
        return len(self._runs.get(run, ())) >= LEAST_SHARE * self._series.iterations

    def _report(self, run: int) -> None:
        times = [record.end_seconds - record.begin_seconds for record, _ in self._runs[run]]
        if self._rank or not times:
            return
        seconds = sum(times) / len(times)
        left = len(self._left) * self._series.iterations_of_run * seconds
        logger.info(
            "run %d is complete, %s: %.4g s an iteration; %d runs left, about %.3g min",
            run,
            self._series.described(run),
            seconds,
            len(self._left),
            left / 60,
        )

    def _agree(self, latest: IterationRecord) -> None:
        """Let rank 0 choose the best plan, and all ranks begin with it at the same iteration."""
        path = self._folder / BEST_FILE
        try:
            if self._rank == 0 and not path.exists():
                self._choose(path, latest)
            if path.exists():
                self._is_decided = True
                self._receive(best_directive(self._folder, self._series))
        except (InputError, OperationError) as error:
            self._is_decided = True
            logger.warning("the clocks stay free after the last plan: %s", error)

    def _choose(self, path: Path, latest: IterationRecord) -> None:
        points = measured_points(self._folder, self._series, self._ranks)
        if points is None:
            return
        seconds = max(latest.end_seconds - latest.begin_seconds, 1e-3)
        first = latest.number + math.ceil(AGREEMENT_SECONDS / seconds) + MARGIN_ITERATIONS
        run = best_run(points)
        with open_atomic(path) as stream:
            json.dump({"run": run, "first_iteration": first}, stream)
        logger.info("the best run is %d, %s", run, self._series.described(run))


def measured_points(folder: Path, series: PlanSeries, ranks: int) -> dict[int, tuple[float, float]] | None:
    """Time of the slowest rank and energy of all in each run from run 1 on, by run; None until all ranks dumped all.

    Raises:
        InputError: A file is another one.
    """
    found = {}
    for run in range(BASE_RUN, series.runs):
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


def best_directive(folder: Path, series: PlanSeries, *, is_restarted: bool = False) -> Directive:
    """The directive of the plan that was chosen.

    Args:
        folder: Folder of the dumps.
        series: The plans.
        is_restarted: Whether the choice is of an earlier process; the plan then runs from the first iteration on.

    Raises:
        InputError: The file of the choice is another one.
    """
    source, expected = str(folder / BEST_FILE), "an object with run and first_iteration"
    found: Any = parse_json(read_text(source, MAX_SERIES_BYTES, expected), source, expected, MAX_JSON_BYTES)
    run, first = (found.get(name) if isinstance(found, dict) else None for name in ("run", "first_iteration"))
    if type(run) is not int or type(first) is not int or not WARM_UP_RUNS <= run < series.runs or first < 0:
        raise InputError(source, f"run {run!r:.20} from iteration {first!r:.20}", f"a run from {WARM_UP_RUNS} on")
    row = series.row(run, 0)
    return Directive(
        number=series.runs + 2,
        mode=PLAN,
        first_iteration=0 if is_restarted else first,
        clocks_megahertz=tuple(entry.megahertz for entry in row),
        knobs=knob_choices(row),
        reason=f"the best, {series.described(run)}",
    )
