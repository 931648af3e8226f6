"""When a job is due: the slots of its trigger, found at any time after the last check.

A slot is a moment at which a recurrence starts. Kubernetes' CronJob counts missed slots one by one
and gives up beyond a hundred (kubernetes#42649, #110919). Here the latest due slot is found
directly, backwards from now, so a job that was suspended for years resumes at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from cronsim import CronSim

from wattloop_operator.api.trigger import CronTrigger, IntervalTrigger, Trigger, schedule_times, time_zone

MAX_MISSED_COUNTED = 100
# 0.3 MB.
MAX_REMEMBERED_SLOTS = 1024


@dataclass(frozen=True)
class Slots:
    """The due and the next slot of a trigger.

    Attributes:
        due: The latest slot that has passed and was not handled; None if nothing is due.
        missed: How many slots before `due` were not handled either, counted up to 100. They are not
            made up for.
        next_slot: The next slot; None if its time is not known.
    """

    due: datetime | None
    missed: int
    next_slot: datetime | None


def find_slots(
    trigger: Trigger, *, created: datetime, handled: datetime | None, last_end: datetime | None, now: datetime
) -> Slots:
    """Find the slot that is due.

    Args:
        trigger: The job's trigger.
        created: When the job was created; no slot is earlier.
        handled: The latest slot that was started or skipped; None if there is none. It is not due
            again if the clock jumps back.
        last_end: When the last recurrence ended, for a continuous trigger.
        now: The time.

    Raises:
        ScheduleError: The cron schedule or its time zone is invalid.
    """
    # The job exists, so its creation has passed, even if this clock is behind the API server's.
    now = max(now, created)
    if trigger.cron is not None:
        return _cron_slots(trigger.cron, created, handled, now)
    if trigger.interval is not None:
        return _interval_slots(trigger.interval, created, handled, now)
    if trigger.continuous is not None:
        gap = timedelta(seconds=trigger.continuous.min_gap_seconds)
        slot = created if handled is None else max(handled + timedelta(seconds=1), (last_end or handled) + gap)
        return _single(slot, now)
    if trigger.once is not None and handled is None:
        return _single(created, now)
    return Slots(None, 0, None)


def _single(slot: datetime, now: datetime) -> Slots:
    slot = slot.replace(microsecond=0)
    return Slots(slot, 0, None) if slot <= now else Slots(None, 0, slot)


def _interval_slots(trigger: IntervalTrigger, created: datetime, handled: datetime | None, now: datetime) -> Slots:
    anchor = created.replace(microsecond=0)
    count = math.floor((now - anchor).total_seconds() / trigger.seconds)
    done = -1 if handled is None else math.floor((handled - anchor).total_seconds() / trigger.seconds)
    next_slot = anchor + timedelta(seconds=trigger.seconds * (max(count, done) + 1))
    if count <= done or count < 0:
        return Slots(None, 0, next_slot)
    due = anchor + timedelta(seconds=trigger.seconds * count)
    return Slots(due, min(count - done - 1, MAX_MISSED_COUNTED), next_slot)


def _cron_slots(trigger: CronTrigger, created: datetime, handled: datetime | None, now: datetime) -> Slots:
    since = created if handled is None else max(created, handled)
    next_slot = _first(trigger, max(since, now), backwards=False)
    # Backwards iteration excludes its start. Starting one second later includes a slot of the
    # current second.
    due = _first(trigger, now.replace(microsecond=0) + timedelta(seconds=1), backwards=True)
    if due is None or due <= since:
        return Slots(None, 0, next_slot)
    return Slots(due, _count(trigger, since, due), next_slot)


def _count(trigger: CronTrigger, after: datetime, before: datetime) -> int:
    """Number of slots strictly between the two, counted up to `MAX_MISSED_COUNTED`."""
    count = 0
    for slot in _iterator(trigger, after, backwards=False):
        if slot.astimezone(UTC) >= before or count == MAX_MISSED_COUNTED:
            break
        count += 1
    return count


def _first(trigger: CronTrigger, start: datetime, *, backwards: bool) -> datetime | None:
    # Slots are whole minutes, so all starts of a minute have the same one.
    minute = start.astimezone(UTC).replace(second=0, microsecond=0)
    if backwards and minute != start:
        minute += timedelta(minutes=1)
    return _beside(trigger.schedule, trigger.time_zone, minute, backwards)


@lru_cache(maxsize=MAX_REMEMBERED_SLOTS)
def _beside(schedule: str, time_zone_name: str, minute: datetime, backwards: bool) -> datetime | None:
    """The slot next to a minute. Many jobs share a schedule, and each looks for its slots again and again."""
    first = next(iter(schedule_times(schedule, time_zone(time_zone_name), minute, backwards=backwards)), None)
    return None if first is None else first.astimezone(UTC)


def _iterator(trigger: CronTrigger, start: datetime, *, backwards: bool) -> CronSim:
    return schedule_times(trigger.schedule, time_zone(trigger.time_zone), start, backwards=backwards)
