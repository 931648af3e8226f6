"""`wattloop pipeline profile`: a profile of instructions that were exported or dumped elsewhere."""

from __future__ import annotations

import argparse
import math
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from wattloop.errors import InputError, UsageError

if TYPE_CHECKING:
    from wattloop_planner.frequency.pipeline.merged_profiles import ClockMeasurement

PROFILE_EXAMPLE = """\
  wattloop pipeline profile --from runs/export --gpu A40 --microbatches 128 --iterations 5 --output profile.csv
  wattloop pipeline profile --from runs/dumps --blocking-power 83.64 --output profile.csv"""
# The clocks that these GPUs support, in MHz: highest, lowest, step.
GPU_CLOCKS = {"A40": (1740, 210, 15), "A100": (1410, 210, 15)}
AUTOMATIC = "auto"


def lowest_useful_clock(measurements: Iterable[ClockMeasurement], blocking_power_watts: float = 0.0) -> int:
    """The lowest clock at which some instruction has its least energy; 0 if no energy is known.

    A lower clock takes longer and saves nothing, for any instruction of any rank. A rank that would wait otherwise
    saves the blocking power meanwhile, so e − P·t counts where P is known.

    Args:
        measurements: Time and energy of each instruction at each clock.
        blocking_power_watts: Power of a GPU that waits; 0: the energy alone counts.
    """
    least: dict[tuple[str, int, str], list[tuple[float, int]]] = defaultdict(list)
    for each in measurements:
        if each.energy_joules is not None:
            effective = each.energy_joules - blocking_power_watts * each.time_seconds
            least[each.rank, each.stage, each.instruction].append((effective, -each.frequency_megahertz))
    return min((-min(found)[1] for found in least.values()), default=0)


def configure_profile(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "--from",
        dest="folder",
        metavar="DIR",
        required=True,
        help="folder with instructions-N.csv and time-energy-N.csv of each rank N, as Perseus' training framework "
        "exports them, or with N.prof.json and N.sched.json of each run N",
    )
    parser.add_argument("--output", metavar="FILE", required=True, help="the profile, for wattloop plan; - for stdout")
    clocks = parser.add_mutually_exclusive_group()
    clocks.add_argument(
        "--gpu", choices=tuple(GPU_CLOCKS), help="of an export: each clock of this GPU had a round, from the highest"
    )
    clocks.add_argument(
        "--clocks",
        type=_clocks,
        metavar="MHZ",
        help="of an export: the clock of each round, as 1740:210:15 (first, last, step) or 1740,1500,1200",
    )
    parser.add_argument("--microbatches", type=int, metavar="M", help="of an export: microbatches in an iteration")
    parser.add_argument("--iterations", type=int, metavar="N", help="of an export: iterations in a round at one clock")
    parser.add_argument(
        "--warm-up-rounds",
        type=int,
        metavar="N",
        help="of an export: rounds before the first clock (default: a tenth of --iterations, at most 10, as published)",
    )
    parser.add_argument(
        "--warm-up",
        type=int,
        metavar="N",
        help="of dumps: first iterations of each run to exclude (default: a tenth, and at least 1, as published)",
    )
    parser.add_argument(
        "--lowest-clock",
        type=_lowest_clock,
        metavar="MHZ",
        default=AUTOMATIC,
        help="leave out lower clocks; auto: those at which every instruction takes more time and more energy than at a "
        "higher one (default: auto; 0: none)",
    )
    parser.add_argument(
        "--blocking-power",
        type=float,
        metavar="W",
        help="power of a GPU that waits: written to the profile, and saved by a slower instruction for --lowest-clock",
    )
    parser.add_argument("--gpu-product", metavar="NAME", default="", help="product name of the GPUs, for the profile")


def _clocks(text: str) -> tuple[int, ...]:
    try:
        if ":" in text:
            first, last, step = (int(part) for part in text.split(":"))
            found = tuple(range(first, last - 1, -step)) if step > 0 else ()
        else:
            found = tuple(int(part) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or min(found) < 1 or len(set(found)) < len(found):
        raise argparse.ArgumentTypeError(
            f"{text!r}: must be FIRST:LAST:STEP, falling, or different clocks as 1740,1500"
        )
    return found


def _lowest_clock(text: str) -> str | int:
    if text == AUTOMATIC:
        return text
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r}: must be a clock in MHz, or {AUTOMATIC}")
    return int(text)


def check_profile(arguments: argparse.Namespace) -> None:
    """Check the numbers.

    Raises:
        UsageError: One is out of range.
    """
    for name, least in (("microbatches", 1), ("iterations", 1), ("warm_up_rounds", 0), ("warm_up", 0)):
        value = getattr(arguments, name)
        if value is not None and value < least:
            raise UsageError(f"--{name.replace('_', '-')} {value}: must be at least {least}")
    watts = arguments.blocking_power
    if watts is not None and not 0 <= watts < math.inf:
        raise UsageError(f"--blocking-power {watts:g}: must be a finite number of at least 0")


