"""Measures a baseline in a training: holds its power limits, and dumps each run.

The limits of the stages follow from what is measured with one limit for all ranks. So the baseline with one limit a
stage measures that with one limit for all first, unless its dumps have it. When they are complete, rank 0 writes the
iteration at which all ranks begin with the second part to a file beside them.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from wattloop.errors import InputError, OperationError, UsageError, WattloopError
from wattloop.files.atomic_write import open_atomic
from wattloop.files.reading import MAX_JSON_BYTES, parse_json, read_text
from wattloop.gpus.agent import AgentConnection, AgentRequestError, GpuDescription
from wattloop.pipeline.clock_choice import ClockChoice
from wattloop.pipeline.directives import DirectiveState
from wattloop.pipeline.iteration_energy import JoulesBetween
from wattloop.pipeline.iteration_record import IterationRecord
from wattloop.pipeline.limit_holder import LimitHolder
from wattloop.pipeline.limit_series import (
    GLOBAL,
    PER_STAGE,
    BaselineOptions,
    LimitSeries,
    global_limits,
    stage_series,
)
from wattloop.pipeline.pipeline_place import PipelinePlace
from wattloop.pipeline.plan_messages import InstructionMeasurement
from wattloop.pipeline.run_dump import WATTS, Entry
from wattloop.pipeline.run_series import END, FIRST_ITERATION, MAX_SERIES_BYTES, RunSchedule
from wattloop.pipeline.series_dump import SeriesDump, iteration_for_all

logger = logging.getLogger("wattloop")

STAGES_FILE = "stages.json"
# So long after the last run with one limit for all, some rank still has not dumped it: it never will.
DUMP_SECONDS = 30.0


class LimitDump(SeriesDump):
    """The records of one rank in a series of power limits.

    Args:
        folder: Where to write.
        rank: The rank.
        schedule: The runs.
        series: The limits.
        held: Says when a limit was in force.
        next_dump: Gives the dump of the series that follows this one, once all ranks know when it begins; called
            with the latest iteration when this one has ended. None: nothing follows.
    """

    def __init__(
        self,
        folder: Path,
        rank: int,
        schedule: RunSchedule,
        *,
        series: LimitSeries,
        held: LimitHolder,
        next_dump: Callable[[IterationRecord], LimitDump | None] | None = None,
    ) -> None:
        # The part with one limit a stage has as many runs.
        super().__init__(folder, rank, schedule, later_runs=series.runs if next_dump else 0)
        self._limits = series
        self._held = held
        self._end = schedule.end
        self._next_dump = next_dump
        self._next: LimitDump | None = None

    def has_setting(self, record: IterationRecord) -> bool:
        """See `SeriesDump`; whether the limit was in force is known later."""
        return not record.clocks_megahertz

    def states(self, record: IterationRecord) -> Entry:
        """See `RunDump`."""
        watts = self._limits.watts(self._run_of(record.directive.number))
        return {"power_states": [watts] * len(record.instructions), "unit": WATTS}

    def add(self, record: IterationRecord) -> None:
        """See `SeriesDump`."""
        super().add(record)
        if self._next is not None:
            self._next.add(record)

    def collect(self, before_seconds: float, joules_between: JoulesBetween) -> None:
        """See `RunDump`; without the limit, an iteration is left out."""
        if self._next is not None:
            self._next.collect(before_seconds, joules_between)
            return

        def joules_under_limit(begin_seconds: float, end_seconds: float) -> float | None:
            was_held = self._held.was_held(begin_seconds, end_seconds)
            return joules_between(begin_seconds, end_seconds) if was_held else None

        super().collect(min(before_seconds, self._held.check()), joules_under_limit)

    def write_complete(self, measurements: Callable[[], Sequence[InstructionMeasurement]]) -> None:
        """See `RunDump`."""
        if self._next is not None:
            self._next.write_complete(measurements)
            return
        super().write_complete(measurements)
        latest = self._latest
        if self._next_dump is not None and latest is not None and latest.number >= self._end:
            self._next = self._next_dump(latest)

    def write(self, measurements: Sequence[InstructionMeasurement]) -> None:
        """See `SeriesDump`."""
        super().write(measurements)
        if self._next is not None:
            self._next.write(measurements)


class LimitBaseline:
    """A baseline of one rank.

    Args:
        options: What to measure.
        place: The place of the rank.
        choice: Chooses the limits of iterations.
        state: Receives the directives.
        folders: Folders of the dumps, by method.
        agent_socket: The agent's socket.

    Attributes:
        end_iteration: The iteration at which the training is to end; None: it goes on, or the end is not known yet.
    """

    def __init__(
        self,
        options: BaselineOptions,
        place: PipelinePlace,
        choice: ClockChoice,
        state: DirectiveState,
        *,
        folders: Mapping[str, Path],
        agent_socket: str,
    ) -> None:
        self._options = options
        self._place = place
        self._folders = folders
        self._agent_socket = agent_socket
        self._choice = choice
        self._state = state
        self._held: LimitHolder | None = None
        self._ended_seconds: float | None = None
        self._is_abandoned = False
        self._warned = ""
        self.end_iteration: int | None = None

    def begin(self, gpus: Sequence[GpuDescription]) -> LimitDump:
        """Begin with the runs that the dumps lack.

        Args:
            gpus: The GPUs of the process.

        Returns:
            The dumps to write.

        Raises:
            UsageError: The GPUs do not allow the limits, or the dumps are of other limits.
            OperationError: No agent holds limits here, or the dumps cannot be read or written.
            InputError: A file in them is another one.
        """
        if not gpus:
            raise OperationError(
                "baseline: no power limit can be held, because no agent offers a GPU to this process; start "
                "wattloop agent on this node, and let WATTLOOP_AGENT_SOCKET name its socket"
            )
        limits = global_limits(self._options.limits, gpus)
        held = self._held = LimitHolder(AgentConnection(self._agent_socket), [gpu.uuid for gpu in gpus])
        try:
            held.require(limits[0])
            held.hold(None)
            return self._begin(limits)
        except AgentRequestError as error:
            self.close()
            raise OperationError(f"baseline: the power limit of {limits[0]} W cannot be held: {error}") from error
        except WattloopError:
            self.close()
            raise

    def _begin(self, limits: Sequence[int]) -> LimitDump:
        series = LimitSeries(self._options.iterations, self._options.following, tuple((watts,) for watts in limits))
        folder = self._folders[GLOBAL]
        schedule = RunSchedule(series, series.remaining(folder, self._place.ranks))
        if self._options.method == GLOBAL:
            self._end_at(schedule.end)
            return self._scheduled(folder, series, schedule)
        if not schedule.remaining:
            return self._begin_stages(series, FIRST_ITERATION)
        (folder / STAGES_FILE).unlink(missing_ok=True)
        return self._scheduled(folder, series, schedule, lambda latest: self._next_dump(series, latest))

    def hold(self, watts: int | None) -> None:
        """Hold this limit from now on; None: that of before."""
        if self._held is not None:
            self._held.hold(watts)

    def close(self) -> None:
        """Give the limit back."""
        if self._held is not None:
            self._held.close()

    def _scheduled(
        self,
        folder: Path,
        series: LimitSeries,
        schedule: RunSchedule,
        next_dump: Callable[[IterationRecord], LimitDump | None] | None = None,
    ) -> LimitDump:
        for run in schedule.remaining:
            self._choice.give_limit(schedule.first_directive + run, series.watts(run))
        for directive in series.directives(schedule):
            self._state.receive(directive)
        assert self._held is not None, "the baseline has begun"
        return LimitDump(folder, self._place.rank, schedule, series=series, held=self._held, next_dump=next_dump)

    def _end_at(self, iteration: int) -> None:
        if self._options.following == END:
            self.end_iteration = iteration

    def _begin_stages(self, series: LimitSeries, first_iteration: int) -> LimitDump:
        """Begin with one limit a stage, by the dumps of the runs with one limit for all."""
        stages = stage_series(series, self._folders[GLOBAL], self._place.stages)
        folder = self._folders[PER_STAGE]
        remaining = stages.remaining(folder, self._place.ranks)
        schedule = RunSchedule(stages, remaining, first_iteration, first_directive=series.runs + 2)
        self._end_at(schedule.end if remaining else first_iteration)
        return self._scheduled(folder, stages, schedule)

    def _next_dump(self, series: LimitSeries, latest: IterationRecord) -> LimitDump | None:
        """Begin with one limit a stage at an iteration that rank 0 chooses; None: not yet, or not at all."""
        path = self._folders[GLOBAL] / STAGES_FILE
        try:
            if self._place.rank == 0 and not path.exists():
                self._choose(path, series, latest)
            if self._is_abandoned or not path.exists():
                return None
            first, missing = _agreed(path)
            if not missing:
                return self._begin_stages(series, first)
        except (InputError, OperationError) as error:
            # Other ranks may have begun with the second part and know its end, so this one tries again each second.
            self._warn(f"{error}; it is tried again")
            return None
        except UsageError as error:
            # The dumps are of other limits, which every rank finds.
            reason = str(error)
        else:
            lacking = ", ".join(map(str, missing))
            reason = f"the dumps lack the runs {lacking}; a training with the same folders repeats them"
        self._is_abandoned = True
        self._warn(reason)
        self._end_at(first)
        return None

    def _choose(self, path: Path, series: LimitSeries, latest: IterationRecord) -> None:
        if self._ended_seconds is None:
            self._ended_seconds = latest.end_seconds
        missing = series.missing(self._folders[GLOBAL], self._place.ranks)
        if not missing or latest.end_seconds > self._ended_seconds + DUMP_SECONDS:
            with open_atomic(path) as stream:
                json.dump({"first_iteration": iteration_for_all(latest), "missing": missing}, stream)

    def _warn(self, reason: str) -> None:
        if reason != self._warned:
            logger.warning("the baseline with one power limit a stage is not measured: %s", reason)
        self._warned = reason


def _agreed(path: Path) -> tuple[int, list[int]]:
    """The iteration that rank 0 chose, and the runs that are missing.

    Raises:
        InputError: The file is another one.
    """
    expected = "an object with first_iteration and missing"
    found: Any = parse_json(read_text(str(path), MAX_SERIES_BYTES, expected), str(path), expected, MAX_JSON_BYTES)
    first, missing = (found.get(name) if isinstance(found, dict) else None for name in ("first_iteration", "missing"))
    if type(first) is not int or first < 0 or not isinstance(missing, list) or not all(type(x) is int for x in missing):
        raise InputError(str(path), repr(found)[:60], expected)
    return first, missing
