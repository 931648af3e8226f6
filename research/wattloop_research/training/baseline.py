"""Baselines that are measured in a training: one power limit for all ranks, or one for each stage.

docs/internals/pipeline-experiments.md has the runs, and how the limits of the stages follow from them.
"""

import json
import logging
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar, Unpack

from wattloop.errors import InputError, OperationError, UsageError, WattloopError
from wattloop.files.atomic_write import open_atomic
from wattloop.gpus.agent import AgentConnection, AgentRequestError, GpuDescription
from wattloop.pipeline.iteration_energy import JoulesBetween
from wattloop.pipeline.iteration_record import IterationRecord
from wattloop.pipeline.plan_messages import InstructionMeasurement
from wattloop.pipeline.plan_source import PlannedRank, Recorder
from wattloop_research.training.limit_holder import LimitHolder
from wattloop_research.training.run_dump import dumped_instructions, dumped_ranks
from wattloop_research.training.run_series import (
    FIRST_ITERATION,
    MeasuredRuns,
    RunOptions,
    RunSeries,
    SeriesRun,
    iteration_for_all,
    read_fields,
)

logger = logging.getLogger("wattloop")

GLOBAL, PER_STAGE = "zeus-global", "zeus-per-stage"
# Folders of their dumps, with the names of the schedulers of Perseus' server.
SCHEDULERS = {GLOBAL: "ZeusGlobalPowerLimit", PER_STAGE: "ZeusLocalPowerState"}
DEFAULT_STEP_WATTS = 25
MAX_LIMITS = 100
FORWARD = "forward"
STAGES_FILE = "stages.json"
# So long after the last run with one limit for all, some rank still has not dumped it: it never will.
DUMP_SECONDS = 30.0

Stage = TypeVar("Stage", bound=Hashable)
# The stages of a rank, which say its place in the pipeline.
Stages = tuple[int, ...]


