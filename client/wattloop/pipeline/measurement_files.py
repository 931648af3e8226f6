"""The files that a rank writes of its measurements: the profile for ``wattloop plan``, and the dumps of its runs."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from wattloop.errors import InputError, OperationError
from wattloop.pipeline.iteration_energy import JoulesBetween
from wattloop.pipeline.iteration_record import IterationRecord
from wattloop.pipeline.plan_messages import InstructionMeasurement
from wattloop.pipeline.profile_csv import ProfileFile
from wattloop.pipeline.run_dump import RunDump

logger = logging.getLogger("wattloop")

DUMPS_VARIABLE = "WATTLOOP_PIPELINE_DUMPS"
MAX_NAMED_CLOCKS = 4
PLAN_FILE = re.compile(r"freqs_pipeline_(\d{1,8})\.py")


def dump_folder(given: str | Path | None, variables: Mapping[str, str]) -> Path | None:
    """The folder of the dumps: the argument, else the variable ``WATTLOOP_PIPELINE_DUMPS``; None: no dumps."""
    named = given or variables.get(DUMPS_VARIABLE, "")
    return Path(named) if named else None


def run_number(plan: object) -> Callable[[int], int]:
    """The number of the run under a directive, by which its dumps are named.

    Free clocks are run 0. A plan file ``freqs_pipeline_00016.py`` is run 17, so that plan 0 differs from free
    clocks. Another plan of a script is run 1, and a plan of the operator has its directive's number.

    Example:
        >>> run_number("plans/freqs_pipeline_00016.py")(1), run_number([1410, 1200])(1), run_number(None)(5)
        (17, 1, 5)
        >>> run_number("plans/freqs_pipeline_00016.py")(0)
        0
    """
    found = PLAN_FILE.fullmatch(Path(plan).name) if isinstance(plan, (str, Path)) else None
    number = None if found is None else int(found[1]) + 1
    return lambda directive: directive if number is None or directive == 0 else number


class MeasurementFiles:
    """The files of one rank. A file that cannot be written is left out, with a warning; the training goes on.

    Args:
        profile: The profile; None: not written.
        dump: The dumps; None: not written.
    """

    def __init__(self, profile: ProfileFile | None, dump: RunDump | None) -> None:
        self._profile = profile
        self._dump = dump

    def add(self, record: IterationRecord) -> None:
        """Keep a measured iteration of a run."""
        if self._dump is not None:
            self._dump.add(record)

    def collect(self, before_seconds: float, joules_between: JoulesBetween) -> None:
        """Look up the energy of the iterations that end before a moment."""
        if self._dump is not None:
            self._dump.collect(before_seconds, joules_between)

    def write_complete(self, measurements: Callable[[], Sequence[InstructionMeasurement]]) -> None:
        """Write the runs that are complete, so that a process that is killed loses none."""
        if self._dump is not None:
            self._dump.write_complete(measurements)

    def store_profile(self, measurements: Sequence[InstructionMeasurement], blocking_watts: float | None) -> None:
        """Write what has been measured so far, after each clock: a process that is killed loses no clock."""
        if self._profile is None:
            return
        try:
            self._profile.store(measurements, blocking_watts)
        except (InputError, OperationError) as error:
            logger.warning("the profile of this rank is not written: %s", error)
            self._profile = None

    def _warn_of_unknown_energies(self, measurements: Sequence[InstructionMeasurement]) -> None:
        unknown = [each for each in measurements if each.megahertz and each.energy_joules is None]
        if self._profile is None or not unknown:
            return
        clocks = sorted({each.megahertz for each in unknown}, reverse=True)
        shown = ", ".join(map(str, clocks[:MAX_NAMED_CLOCKS])) + (" …" if clocks[MAX_NAMED_CLOCKS:] else "")
        logger.warning(
            "the profile %s has no energy of %s at %s MHz, which were measured too briefly: energy counters step every "
            "100 ms; a run with the same file measures them again, best with more profile_iterations",
            self._profile.path,
            " and ".join(sorted({each.kind for each in unknown})),
            shown,
        )

    def close(self, measurements: Sequence[InstructionMeasurement], blocking_watts: float | None) -> None:
        """Write everything."""
        self.store_profile(measurements, blocking_watts)
        self._warn_of_unknown_energies(measurements)
        if self._dump is not None:
            self._dump.write(measurements)
