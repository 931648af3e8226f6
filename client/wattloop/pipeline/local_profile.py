"""Measures the clocks of a profile without an operator, for ``wattloop plan --profile``."""

import logging
from collections.abc import Sequence
from pathlib import Path

from wattloop.errors import InputError, OperationError, UsageError
from wattloop.gpus.agent import GpuDescription
from wattloop.pipeline.clock_profiling import spaced_clocks
from wattloop.pipeline.directives import AllowedClocks, allowed_clocks
from wattloop.pipeline.pipeline_place import require_integer
from wattloop.pipeline.plan_messages import MAX_CLOCKS, MAX_MEGAHERTZ, PROFILE, Directive, InstructionMeasurement
from wattloop.pipeline.plan_source import PlanSource, Recorder
from wattloop.pipeline.profile_csv import ProfileFile

logger = logging.getLogger("wattloop")

WARM_UP_ITERATIONS = 2
# The first iteration shows what the instructions are.
FIRST_ITERATION = 1
MAX_ITERATIONS_PER_CLOCK = 1_000_000
MAX_NAMED_CLOCKS = 4


class ClockProfile(PlanSource):
    """Measures time and energy of the instructions at each clock that a CSV file lacks, then frees the clocks.

    All ranks find the same clocks, and so change them at the same iteration: no rank completes a clock before all
    have begun, and a clock counts only if all ranks have measured it.

    Args:
        path: The file, which all ranks write.
        clocks: The clocks to measure, in MHz, or the number of evenly spaced ones.
        iterations: Iterations measured at each clock, after two that warm up; the same on all ranks.
        lowest_clock: No lower clock is measured, in MHz; a rank stops by itself where lower ones save nothing.

    Raises:
        UsageError: A number is out of its range.
    """

    def __init__(
        self, path: str | Path, clocks: int | Sequence[int] = 12, iterations: int = 20, lowest_clock: int = 0
    ) -> None:
        require_integer("iterations", iterations, 1, MAX_ITERATIONS_PER_CLOCK)
        require_integer("lowest_clock", lowest_clock, 0, MAX_MEGAHERTZ)
        if isinstance(clocks, int):
            require_integer("clocks", clocks, 2, MAX_CLOCKS)
        elif not 0 < len(clocks) <= MAX_CLOCKS or len(set(clocks)) < len(clocks):
            raise UsageError(f"clocks: found {len(clocks)}, expected 1 to {MAX_CLOCKS} different clocks")
        elif min(clocks) < lowest_clock:
            raise UsageError(f"clocks: found {min(clocks)} MHz, expected at least {lowest_clock} MHz, the lowest_clock")
        self._path = Path(path)
        self._clocks = clocks
        self._iterations = iterations
        self._lowest_clock = lowest_clock

    def begin(self, gpus: Sequence[GpuDescription]) -> list[Recorder]:
        """See `PlanSource`; a profile that cannot be measured or continued is left out, with a warning."""
        dumps, allowed = self.dump(gpus, None), allowed_clocks(gpus)
        if not allowed.allowed_megahertz:
            logger.warning("no profile: this process may hold no clock of its GPUs; it needs the node's agent")
            return dumps
        place = self.rank.place
        file = ProfileFile(self._path, place.rank, self.rank.profile_key(gpus))
        try:
            clocks = self._clocks_of(allowed)
            remaining = file.remaining(clocks, place.ranks)
        except (UsageError, InputError, OperationError) as error:
            logger.warning("no profile: %s", error)
            return dumps
        if len(remaining) < len(clocks):
            logger.info("the profile %s has %d of %d clocks", self._path, len(clocks) - len(remaining), len(clocks))
        if remaining:
            self.rank.state.receive(
                Directive(
                    number=1,
                    mode=PROFILE,
                    first_iteration=FIRST_ITERATION,
                    clocks_megahertz=remaining,
                    warm_up_iterations=WARM_UP_ITERATIONS,
                    iterations_per_clock=self._iterations,
                )
            )
        return [ProfileRecorder(file), *dumps]

    def _clocks_of(self, allowed: AllowedClocks) -> tuple[int, ...]:
        """The clocks to measure, from the highest down.

        Raises:
            UsageError: They may not be held.
        """
        if not isinstance(self._clocks, int):
            if refusal := allowed.refusal(tuple(self._clocks)):
                raise UsageError(f"clocks: {refusal}")
            return tuple(sorted(self._clocks, reverse=True))
        useful = [clock for clock in allowed.allowed_megahertz if clock >= self._lowest_clock]
        if not useful:
            raise UsageError(
                f"lowest_clock: found {self._lowest_clock} MHz, expected at most "
                f"{allowed.allowed_megahertz[-1]} MHz, the highest clock"
            )
        return spaced_clocks(useful, self._clocks)


class ProfileRecorder(Recorder):
    """Writes the rows of this rank into the profile, until that fails once."""

    def __init__(self, file: ProfileFile) -> None:
        self._file: ProfileFile | None = file

    def clock_measured(self, measurements: Sequence[InstructionMeasurement], blocking_watts: float | None) -> None:
        """See `Recorder`."""
        if self._file is None:
            return
        try:
            self._file.store(measurements, blocking_watts)
        except (InputError, OperationError) as error:
            logger.warning("the profile of this rank is not written: %s", error)
            self._file = None

    def close(self, measurements: Sequence[InstructionMeasurement], blocking_watts: float | None) -> None:
        """See `Recorder`; a warning names the clocks whose energy is not known."""
        self.clock_measured(measurements, blocking_watts)
        unknown = [each for each in measurements if each.megahertz and each.energy_joules is None]
        if self._file is None or not unknown:
            return
        clocks = sorted({each.megahertz for each in unknown}, reverse=True)
        shown = ", ".join(map(str, clocks[:MAX_NAMED_CLOCKS])) + (" …" if clocks[MAX_NAMED_CLOCKS:] else "")
        logger.warning(
            "the profile %s has no energy of %s at %s MHz, which were measured too briefly: energy counters step every "
            "100 ms; a run with the same file measures them again, best with more iterations at each clock",
            self._file.path,
            " and ".join(sorted({each.kind for each in unknown})),
            shown,
        )