class LimitBaseline(MeasuredRuns):
    """Holds power limits instead of the clocks of a plan.

    Args:
        method: ``zeus-global``, one limit for all ranks, or ``zeus-per-stage``, these and then one for each stage.
        limits: The limits, in watts, or the step between them from the highest that is allowed down.
        options: Those of `MeasuredRuns`.

    Raises:
        UsageError: A number or a name is not valid.
    """

    def __init__(
        self, method: str = GLOBAL, limits: int | Sequence[int] = DEFAULT_STEP_WATTS, **options: Unpack[RunOptions]
    ) -> None:
        if method not in SCHEDULERS:
            raise UsageError(f"baseline: found {method!r:.40}, expected one of {', '.join(SCHEDULERS)}")
        super().__init__(**options)
        given = (limits,) if isinstance(limits, int) else tuple(limits)
        is_whole = all(type(watts) is int and watts > 0 for watts in given)
        if not is_whole or not 0 < len(given) <= MAX_LIMITS or len(set(given)) < len(given):
            raise UsageError(
                f"limits: found {limits!r:.60}, expected a step in watts, or 1 to {MAX_LIMITS} different limits, in "
                "whole watts"
            )
        self._method = method
        self._limits = limits
        self._held: LimitHolder | None = None
        self._ended_seconds: float | None = None
        self._waits_for_stages = False
        self._warned = ""

    def prepare(self, rank: PlannedRank) -> None:
        """See `PlanSource`."""
        super().prepare(rank)
        if rank.environment.power_limit_watts is not None or rank.environment.profile_power_limits:
            raise UsageError(
                "baseline: found in a job that sets power limits itself, expected mode None in its spec.power"
            )
        folders = {method: self.folder(rank, name) for method, name in SCHEDULERS.items()}
        # The folder itself if its name has the scheduler, else one of that name in it.
        self._folders = {
            method: folder if folder.name.endswith(SCHEDULERS[method]) else folder / SCHEDULERS[method]
            for method, folder in folders.items()
        }

    def begin(self, gpus: Sequence[GpuDescription]) -> list[Recorder]:
        """See `PlanSource`."""
        if not gpus:
            raise OperationError(
                "baseline: no power limit can be held, because no agent offers a GPU to this process; start "
                "wattloop agent on this node, and let WATTLOOP_AGENT_SOCKET name its socket"
            )
        limits = global_limits(self._limits, gpus)
        held = self._held = LimitHolder(AgentConnection(self.rank.environment.agent_socket), [gpu.uuid for gpu in gpus])
        try:
            held.require(limits[0])
            held.hold(None)
            self._begin(limits)
        except AgentRequestError as error:
            self.release()
            raise OperationError(f"baseline: the power limit of {limits[0]} W cannot be held: {error}") from error
        except WattloopError:
            self.release()
            raise
        return [self]

    def hold(self, watts: int | None) -> None:
        """See `PlanSource`."""
        if self._held is not None:
            self._held.hold(watts)

    def release(self) -> None:
        """See `PlanSource`."""
        if self._held is not None:
            self._held.close()

    def collect(
        self,
        before_seconds: float,
        joules_between: JoulesBetween,
        measurements: Callable[[], Sequence[InstructionMeasurement]],
    ) -> None:
        """See `Recorder`; without the limit, an iteration is left out."""
        held = self._held
        assert held is not None, "the baseline has begun"

        def joules_under_limit(begin_seconds: float, end_seconds: float) -> float | None:
            return joules_between(begin_seconds, end_seconds) if held.was_held(begin_seconds, end_seconds) else None

        super().collect(min(before_seconds, held.check()), joules_under_limit, measurements)
        latest = self.latest
        if self._waits_for_stages and latest is not None and latest.number >= self.series[0].end:
            self._agree(latest)

    def _begin(self, limits: Sequence[int]) -> None:
        """Begin with one limit for all, or with one a stage if the dumps have that."""
        self._everyone = [(watts,) for watts in limits]
        has_stages = self._method == PER_STAGE
        series = self._series(GLOBAL, self._everyone, 0, FIRST_ITERATION, 1, later_runs=has_stages)
        if not has_stages:
            self.end_at(series.end)
        elif not series.remaining:
            self._begin_stages(FIRST_ITERATION)
            return
        else:
            (self._folders[GLOBAL] / STAGES_FILE).unlink(missing_ok=True)
            self._waits_for_stages = True
        self.run(series)

    def _series(
        self,
        method: str,
        limits: Sequence[tuple[int, ...]],
        place: int,
        first_iteration: int,
        first_directive: int,
        *,
        later_runs: bool = False,
    ) -> RunSeries:
        """The runs with these limits: one for all ranks, or one for each place in the pipeline, of which it has one."""
        # The one that warms up has the highest limit on all ranks.
        runs = [SeriesRun("warm-up at the highest power limit", limit_watts=max(limits[0]))]
        for each in limits:
            where = "on all ranks" if len(each) == 1 else "on the stages"
            runs.append(SeriesRun(f"{', '.join(map(str, each))} W {where}", limit_watts=each[place]))
        return RunSeries(
            self._folders[method],
            self.rank.place,
            runs,
            warm_ups=1,
            kind="power limits",
            settings={"limits": [list(each) for each in limits]},
            iterations=self.iterations,
            first_iteration=first_iteration,
            first_directive=first_directive,
            # The part with one limit a stage has as many runs.
            later_runs=len(runs) if later_runs else 0,
        )

    def _begin_stages(self, first_iteration: int) -> None:
        """Begin with one limit a stage, by the dumps of the runs with one limit for all."""
        limits, place = stage_limits(self._everyone, self._folders[GLOBAL], self.rank.place.stages)
        series = self._series(PER_STAGE, limits, place, first_iteration, len(self._everyone) + 3)
        self.end_at(series.end if series.remaining else first_iteration)
        self._waits_for_stages = False
        self.run(series)

    def _agree(self, latest: IterationRecord) -> None:
        """Begin with one limit a stage at an iteration that rank 0 chooses, if it has and the dumps are complete."""
        path = self._folders[GLOBAL] / STAGES_FILE
        try:
            if self.rank.place.rank == 0 and not path.exists():
                self._choose(path, latest)
            if not path.exists():
                return
            first, missing = read_fields(path, first_iteration=int, missing=list)
            if not missing:
                self._begin_stages(first)
                return
        except (InputError, OperationError) as error:
            # Other ranks may have begun with the second part and know its end, so this one tries again each second.
            self._warn(f"{error}; it is tried again")
            return
        except UsageError as error:
            # The dumps are of other limits, which every rank finds.
            reason = str(error)
        else:
            lacking = ", ".join(map(str, missing))
            reason = f"the dumps lack the runs {lacking}; a training with the same folders repeats them"
        self._waits_for_stages = False
        self._warn(reason)
        self.end_at(first)

    def _choose(self, path: Path, latest: IterationRecord) -> None:
        if self._ended_seconds is None:
            self._ended_seconds = latest.end_seconds
        missing = self.series[0].missing()
        if not missing or latest.end_seconds > self._ended_seconds + DUMP_SECONDS:
            with open_atomic(path) as stream:
                json.dump({"first_iteration": iteration_for_all(latest), "missing": missing}, stream)

    def _warn(self, reason: str) -> None:
        if reason != self._warned:
            logger.warning("the baseline with one power limit a stage is not measured: %s", reason)
        self._warned = reason


