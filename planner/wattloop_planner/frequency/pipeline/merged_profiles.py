"""Merges what the ranks of a pipeline measured into one profile (docs/internals/frequency-profiles.md).

The difference between ranks is a second source of error, common to all of them (the random-effects model of
DerSimonian and Laird, 1986).
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from wattloop.errors import InputError
from wattloop_planner.frequency.pipeline.instruction_profiles import RELATIVE_NOISE, Option, Profile, profile_of

# Quantile of the normal distribution beyond which ranks disagree: one agreeing set of 1,000 is reported.
DISAGREEMENT_QUANTILE = 3.09
# An error of 0 would give a rank all the weight.
MIN_RELATIVE_ERROR = 1e-6


@dataclass(frozen=True)
class ClockMeasurement:
    """Mean time and energy of one instruction at one clock, as one rank measured it.

    Attributes:
        stage: Stage, from 0.
        energy_joules: Mean energy; None while it is unknown.
        time_error_seconds: Standard error of the time; None if unknown, which counts as the usual noise.
        energy_error_joules: Standard error of the energy; None likewise.
        line: 1-based line of the file, or 0 without a file.
    """

    rank: str
    stage: int
    instruction: str
    frequency_megahertz: int
    time_seconds: float
    energy_joules: float | None
    time_error_seconds: float | None = None
    energy_error_joules: float | None = None
    knobs: tuple[str, ...] = ()
    line: int = 0


@dataclass(frozen=True)
class WeightedMean:
    """The mean of a quantity over ranks.

    Attributes:
        error: Its standard error, with the difference between ranks.
        disagree: Whether the ranks differ by more than their errors explain.
    """

    mean: float
    error: float
    disagree: bool


def weighted_mean(values: Sequence[float], errors: Sequence[float | None]) -> WeightedMean:
    """The mean of values with standard errors, and whether they disagree beyond these.

    Args:
        values: At least one, all positive.
        errors: Their standard errors; None counts as the usual noise of a measurement.

    Example:
        >>> found = weighted_mean([1.0, 1.1], [0.01, 0.1])
        >>> round(found.mean, 6), round(found.error, 6), found.disagree
        (1.00099, 0.00995, False)
        >>> weighted_mean([1.0, 1.1], [0.001, 0.001]).disagree
        True
    """
    variances = [
        max(RELATIVE_NOISE * value if error is None else error, MIN_RELATIVE_ERROR * value) ** 2
        for value, error in zip(values, errors, strict=True)
    ]
    weights = [1 / variance for variance in variances]
    mean = _mean(values, weights)
    freedom = len(values) - 1
    spread = math.fsum(weight * (value - mean) ** 2 for value, weight in zip(values, weights, strict=True))
    total = math.fsum(weights)
    scale = total - math.fsum(weight**2 for weight in weights) / total
    between = max((spread - freedom) / scale, 0.0) if freedom and scale > 0 else 0.0
    weights = [1 / (variance + between) for variance in variances]
    disagree = False
    if freedom:
        # The quantile of the chi-squared distribution by Wilson and Hilferty (1931).
        scale = 2 / (9 * freedom)
        disagree = spread > freedom * (1 - scale + DISAGREEMENT_QUANTILE * math.sqrt(scale)) ** 3
    return WeightedMean(_mean(values, weights), math.fsum(weights) ** -0.5, disagree)


def _mean(values: Sequence[float], weights: Sequence[float]) -> float:
    return math.fsum(value * weight for value, weight in zip(values, weights, strict=True)) / math.fsum(weights)


def merged_profile(source: str, measurements: Iterable[ClockMeasurement], knobs: tuple[str, ...] = ()) -> Profile:
    """One profile from the measurements of all ranks.

    An option is the mean over the ranks that measured it: time and energy of one rank of its stage. If an
    instruction has options without a known energy beside others, those above all known clocks keep their time with an
    estimated energy, and the rest are left out, with notes. Ranks that disagree beyond their errors are noted, once
    for each stage and instruction.

    Args:
        source: Name of the source, for messages.
        measurements: At least one with a known energy; each rank at most once for each stage, instruction,
            clock and knobs.
        knobs: Names of the knobs.

    Raises:
        InputError: There is no measurement, or none of an instruction has an energy.
    """
    found: dict[tuple[int, str], dict[tuple[int, tuple[str, ...]], list[ClockMeasurement]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for each in measurements:
        found[each.stage, each.instruction][each.frequency_megahertz, each.knobs].append(each)
    options: dict[tuple[int, str], list[Option]] = {}
    notes: list[str] = []
    for key in sorted(found):
        merged, of_kind = _merged_options(found[key])
        if not merged:
            clocks = sorted({clock for clock, _ in found[key]})
            raise InputError(
                source,
                f"no energy of stage {key[0]}, {key[1]}, at {_clocks(clocks)}",
                "an energy at one clock or more; measure longer, because energy counters step every 100 ms",
            )
        options[key] = merged
        notes.extend(f"stage {key[0]}, {key[1]}: {note}" for note in of_kind)
    if not options:
        raise InputError(source, "no measurement with an energy", "time and energy of each instruction and clock")
    return profile_of(source, options, notes, knobs)


def _merged_options(
    groups: dict[tuple[int, tuple[str, ...]], list[ClockMeasurement]],
) -> tuple[list[Option], list[str]]:
    options: list[Option] = []
    without_energy: list[Option] = []
    disagreeing: list[tuple[int, str]] = []
    for (clock, knobs), group in groups.items():
        measured = [each for each in group if each.energy_joules is not None]
        time = weighted_mean([each.time_seconds for each in group], [each.time_error_seconds for each in group])
        if not measured:
            without_energy.append(Option(clock, time.mean, 0.0, group[0].line, knobs, time.error))
            continue
        energy = weighted_mean(
            [each.energy_joules for each in measured if each.energy_joules is not None],
            [each.energy_error_joules for each in measured],
        )
        options.append(Option(clock, time.mean, energy.mean, group[0].line, knobs, time.error, energy.error))
        if time.disagree:
            disagreeing.append((clock, _extremes(group, "time")))
        elif energy.disagree:
            disagreeing.append((clock, _extremes(measured, "energy")))
    estimated, left_out = _estimated(without_energy, options)
    notes = []
    if estimated:
        notes.append(
            f"no energy is known at {_clocks([each.frequency_megahertz for each in estimated])}; it is estimated from "
            "the power at lower clocks"
        )
    if left_out:
        notes.append(f"no energy is known at {_clocks(left_out)}, so options are left out")
    if disagreeing:
        clock, extremes = max(disagreeing)
        notes.append(
            f"ranks disagree beyond their errors at {_clocks([clock for clock, _ in disagreeing])}; at {clock} MHz "
            f"{extremes}. Their mean is used, and the difference counts as an error"
        )
    return [*options, *estimated], notes


def _estimated(without_energy: Sequence[Option], known: Sequence[Option]) -> tuple[list[Option], list[int]]:
    """The options above all known clocks, with an estimated energy, and the clocks of the others."""
    estimated: list[Option] = []
    left_out: list[int] = []
    for option in without_energy:
        same = [each for each in known if each.knobs == option.knobs]
        if same and option.frequency_megahertz > max(each.frequency_megahertz for each in same):
            estimated.append(with_estimated_energy(option, same))
        else:
            left_out.append(option.frequency_megahertz)
    return estimated, left_out


def _extremes(group: Sequence[ClockMeasurement], quantity: str) -> str:
    def value(each: ClockMeasurement) -> float:
        return each.time_seconds if quantity == "time" else each.energy_joules or 0.0

    low, high, unit = min(group, key=value), max(group, key=value), "s" if quantity == "time" else "J"
    return f"{quantity} {value(low):.6g} {unit} (rank {low.rank}) to {value(high):.6g} {unit} (rank {high.rank})"


def _clocks(clocks: Sequence[int]) -> str:
    if len(clocks) == 1:
        return f"{clocks[0]} MHz"
    return f"{len(clocks)} clocks ({min(clocks)} to {max(clocks)} MHz)"


def with_estimated_energy(timed: Option, known: Collection[Option]) -> Option:
    """An option with its measured time and an estimated energy.

    Its power is on the line through those of the two highest known clocks, or in proportion to the clock if one is
    known, and not below that of the highest one. Its error is the whole difference to that, and the error of that.

    Args:
        timed: The option, with any energy.
        known: Options with a measured energy at lower clocks and with the same knobs; at least one.

    Example:
        >>> known = [Option(1000, 1.0, 200.0), Option(1200, 0.9, 198.0)]
        >>> found = with_estimated_energy(Option(1400, 0.8, 0.0), known)
        >>> found.time_seconds, round(found.energy_joules / found.time_seconds)
        (0.8, 240)
    """
    highest, *lower = sorted(known, key=lambda option: -option.frequency_megahertz)
    watts, clock = highest.energy_joules / highest.time_seconds, highest.frequency_megahertz
    slope = watts / clock
    if lower:
        fall = watts - lower[0].energy_joules / lower[0].time_seconds
        slope = max(fall, 0.0) / (clock - lower[0].frequency_megahertz)
    rise = slope * (timed.frequency_megahertz - clock)
    error = highest.energy_error_joules
    relative = RELATIVE_NOISE if error is None else error / highest.energy_joules
    return replace(
        timed,
        energy_joules=(watts + rise) * timed.time_seconds,
        energy_error_joules=math.hypot(rise, relative * watts) * timed.time_seconds,
        interpolated=True,
    )
