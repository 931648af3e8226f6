"""Makes the meter of a pipeline, and the profile of one that measures without an operator."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from wattloop.energy_monitor.process_sampler import ProcessSampler, process_sampler
from wattloop.energy_monitor.sources import FirstAvailable
from wattloop.errors import InputError, OperationError, UsageError
from wattloop.pipeline.clock_profiling import spaced_clocks
from wattloop.pipeline.directives import AllowedClocks
from wattloop.pipeline.measurement_files import MeasurementFiles, dump_folder, run_number
from wattloop.pipeline.pipeline_meter import PipelineMeter
from wattloop.pipeline.pipeline_place import PipelinePlace, require_integer
from wattloop.pipeline.plan_messages import MAX_CLOCKS, MAX_MEGAHERTZ, PROFILE, Directive
from wattloop.pipeline.profile_csv import ProfileFile, ProfileKey
from wattloop.pipeline.run_dump import RunDump

logger = logging.getLogger("wattloop")

DEFAULT_CLOCKS = 12
DEFAULT_ITERATIONS = 20
WARM_UP_ITERATIONS = 2
# The first iteration shows what the instructions are.
FIRST_ITERATION = 1
MAX_ITERATIONS_PER_CLOCK = 1_000_000
MAX_CLOCK_DIFFERENCE_SECONDS = 1.0


@dataclass(frozen=True)
class MeasurementOptions:
    """What to measure without an operator.

    Attributes:
        profile: File to write a profile to; None: no profile.
        clocks: The clocks to profile, in MHz, or the number of them.
        iterations: Iterations measured at each clock.
        dumps: Folder of the dumps; None: that of the environment, or no dumps.
        lowest_megahertz: No lower clock is profiled.

    Raises:
        UsageError: A number is out of its range.
    """

    profile: str | Path | None = None
    clocks: int | Sequence[int] = DEFAULT_CLOCKS
    iterations: int = DEFAULT_ITERATIONS
    dumps: str | Path | None = None
    lowest_megahertz: int = 0

    def __post_init__(self) -> None:
        require_integer("profile_iterations", self.iterations, 1, MAX_ITERATIONS_PER_CLOCK)
        if isinstance(self.clocks, int):
            require_integer("profile_clocks", self.clocks, 2, MAX_CLOCKS)
        elif not 0 < len(self.clocks) <= MAX_CLOCKS or len(set(self.clocks)) < len(self.clocks):
            raise UsageError(f"profile_clocks: found {len(self.clocks)}, expected 1 to {MAX_CLOCKS} different clocks")
        require_integer("profile_lowest_clock", self.lowest_megahertz, 0, MAX_MEGAHERTZ)
        if not isinstance(self.clocks, int) and min(self.clocks) < self.lowest_megahertz:
            raise UsageError(
                f"profile_clocks: found {min(self.clocks)} MHz, expected at least {self.lowest_megahertz} MHz, the "
                "profile_lowest_clock"
            )


def local_profile(
    options: MeasurementOptions, allowed: AllowedClocks, place: PipelinePlace, key: ProfileKey
) -> tuple[ProfileFile | None, Directive | None]:
    """The profile of this run: the clocks that the file lacks.

    All ranks find the same clocks, and so change them at the same iteration: no rank completes a clock before all
    have begun, and a clock counts only if all ranks have measured it.

    Args:
        options: What to measure.
        allowed: The clocks that may be held.
        place: The place of the rank.
        key: What the measurements apply to.

    Returns:
        The file that is written, and what the ranks measure: nothing if the file has everything. No file without a
        profile, and with a warning if there is no clock to measure or the file is of another pipeline.
    """
    if options.profile is None:
        return None, None
    if not allowed.allowed_megahertz:
        logger.warning("no profile: this process may hold no clock of its GPUs; it needs the node's agent")
        return None, None
    file = ProfileFile(Path(options.profile), place.rank, key)
    try:
        clocks = _clocks(options, allowed)
        remaining = file.remaining(clocks, place.ranks)
    except (UsageError, InputError, OperationError) as error:
        logger.warning("no profile: %s", error)
        return None, None
    if len(remaining) < len(clocks):
        logger.info("the profile %s has %d of %d clocks", file.path, len(clocks) - len(remaining), len(clocks))
    if not remaining:
        return file, None
    return file, Directive(
        number=1,
        mode=PROFILE,
        first_iteration=FIRST_ITERATION,
        clocks_megahertz=remaining,
        warm_up_iterations=WARM_UP_ITERATIONS,
        iterations_per_clock=options.iterations,
    )


def _clocks(options: MeasurementOptions, allowed: AllowedClocks) -> tuple[int, ...]:
    """The clocks to measure, from the highest down.

    Raises:
        UsageError: They may not be held.
    """
    if not isinstance(options.clocks, int):
        if refusal := allowed.refusal(tuple(options.clocks)):
            raise UsageError(f"profile_clocks: {refusal}")
        return tuple(sorted(options.clocks, reverse=True))
    useful = [clock for clock in allowed.allowed_megahertz if clock >= options.lowest_megahertz]
    if not useful:
        raise UsageError(
            f"profile_lowest_clock: found {options.lowest_megahertz} MHz, expected at most "
            f"{allowed.allowed_megahertz[-1]} MHz, the highest clock"
        )
    return spaced_clocks(useful, options.clocks)


def pipeline_meter(
    uuids: Sequence[str],
    place: PipelinePlace,
    variables: Mapping[str, str],
    options: MeasurementOptions,
    *,
    profile: ProfileFile | None,
    plan: object,
    series: RunDump | None,
    is_reported: bool,
    now: Callable[[], float],
) -> PipelineMeter | None:
    """The meter of a rank, which has begun; None if nobody wants its measurements.

    Args:
        uuids: The GPUs of the process.
        place: The place of the rank.
        variables: The environment variables of the process.
        options: What to measure without an operator.
        profile: The profile to write; None: no profile.
        plan: The plan that the script has given.
        series: The dumps of a folder of plans; None: each directive is a run.
        is_reported: Whether there is an operator.
        now: The clock of the instructions, in seconds.

    Raises:
        OperationError: The folder of the dumps cannot be made.
    """
    dumps = dump_folder(options.dumps, variables)
    if dumps is not None and not uuids:
        logger.warning("no dumps in %s: this process has no GPU that the node's agent reads", dumps)
    if not uuids or not (is_reported or profile or dumps):
        return None
    if abs(now() - time.monotonic()) > MAX_CLOCK_DIFFERENCE_SECONDS:
        logger.warning(
            "nothing is measured, and so nothing is planned from measurements: the instructions have another clock "
            "than the readings of the energy counters, which is the system's (CLOCK_MONOTONIC); let simulated GPUs "
            "run in real time, as wattloop run does for a job with power.frequencyPlan"
        )
        return None
    dump = series if series is not None or dumps is None else RunDump(dumps, place.rank, run_number(plan))
    files = MeasurementFiles(profile, dump)
    sampler = _sampler(variables, files)
    sampler.select(uuids)
    meter = PipelineMeter(sampler, uuids, first_rank=place.pipeline_rank == 0, files=files)
    meter.start()
    return meter


def _sampler(variables: Mapping[str, str], user: object) -> ProcessSampler:
    """The sampler of the process; with other variables than the process's, one of its own. It ends with its user."""
    if variables is os.environ:
        sampler = process_sampler.get(FirstAvailable, user)
    else:
        sampler = ProcessSampler(lambda: FirstAvailable(variables))
        sampler.add_user(user)
        sampler.start()
    sampler.wait_until_open()
    if sampler.problem:
        logger.warning("the energy of instructions is not measured: %s", sampler.problem)
    return sampler
