"""Converts the schedule of a cron kind to a trigger.

The controllers of these kinds parse schedules with the same library, which accepts more than a cron
trigger, and differs from cron where both days are given.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from wattloop_operator.conversion.notes import Note

SCHEDULE = ("spec", "schedule")
ZONE_PREFIX = re.compile(r"^(?:CRON_TZ|TZ)=(\S+)\s+")
EVERY = re.compile(r"^@every\s+(.+)$")
# A duration of Go, such as 1h30m.
DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h)")
UNIT_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
DAY_OF_MONTH, DAY_OF_WEEK = 2, 4
STAR_WITH_STEP = re.compile(r"^\*/0*([2-9]|[1-9][0-9]+)$")


def trigger_of(schedule: str, time_zone: str | None) -> tuple[dict[str, Any], list[Note]]:
    """The trigger of a schedule, and what is different.

    Args:
        schedule: The schedule.
        time_zone: Its time zone; None if the source names none.

    Example:
        >>> trigger_of("TZ=Europe/Paris 0 3 ? * 1", None)
        ({'cron': {'schedule': '0 3 * * 1', 'timeZone': 'Europe/Paris'}}, [])
        >>> trigger_of("@every 1h30m", None)[0]
        {'interval': {'seconds': 5400}}
    """
    schedule = schedule.strip()
    prefix = ZONE_PREFIX.match(schedule)
    if prefix is not None:
        schedule, time_zone = schedule[prefix.end() :], prefix[1]
    every = EVERY.match(schedule)
    seconds = None if every is None else _seconds(every[1])
    if seconds is not None:
        text = "the interval counts from the creation of the job, not from the start of a controller"
        return {"interval": {"seconds": seconds}}, [Note(SCHEDULE, text)]
    # A question mark means any value, as a star.
    fields = ["*" if each == "?" else each for each in schedule.split()]
    notes = list(_differences(fields, time_zone))
    return {"cron": {"schedule": " ".join(fields), "timeZone": time_zone or "Etc/UTC"}}, notes


def _seconds(duration: str) -> int | None:
    """The seconds of a duration, at least 1; None if it is no duration."""
    parts = DURATION_PART.findall(duration.strip())
    if not parts or "".join(number + unit for number, unit in parts) != duration.strip():
        return None
    return max(1, math.floor(sum(float(number) * UNIT_SECONDS[unit] for number, unit in parts)))


def _differences(fields: list[str], time_zone: str | None) -> Iterator[Note]:
    if time_zone is None:
        yield Note(
            ("spec", "timeZone"),
            "not set, so the schedule followed the controller's own time zone, usually UTC; here it is Etc/UTC",
        )
    if len(fields) <= DAY_OF_WEEK:
        return
    days = fields[DAY_OF_MONTH], fields[DAY_OF_WEEK]
    if "*" not in days and any(STAR_WITH_STEP.match(each) for each in days):
        yield Note(
            SCHEDULE,
            f"with the days {days[0]} and {days[1]} the source runs on a day that matches either of them, and a cron "
            "trigger on a day that matches both; list the days of one field",
        )
