"""Baselines that are measured in a training: one power limit for all ranks, or one for each stage.

As Perseus' server does, run 0 warms up at the highest limit, and the others have the limits from the highest down. The
clocks are free. Of the baseline with one limit a stage, run N has the Nth limit on the heaviest stage.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from wattloop.errors import InputError, UsageError
from wattloop.gpus.agent import GpuDescription
from wattloop.pipeline.balanced_stages import balanced_stages
from wattloop.pipeline.plan_messages import FREE, Directive
from wattloop.pipeline.run_dump import dumped_instructions, dumped_ranks
from wattloop.pipeline.run_series import (
    END,
    FREE_CLOCKS,
    RunSchedule,
    RunSeries,
    check_run_options,
    job_run_options,
)

GLOBAL, PER_STAGE = "zeus-global", "zeus-per-stage"
# Folders of their dumps, with the names of the schedulers of Perseus' server.
SCHEDULERS = {GLOBAL: "ZeusGlobalPowerLimit", PER_STAGE: "ZeusLocalPowerState"}
FOLLOWING = (FREE_CLOCKS, END)
DEFAULT_STEP_WATTS = 25
MAX_LIMITS = 100
MAX_DIGITS = 5
FORWARD = "forward"
# For a script that names no baseline itself.
BASELINE_VARIABLE = "WATTLOOP_PIPELINE_BASELINE"
LIMITS_VARIABLE = "WATTLOOP_PIPELINE_BASELINE_LIMITS"

# The stages of a rank, which say its place in the pipeline.
Stages = tuple[int, ...]


@dataclass(frozen=True)
class LimitSeries(RunSeries):
    """Power limits, from the highest down.

    Attributes:
        limits_watts: The limits of each run after the one that warms up: one for all ranks, or one for each place in
            the pipeline.
        place: That of the rank among them.
    """

    setting: ClassVar[str] = "power limits"
    warm_up_runs: ClassVar[int] = 1

    limits_watts: tuple[tuple[int, ...], ...]
    place: int = 0

    @property
    def measured_runs(self) -> int:
        """See `RunSeries`."""
        return len(self.limits_watts)

    def settings(self) -> Mapping[str, object]:
        """See `RunSeries`."""
        return {"limits": [list(run) for run in self.limits_watts]}

    def watts(self, run: int) -> int:
        """The limit of the rank in a run."""
        # The one that warms up has the highest limit on all ranks.
        return self.limits_watts[run - 1][self.place] if run else max(self.limits_watts[0])

    def described(self, run: int) -> str:
        """A run, for messages."""
        if run < self.warm_up_runs:
            return "warm-up at the highest power limit"
        limits = self.limits_watts[run - 1]
        where = "on all ranks" if len(limits) == 1 else "on the stages"
        return f"{', '.join(map(str, limits))} W {where}"

    def directives(self, schedule: RunSchedule) -> list[Directive]:
        """What the rank does: free clocks in each run and at the end, with a directive each."""
        runs = [
            Directive(
                number=schedule.first_directive + run,
                mode=FREE,
                first_iteration=schedule.begin_of(position),
                reason=self.described(run),
            )
            for position, run in enumerate(schedule.remaining)
        ]
        return [*runs, Directive(number=schedule.last_directive, mode=FREE, first_iteration=schedule.end)]


@dataclass(frozen=True)
class BaselineOptions:
    """What a script says of a baseline, or the job that it runs in.

    Attributes:
        method: `GLOBAL` or `PER_STAGE`.
        limits: The limits, in watts, or the step between them.
        iterations: Iterations measured at each limit.
        following: What follows the last run.

    Raises:
        UsageError: One of them has another value.
    """

    method: str
    limits: int | Sequence[int]
    iterations: int
    following: str

    def __post_init__(self) -> None:
        if self.method not in SCHEDULERS:
            raise UsageError(f"baseline: found {self.method!r:.40}, expected one of {', '.join(SCHEDULERS)}")
        check_run_options(self.iterations, self.following, FOLLOWING)
        given = (self.limits,) if isinstance(self.limits, int) else tuple(self.limits)
        is_whole = all(type(watts) is int and watts > 0 for watts in given)
        if not is_whole or not 0 < len(given) <= MAX_LIMITS or len(set(given)) < len(given):
            raise UsageError(
                f"baseline_limits: found {self.limits!r:.60}, expected a step in watts, or 1 to {MAX_LIMITS} different "
                "limits, in whole watts"
            )


def baseline_options(
    method: str, limits: int | Sequence[int], iterations: int, following: str, variables: Mapping[str, str]
) -> BaselineOptions | None:
    """The baseline to measure: that of the script, else that of ``WATTLOOP_PIPELINE_BASELINE``; None: none.

    Raises:
        UsageError: It, its limits or its number of iterations is not valid.
        InputError: A variable has another form.
    """
    if method:
        return BaselineOptions(method, limits, iterations, following)
    named = variables.get(BASELINE_VARIABLE, "")
    if not named:
        return None
    text = variables.get(LIMITS_VARIABLE, "")
    numbers = text.split(",") if text else []
    if not all(number.isdecimal() and len(number) <= MAX_DIGITS for number in numbers):
        raise InputError(LIMITS_VARIABLE, repr(text)[:40], "limits in whole watts, separated by commas")
    given = [int(number) for number in numbers] or limits
    return BaselineOptions(named, given, *job_run_options(iterations, following, variables))


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
        wattloop.errors.UsageError: baseline_limits: found 120 W, expected 150 to 300 W, as NVIDIA A40 and the \
policies of this node allow
    """
    allowed = [limit.allowed_watts for gpu in gpus if (limit := gpu.power_limits) is not None]
    known = [bounds for bounds in allowed if bounds is not None]
    product = gpus[0].name if gpus else "no GPU"
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
            f"baseline_limits: found {named}, expected {lowest:g} to {highest:g} W, as {product} and the policies of "
            "this node allow"
        )
    return found


def stage_series(series: LimitSeries, dumps: Path, stages: Stages) -> LimitSeries:
    """The limits of the stages, by what was measured with one limit for all.

    Args:
        series: The runs with one limit for all.
        dumps: Folder of their dumps, which all ranks have written.
        stages: The stages of the rank.

    Raises:
        InputError: A file is another one, or a rank ran no forward.
    """
    seconds: dict[Stages, dict[int, float]] = {}
    for run in range(series.warm_up_runs, series.runs):
        for of_rank, mean in _forward_seconds(dumps, run).items():
            seconds.setdefault(of_rank, {})[series.watts(run)] = mean
    places = sorted(seconds)
    balanced = balanced_stages(seconds)
    limits = tuple(tuple(chosen[place] for place in places) for chosen in balanced.values())
    return LimitSeries(series.iterations, series.following, limits, places.index(stages))


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
