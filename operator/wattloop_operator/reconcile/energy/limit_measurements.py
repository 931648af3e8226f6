"""The power limits that the ranks of an attempt measured, added up over the ranks for one whole epoch.

At each limit the energy is the sum over the ranks, and the time that of the slowest one. The first measurement of a
rank at a limit counts, in any order of reports. It counts for decisions once all ranks have made it.
"""

from decimal import Decimal

from wattloop.wire.training_messages import MAX_LIMITS, MAX_NUMBER, LimitMeasurement, Report, holds_chosen_limit
from wattloop_operator.domain.gpu_readings import MAX_MEASURING_RANKS, ProfilePoint
from wattloop_operator.domain.progress import Progress

# Microjoules and microseconds: sums of decimals do not depend on the order of reports.
SMALLEST = Decimal("1e-6")
MAX_TOTAL = Decimal(int(MAX_NUMBER))
MAX_NAMED_RANKS = 8


def ranks_after(before: Progress, report: Report) -> int:
    """Number of ranks of the attempt, as far as reports tell."""
    return max(before.ranks, report.ranks, report.rank + 1, 1)


def profile_after(before: Progress, report: Report, *, ranks: int, is_newest: bool) -> tuple[ProfilePoint, ...]:
    """The profile after a report.

    `is_newest`: whether the report is the newest one of rank 0. With one rank, or if rank 0 measured all ranks
    together, its profile replaces the one before.
    """
    if ranks == 1:
        points = tuple(map(_point, report.profile)) if is_newest else ()
        return points or before.profile
    if is_newest and report.profile and report.profile_ranks >= ranks:
        return tuple(_of_one_epoch(_point(each, _ranks_of_profile(report))) for each in report.profile)
    if not report.profile or report.rank >= MAX_MEASURING_RANKS:
        return before.profile
    merged = {point.power_limit_watts: _of_one_epoch(point) for point in before.profile}
    for measurement in report.profile:
        one = _of_one_epoch(_point(measurement, _ranks_of_profile(report)))
        known = merged.get(one.power_limit_watts)
        if known is None:
            merged[one.power_limit_watts] = one
        elif not _mask(known) & _mask(one):
            merged[one.power_limit_watts] = known.model_copy(
                update={
                    "energy_joules": _bounded(known.energy_joules + one.energy_joules),
                    "time_seconds": max(known.time_seconds, one.time_seconds),
                    "ranks": f"{_mask(known) | _mask(one):x}",
                }
            )
    # Of more limits than an object may have, the lowest are dropped, in any order of reports.
    highest = sorted(merged, reverse=True)[:MAX_LIMITS]
    return tuple(merged[watts] for watts in highest)


def complete_points(progress: Progress) -> tuple[ProfilePoint, ...]:
    """The measurements that every rank has made."""
    expected = (1 << min(progress.ranks, MAX_MEASURING_RANKS + 1)) - 1
    return tuple(point for point in progress.profile if _mask(point) == expected)


def holds_chosen(progress: Progress) -> bool:
    """Whether an attempt that measures power limits holds the one that it chose, not the next one to measure."""
    return holds_chosen_limit(progress.power_limit_watts, (point.power_limit_watts for point in progress.profile))


def unmeasured_ranks_text(progress: Progress) -> str:
    """The ranks that have not measured every power limit that another one has, as text; empty if there are none.

    Example:
        >>> point = {"power_limit_watts": 300, "energy_joules": 1, "time_seconds": 1, "epochs": 1, "ranks": "5"}
        >>> unmeasured_ranks_text(Progress(ranks=4, profile=(ProfilePoint.model_validate(point),)))
        'rank 1 and rank 3 of 4'
    """
    if progress.ranks > MAX_MEASURING_RANKS:
        return f"all ranks from {MAX_MEASURING_RANKS} of {progress.ranks}, which are too many,"
    common = (1 << progress.ranks) - 1
    for point in progress.profile:
        common &= _mask(point)
    missing = [f"rank {rank}" for rank in range(progress.ranks) if not common >> rank & 1]
    if not missing or not progress.profile:
        return ""
    named = missing[:MAX_NAMED_RANKS]
    if len(missing) > len(named):
        text = f"{', '.join(named)} and {len(missing) - len(named)} others"
    else:
        text = " and ".join(filter(None, (", ".join(named[:-1]), named[-1])))
    return f"{text} of {progress.ranks}"


def _ranks_of_profile(report: Report) -> int:
    """The ranks that a report's measurements include, as a bit mask: that of the process, or those that it leads."""
    if report.profile_ranks > 1:
        return (1 << min(report.profile_ranks, MAX_MEASURING_RANKS)) - 1
    return 1 << report.rank


def _point(measurement: LimitMeasurement, ranks: int = 1) -> ProfilePoint:
    return ProfilePoint.model_validate(
        {
            "power_limit_watts": round(measurement.power_limit_watts),
            "energy_joules": measurement.energy_joules,
            "time_seconds": measurement.time_seconds,
            "epochs": measurement.epochs,
            "ranks": f"{ranks:x}",
        }
    )


def _of_one_epoch(point: ProfilePoint) -> ProfilePoint:
    """The same measurement for one whole epoch; unchanged if it is for one."""
    if point.epochs == 1:
        return point
    return point.model_copy(
        update={
            "energy_joules": _bounded(point.energy_joules / point.epochs),
            "time_seconds": _bounded(point.time_seconds / point.epochs),
            "epochs": Decimal(1),
        }
    )


def _mask(point: ProfilePoint) -> int:
    return int(point.ranks, 16)


def _bounded(value: Decimal) -> Decimal:
    return min(max(value.quantize(SMALLEST), SMALLEST), MAX_TOTAL)
