"""A folder of plans: its runs, their dumps, and the best plan, which may follow the last one.

Rank 0 chooses the best plan. The other ranks read its choice, and the iteration from which on it holds, from a file in
the folder of the dumps, in the thread that measures.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from wattloop.errors import InputError, OperationError
from wattloop.files.atomic_write import open_atomic
from wattloop.files.reading import MAX_JSON_BYTES, parse_json, read_text
from wattloop.gpus.agent import GpuDescription
from wattloop.pipeline.clock_choice import ClockChoice
from wattloop.pipeline.directives import DirectiveState, allowed_clocks
from wattloop.pipeline.iteration_record import IterationRecord
from wattloop.pipeline.pipeline_place import PipelinePlace
from wattloop.pipeline.plan_messages import PLAN, Directive, InstructionMeasurement
from wattloop.pipeline.plan_series import WARM_UP_RUNS, PlanSeries
from wattloop.pipeline.rank_plan_file import knob_choices
from wattloop.pipeline.run_dump import Entry, dumped_ranks
from wattloop.pipeline.run_series import BEST_PLAN, END, MAX_SERIES_BYTES, RunSchedule
from wattloop.pipeline.series_dump import SeriesDump, iteration_for_all

logger = logging.getLogger("wattloop")

BEST_FILE = "best.json"
# Of Perseus' server, which runs the plans of a folder in the same way.
PLAN_SCHEDULER = "PointSolution"
# A plan that takes longer than the highest clock by less is not slower: measurements of iterations differ by more.
SAME_TIME = 0.01
# The run that the plans are compared with.
BASE_RUN = PlanSeries.base_run


class PlanFolder:
    """The folder of plans of one rank.

    Args:
        series: The plans.
        place: The place of the rank.
        dumps: Folder of the dumps.
        choice: Chooses the clocks of iterations.
        state: Receives the directives.

    Attributes:
        end_iteration: The iteration at which the training is to end; None: it goes on.
    """

    def __init__(
        self, series: PlanSeries, place: PipelinePlace, dumps: Path, choice: ClockChoice, state: DirectiveState
    ) -> None:
        self._series = series
        self._place = place
        self._dumps = dumps
        self._choice = choice
        self._state = state
        self.end_iteration: int | None = None

    def begin(self, gpus: Sequence[GpuDescription]) -> PlanSeriesDump | None:
        """See `wattloop.pipeline.measured_series.MeasuredSeries`; None if the process may hold no clock."""
        series, dumps = self._series, self._dumps
        allowed = allowed_clocks(gpus).allowed_megahertz
        if not allowed:
            logger.warning("the plans in %s do not run: this process may hold no clock of its GPUs", series.folder)
            return None
        schedule = RunSchedule(series, series.remaining(dumps, self._place.ranks))
        for run in schedule.remaining:
            number = schedule.first_directive + run
            self._choice.give_row(number, series.row(run, allowed[-1]), series.gpu_product)
        for directive in series.directives(schedule, allowed[-1]):
            self._state.receive(directive)
        if not schedule.remaining and series.following == BEST_PLAN and (dumps / BEST_FILE).exists():
            self._state.receive(best_directive(dumps, series, is_restarted=True))
        if series.following == END:
            self.end_iteration = schedule.end
        return PlanSeriesDump(dumps, self._place, schedule, series, receive=self._state.receive)

    def hold(self, watts: int | None) -> None:
        """See `wattloop.pipeline.measured_series.MeasuredSeries`: plans have no limit."""

    def close(self) -> None:
        """See `wattloop.pipeline.measured_series.MeasuredSeries`."""


class PlanSeriesDump(SeriesDump):
    """The records of one rank in a series of plans.

    Args:
        folder: Where to write.
        place: The place of the rank.
        schedule: The runs.
        series: The plans.
        receive: Takes the directive of the best plan.
    """

    def __init__(
        self,
        folder: Path,
        place: PipelinePlace,
        schedule: RunSchedule,
        series: PlanSeries,
        *,
        receive: Callable[[Directive], None],
    ) -> None:
        super().__init__(folder, place.rank, schedule)
        self._ranks = place.ranks
        self._plans = series
        self._receive = receive
        self._is_decided = series.following != BEST_PLAN

    def write_complete(self, measurements: Callable[[], Sequence[InstructionMeasurement]]) -> None:
        """See `RunDump`."""
        super().write_complete(measurements)
        if not self._is_decided and not any(run >= BASE_RUN for run in self._left) and self._latest is not None:
            self._agree(self._latest)

    def _agree(self, latest: IterationRecord) -> None:
        """Let rank 0 choose the best plan, and all ranks begin with it at the same iteration."""
        path = self._folder / BEST_FILE
        try:
            if self._rank == 0 and not path.exists():
                self._choose(path, latest)
            if path.exists():
                self._is_decided = True
                self._receive(best_directive(self._folder, self._plans))
        except (InputError, OperationError) as error:
            self._is_decided = True
            logger.warning("the clocks stay free after the last plan: %s", error)

    def _choose(self, path: Path, latest: IterationRecord) -> None:
        points = measured_points(self._folder, self._plans, self._ranks)
        if points is None:
            return
        first = iteration_for_all(latest)
        run = best_run(points)
        with open_atomic(path) as stream:
            json.dump({"run": run, "first_iteration": first}, stream)
        logger.info("the best run is %d, %s", run, self._plans.described(run))


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
