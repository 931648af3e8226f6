"""The mean power of each GPU between the latest two reports of its process, or else since that process began."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal

from wattloop.wire.training_messages import GpuEnergy
from wattloop_operator.api.field_types import to_decimal
from wattloop_operator.domain.gpu_readings import GpuReadingStatus, RecentPower
from wattloop_operator.domain.progress import Progress

# A counter rises in steps of up to 0.1 s, whose energy a shorter interval may have or lack.
MIN_SECONDS = 1.0
# Where all reports come sooner than that, the power is renewed this often.
RENEWAL = timedelta(seconds=10)


def with_recent_power(before: Progress, after: Progress, readings: Sequence[GpuEnergy], now: datetime) -> Progress:
    """The progress after a report with the mean power of each of its GPUs, where the report has a new reading.

    Args:
        before: The progress before the report.
        after: The progress after it.
        readings: The report's readings.
        now: The time at which it was received.
    """
    known = {each.uuid: each for each in before.gpus}
    reported = {each.uuid: each for each in readings}
    gpus = tuple(
        each if each.uuid not in reported else _with_recent(known.get(each.uuid), each, reported[each.uuid], now)
        for each in after.gpus
    )
    return after if gpus == after.gpus else after.model_copy(update={"gpus": gpus})


def _with_recent(
    known: GpuReadingStatus | None, merged: GpuReadingStatus, reported: GpuEnergy, now: datetime
) -> GpuReadingStatus:
    recent = None if known is None else known.recent
    is_newer = known is None or merged.used_millijoules > known.used_millijoules
    # A clock that is behind that of an earlier process leaves that one's time: no interval can end at it.
    if is_newer and merged.time_seconds == to_decimal(reported.time_seconds):
        recent = _power_since_report(known, reported, now) or _power_since_start(recent, reported, now) or recent
    return merged if recent == merged.recent else merged.model_copy(update={"recent": recent})


def _power_since_report(known: GpuReadingStatus | None, reported: GpuEnergy, now: datetime) -> RecentPower | None:
    """The mean power since the reading before; None if that may be another process's.

    Another process may count from zero, as after a restart of the node, and then pass the readings of the one before.
    """
    if known is None:
        return None
    latest_start = known.start_time_seconds if known.recent is None else known.recent.start_time_seconds
    if latest_start != to_decimal(reported.start_time_seconds):
        return None
    return _power_between(known.energy_millijoules, float(known.time_seconds), reported, now)


def _power_since_start(recent: RecentPower | None, reported: GpuEnergy, now: datetime) -> RecentPower | None:
    """The mean power since the process began; None while a power of this process is new enough."""
    if (
        recent is not None
        and recent.start_time_seconds == to_decimal(reported.start_time_seconds)
        and now - recent.time < RENEWAL
    ):
        return None
    return _power_between(reported.start_energy_millijoules, reported.start_time_seconds, reported, now)


def _power_between(energy: int, seconds: float, reported: GpuEnergy, now: datetime) -> RecentPower | None:
    """The mean power from a reading to the reported one; None if that is less than `MIN_SECONDS`."""
    span = reported.time_seconds - seconds
    power_watts = mean_power_watts(reported.energy_millijoules - energy, span)
    if power_watts is None:
        return None
    return RecentPower(
        power_watts=power_watts,
        seconds=to_decimal(round(span, 2)),
        time=now.replace(microsecond=0),
        start_time_seconds=to_decimal(reported.start_time_seconds),
    )


def mean_power_watts(millijoules: int, seconds: float) -> Decimal | None:
    """The mean power of an energy over a time; None without energy, or if the time is less than `MIN_SECONDS`.

    Example:
        >>> mean_power_watts(350_000, 5.0), mean_power_watts(350_000, 0.5)
        (Decimal('70'), None)
    """
    return None if millijoules <= 0 or seconds < MIN_SECONDS else to_decimal(round(millijoules / 1000 / seconds, 1))
