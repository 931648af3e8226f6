"""The dumps of a series of runs: each run is written once, when all its iterations are measured."""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from wattloop.pipeline.iteration_record import IterationRecord
from wattloop.pipeline.plan_messages import InstructionMeasurement
from wattloop.pipeline.run_dump import RunDump
from wattloop.pipeline.run_series import RunSchedule
from wattloop.printable import printable

logger = logging.getLogger("wattloop")

# Of its iterations, a run must have so many with their setting and a known energy.
LEAST_SHARE = 0.5
# All ranks have read by then what rank 0 wrote; they look for it every second.
AGREEMENT_SECONDS = 5.0
MARGIN_ITERATIONS = 2


class SeriesDump(RunDump):
    """The records of one rank in a series of runs.

    Args:
        folder: Where to write.
        rank: The rank.
        schedule: The runs.
        later_runs: Runs that follow those of the schedule, for the time left.
    """

    def __init__(self, folder: Path, rank: int, schedule: RunSchedule, *, later_runs: int = 0) -> None:
        super().__init__(folder, rank, schedule.run_of)
        self._series = schedule.series
        self._run_of = schedule.run_of
        self._left = list(schedule.remaining)
        self._last = schedule.last_iterations()
        self._later_runs = later_runs
        self._seen: dict[int, int] = {}
        self._latest: IterationRecord | None = None

    def has_setting(self, record: IterationRecord) -> bool:
        """Whether an iteration ran with the setting of its run, as far as its record says."""
        return bool(record.clocks_megahertz) and not record.interrupted

    def add(self, record: IterationRecord) -> None:
        """Keep an iteration of a run, if it had the setting of the run."""
        self._latest = record
        run = self._run_of(record.directive.number)
        if run in self._left and self.has_setting(record):
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
                    len(self._runs.get(run, ())),
                    self._series.iterations,
                )

    def write_complete(self, measurements: Callable[[], Sequence[InstructionMeasurement]]) -> None:
        """See `RunDump`."""
        pending = {self._run_of(record.directive.number) for record in self._pending}
        for run in [run for run in self._left if self._is_complete(run, pending)]:
            self._write_run(run, measurements())
            self._left.remove(run)
            self._report(run)
            self._forget(run)

    def _is_complete(self, run: int, pending: set[int]) -> bool:
        if self._latest is None or self._latest.number < self._last[run] or run in pending:
            return False
        # Some iterations may lack: their energy is not known, or the agent did not hold the setting.
        return len(self._runs.get(run, ())) >= LEAST_SHARE * self._series.iterations

    def _report(self, run: int) -> None:
        times = [record.end_seconds - record.begin_seconds for record, _ in self._runs[run]]
        if self._rank or not times:
            return
        seconds = sum(times) / len(times)
        left = len(self._left) + self._later_runs
        minutes = left * self._series.iterations_of_run * seconds / 60
        text = f"run {run} is complete, {self._series.described(run)}: {seconds:.4g} s an iteration; {left} runs left"
        _show(f"{text}, about {minutes:.3g} min")


def _show(progress: str) -> None:
    """Log progress; on a terminal show it, where the script shows no such log."""
    logger.info("%s", progress)
    if sys.stderr.isatty() and not logger.isEnabledFor(logging.INFO):
        sys.stderr.write(f"{printable(progress)}\n")
        sys.stderr.flush()


def iteration_for_all(latest: IterationRecord) -> int:
    """An iteration before which all ranks read what rank 0 writes now.

    Example:
        >>> from array import array
        >>> from wattloop.pipeline.plan_messages import Directive
        >>> iteration_for_all(IterationRecord(100, Directive(), (), (), 0.0, 0.5, array("d")))
        112
    """
    seconds = max(latest.end_seconds - latest.begin_seconds, 1e-3)
    return latest.number + math.ceil(AGREEMENT_SECONDS / seconds) + MARGIN_ITERATIONS