def global_limits(limits: int | Sequence[int], gpus: Sequence[GpuDescription]) -> list[int]:
    """The limits for the GPUs of a rank, from the highest down.

    Args:
        limits: The limits, in watts, or the step between them: from the highest one that the GPUs allow down.
        gpus: The GPUs.

    Raises:
        UsageError: The GPUs do not allow one of them.

    Example:
        >>> from wattloop.gpus.agent import PowerLimits
        >>> gpu = GpuDescription("GPU-1", "NVIDIA A40", 0, PowerLimits(300, 300, 100, 300, 300, (150.0, 300.0)))
        >>> global_limits(50, [gpu])
        [300, 250, 200, 150]
        >>> global_limits([120, 300], [gpu])
        Traceback (most recent call last):
        wattloop.errors.UsageError: limits: found 120 W, expected 150 to 300 W, as NVIDIA A40 and the policies of \
this node allow
    """
    allowed = [limit.allowed_watts for gpu in gpus if (limit := gpu.power_limits) is not None]
    known = [bounds for bounds in allowed if bounds is not None]
    product = gpus[0].name
    if not known or len(known) < len(gpus):
        raise UsageError(
            f"baseline: this process may hold no power limit on {product}: the device or a policy forbids it"
        )
    lowest, highest = max(low for low, _ in known), min(high for _, high in known)
    if isinstance(limits, int):
        found = list(range(math.floor(highest), math.ceil(lowest) - 1, -limits))
    else:
        found = sorted(limits, reverse=True)
    outside = [watts for watts in found if not lowest <= watts <= highest]
    if outside or not 0 < len(found) <= MAX_LIMITS:
        named = f"{outside[0]} W" if outside else f"{len(found)} limits"
        raise UsageError(
            f"limits: found {named}, expected {lowest:g} to {highest:g} W, as {product} and the policies of this node "
            "allow"
        )
    return found


def stage_limits(everyone: Sequence[tuple[int, ...]], dumps: Path, stages: Stages) -> tuple[list[tuple[int, ...]], int]:
    """The limits of the places in the pipeline in each run, by what was measured with one limit for all.

    Args:
        everyone: The limit of each run from run 1 on.
        dumps: Folder of their dumps, which all ranks have written.
        stages: The stages of the rank.

    Returns:
        The limits, and the place of the rank among them.

    Raises:
        InputError: A file is another one, or a rank ran no forward.
    """
    seconds: dict[Stages, dict[int, float]] = {}
    for run, (watts,) in enumerate(everyone, start=1):
        for of_rank, mean in _forward_seconds(dumps, run).items():
            seconds.setdefault(of_rank, {})[watts] = mean
    places = sorted(seconds)
    limits = [tuple(chosen[place] for place in places) for chosen in balanced_stages(seconds).values()]
    return limits, places.index(stages)


def _forward_seconds(dumps: Path, run: int) -> dict[Stages, float]:
    """Mean time of a forward by the stages of a rank, in a run."""
    path = dumps / f"{run}.prof.json"
    instructions = dumped_instructions(dumps / f"{run}.sched.json")
    times: dict[Stages, list[float]] = {}
    for rank, entry in dumped_ranks(path).items():
        forwards = [seconds for iteration in entry["time_breakdown"].get(FORWARD, ()) for seconds in iteration]
        stages = tuple(sorted({each.stage for each in instructions.get(rank, ())}))
        if not forwards or not stages:
            raise InputError(str(path), f"no forward of rank {rank}", "forwards, by which stages are balanced")
        times.setdefault(stages, []).extend(forwards)
    return {stages: sum(found) / len(found) for stages, found in times.items()}


def balanced_stages(forward_seconds: Mapping[Stage, Mapping[int, float]]) -> dict[int, dict[Stage, int]]:
    """The settings of all stages for each one of the heaviest stage, from the highest down.

    The rule of Zeus for each stage alone, as Perseus' server has it. The heaviest stage has the longest forward at the
    highest setting. Another stage has the setting whose forward takes nearest to as long; of two, the lower one. It is
    not above that of the heaviest stage, and does not rise while that falls.

    Args:
        forward_seconds: Time of a forward by setting, clock or power limit, of each stage.

    Example:
        >>> light = {300: 0.10, 250: 0.11, 200: 0.14}
        >>> heavy = {300: 0.12, 250: 0.13, 200: 0.17}
        >>> balanced_stages({"light": light, "heavy": heavy})
        {300: {'light': 250, 'heavy': 300}, 250: {'light': 200, 'heavy': 250}, 200: {'light': 200, 'heavy': 200}}
    """
    heaviest = max(forward_seconds, key=lambda stage: forward_seconds[stage][max(forward_seconds[stage])])
    of_heaviest = forward_seconds[heaviest]
    found: dict[int, dict[Stage, int]] = {}
    highest = {stage: max(times) for stage, times in forward_seconds.items()}
    for setting in sorted(of_heaviest, reverse=True):
        for stage, times in forward_seconds.items():
            highest[stage] = _nearest(times, of_heaviest[setting], min(highest[stage], setting))
        highest[heaviest] = setting
        found[setting] = dict(highest)
    return found


def _nearest(times: Mapping[int, float], wanted_seconds: float, highest: int) -> int:
    """The setting of the nearest time among those up to the highest one; the lowest of all if there is none."""
    allowed = [setting for setting in sorted(times) if setting <= highest] or [min(times)]
    return min(allowed, key=lambda setting: round(abs(times[setting] - wanted_seconds), 9))
