"""When a job is due: the slots of its schedule, found at any time after the last check.

A slot is a moment at which a recurrence starts. Kubernetes' CronJob counts missed slots one by one
and gives up beyond a hundred (kubernetes#42649, #110919). Here the latest due slot is found
directly, backwards from now, so a job that was suspended for years resumes at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from wattloop_operator.api.cron import schedule_times, time_zone
from wattloop_operator.api.recurring_training_job import RecurringTrainingJobSpec

MAX_MISSED_COUNTED = 100
# 0.3 MB.
MAX_REMEMBERED_SLOTS = 1024


@dataclass(frozen=True)
class Slots:
    """The due and the next slot of a job.

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
    spec: RecurringTrainingJobSpec,
    *,
    created: datetime,
    handled: datetime | None,
    last_end: datetime | None,
    now: datetime,
) -> Slots:
    """Find the slot that is due.

    Args:
        spec: The job's spec.
        created: When the job was created; no slot is earlier.
        handled: The latest slot that was started or skipped; None if there is none. It is not due
            again if the clock jumps back.
        last_end: When the last recurrence ended, for a continuous job.
        now: The time.

    Raises:
        ScheduleError: The schedule or its time zone is invalid.
    """
    # The job exists, so its creation has passed, even if this clock is behind the API server's.
    now = max(now, created)
    if spec.schedule is not None:
        return _cron_slots(spec.schedule, spec.time_zone, since=max(created, handled or created), now=now)
    if not spec.continuous:
        return Slots(None, 0, None)
    slot = created if handled is None else max(handled + timedelta(seconds=1), last_end or handled)
    slot = slot.replace(microsecond=0)
    return Slots(slot, 0, None) if slot <= now else Slots(None, 0, slot)


def _cron_slots(schedule: str, time_zone_name: str, *, since: datetime, now: datetime) -> Slots:
    next_slot = _first(schedule, time_zone_name, max(since, now), backwards=False)
    # Backwards iteration excludes its start. Starting one second later includes a slot of the
    # current second.
    due = _first(schedule, time_zone_name, now.replace(microsecond=0) + timedelta(seconds=1), backwards=True)
    if due is None or due <= since:
        return Slots(None, 0, next_slot)
    missed = 0
    for slot in schedule_times(schedule, time_zone(time_zone_name), since):
        if slot.astimezone(UTC) >= due or missed == MAX_MISSED_COUNTED:
            break
        missed += 1
    return Slots(due, missed, next_slot)


def _first(schedule: str, time_zone_name: str, start: datetime, *, backwards: bool) -> datetime | None:
    # Slots are whole minutes, so all starts of a minute have the same one.
    minute = start.astimezone(UTC).replace(second=0, microsecond=0)
    if backwards and minute != start:
        minute += timedelta(minutes=1)
    return _beside(schedule, time_zone_name, minute, backwards)


@lru_cache(maxsize=MAX_REMEMBERED_SLOTS)
def _beside(schedule: str, time_zone_name: str, minute: datetime, backwards: bool) -> datetime | None:
    """The slot next to a minute. Many jobs share a schedule, and each looks for its slots again and again."""
    first = next(iter(schedule_times(schedule, time_zone(time_zone_name), minute, backwards=backwards)), None)
    return None if first is None else first.astimezone(UTC)