def profile(arguments: argparse.Namespace) -> int:
    """Execute ``wattloop pipeline profile``."""
    measured = _measured(arguments)
    lowest = arguments.lowest_clock
    if lowest == AUTOMATIC:
        lowest = lowest_useful_clock(measured, arguments.blocking_power or 0.0)
    kept = [each for each in measured if each.frequency_megahertz >= lowest]
    if not kept:
        highest = max(each.frequency_megahertz for each in measured)
        raise UsageError(f"--lowest-clock {lowest}: no clock remains; the highest is {highest} MHz")
    known = {(each.stage, each.instruction) for each in kept if each.energy_joules is not None}
    if unknown := sorted({(each.stage, each.instruction) for each in kept} - known):
        named = "; ".join(f"stage {stage}, {instruction}" for stage, instruction in unknown)
        expected = "the energy of each instruction at some clock, which runs of more iterations tell"
        raise InputError(arguments.folder, f"no energy of {named[:200]}", expected)
    _write(arguments, kept)
    _report(arguments, kept, {each.frequency_megahertz for each in measured if each.frequency_megahertz < lowest})
    return 0


def _measured(arguments: argparse.Namespace) -> list[ClockMeasurement]:
    from wattloop_research.frequency.files.dumped_profiles import read_dumps
    from wattloop_research.frequency.files.exported_instructions import (
        Rounds,
        export_ranks,
        published_warm_up_rounds,
        read_export,
    )

    of_export = ("microbatches", "iterations")
    if not export_ranks(arguments.folder):
        for name in (*of_export, "gpu", "clocks", "warm_up_rounds"):
            if getattr(arguments, name) is not None:
                raise UsageError(
                    f"--{name.replace('_', '-')}: is of an export, and {arguments.folder} has no instructions-N.csv: "
                    "name the folder that has them, or leave the option out for dumps N.prof.json"
                )
        return list(read_dumps(arguments.folder, arguments.warm_up))
    if arguments.warm_up is not None:
        raise UsageError("--warm-up: is of dumps; an export has --warm-up-rounds")
    missing = [f"--{name}" for name in of_export if getattr(arguments, name) is None]
    if arguments.gpu is None and arguments.clocks is None:
        missing.append("--clocks or --gpu")
    if missing:
        raise UsageError(f"{', '.join(missing)}: missing, to read the export in {arguments.folder}")
    first, last, step = GPU_CLOCKS.get(arguments.gpu, (0, 0, 1))
    warm_up = arguments.warm_up_rounds
    return list(
        read_export(
            arguments.folder,
            Rounds(
                arguments.clocks or tuple(range(first, last - 1, -step)),
                arguments.microbatches,
                arguments.iterations,
                published_warm_up_rounds(arguments.iterations) if warm_up is None else warm_up,
            ),
        )
    )


def _write(arguments: argparse.Namespace, measured: Sequence[ClockMeasurement]) -> None:
    from wattloop.files.atomic_write import open_atomic
    from wattloop.files.csv_table import write_csv_table
    from wattloop_planner.frequency.pipeline.profile_file import COLUMNS

    columns = (*COLUMNS, "rank", "time_error", "energy_error", "blocking_power", "gpu_product")
    ordered = sorted(measured, key=lambda each: (each.stage, each.instruction, -each.frequency_megahertz, each.rank))
    with open_atomic(arguments.output) as stream:
        write_csv_table(stream, columns, (_cells(arguments, each) for each in ordered))


def _cells(arguments: argparse.Namespace, each: ClockMeasurement) -> tuple[object, ...]:
    numbers, errors = (each.time_seconds, each.energy_joules), (each.time_error_seconds, each.energy_error_joules)
    return (
        each.stage,
        each.instruction,
        each.frequency_megahertz,
        *map(_cell, numbers),
        each.rank,
        *map(_cell, errors),
        _cell(arguments.blocking_power),
        arguments.gpu_product,
    )


def _cell(value: float | None) -> str:
    return "" if value is None else repr(float(value))


def _report(arguments: argparse.Namespace, kept: Sequence[ClockMeasurement], left_out: set[int]) -> None:
    clocks = {each.frequency_megahertz for each in kept}
    stages = len({each.stage for each in kept})
    sys.stderr.write(f"{stages} stages at {len(clocks)} clocks from {max(clocks)} to {min(clocks)} MHz\n")
    if left_out:
        by = "e − P·t" if arguments.blocking_power else "energy, without --blocking-power"
        reason = f" (by {by})" if arguments.lowest_clock == AUTOMATIC else ""
        sys.stderr.write(
            f"{len(left_out)} clocks below {min(clocks)} MHz were left out{reason}: no instruction saves there\n"
            if reason
            else f"{len(left_out)} clocks below --lowest-clock were left out\n"
        )
