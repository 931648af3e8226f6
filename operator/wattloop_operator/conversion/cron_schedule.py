"""Converts the schedule of a cron kind to that of a RecurringTrainingJob.

The controllers of these kinds parse schedules with the same library, which accepts more, and differs from cron where
both days are given.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from wattloop_operator.conversion.notes import Note

SCHEDULE = ("spec", "schedule")
ZONE_PREFIX = re.compile(r"^(?:CRON_TZ|TZ)=(\S+)\s+")
EVERY = re.compile(r"^@every\s+(.+)$")
# A duration of Go, such as 1h30m.
DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h)")
UNIT_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
DAY_OF_MONTH, DAY_OF_WEEK = 2, 4
# The periods that a cron schedule has throughout, and their schedules, in ascending order.
CRON_OF_SECONDS = {
    60: "* * * * *",
    **{60 * each: f"*/{each} * * * *" for each in (2, 3, 4, 5, 6, 10, 12, 15, 20, 30)},
    3600: "0 * * * *",
    **{3600 * each: f"0 */{each} * * *" for each in (2, 3, 4, 6, 8, 12)},
    86_400: "0 0 * * *",
    7 * 86_400: "0 0 * * 0",
    31 * 86_400: "0 0 1 * *",
}
YEAR_SECONDS = 366 * 86_400
STAR_WITH_STEP = re.compile(r"^\*/0*([2-9]|[1-9][0-9]+)$")


def schedule_of(schedule: str, time_zone: str | None) -> tuple[dict[str, str], list[Note]]:
    """The fields of a spec with a schedule, and what is different.

    Args:
        schedule: The schedule.
        time_zone: Its time zone; None if the source names none.

    Example:
        >>> schedule_of("TZ=Europe/Paris 0 3 ? * 1", None)
        ({'schedule': '0 3 * * 1', 'timeZone': 'Europe/Paris'}, [])
        >>> schedule_of("@every 1h30m", None)[0]
        {'schedule': '0 */2 * * *', 'timeZone': 'Etc/UTC'}
    """
    schedule = schedule.strip()
    prefix = ZONE_PREFIX.match(schedule)
    if prefix is not None:
        schedule, time_zone = schedule[prefix.end() :], prefix[1]
    every = EVERY.match(schedule)
    seconds = None if every is None else _seconds(every[1])
    if seconds is not None:
        period, cron = next((each for each in CRON_OF_SECONDS.items() if each[0] >= seconds), (YEAR_SECONDS, "@yearly"))
        differs = f", because no cron schedule has {seconds} s" if period != seconds else ""
        text = f"is {cron} now, by the clock and not by the start of a controller{differs}"
        return {"schedule": cron, "timeZone": time_zone or "Etc/UTC"}, [Note(SCHEDULE, text)]
    # A question mark means any value, as a star.
    fields = ["*" if each == "?" else each for each in schedule.split()]
    notes = list(_differences(fields, time_zone))
    return {"schedule": " ".join(fields), "timeZone": time_zone or "Etc/UTC"}, notes


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
            f"with the days {days[0]} and {days[1]} the source runs on a day that matches either of them, and this "
            "schedule on a day that matches both; list the days of one field",
        )
