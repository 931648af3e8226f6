"""The schedule of a job, its time zone, and the times of both."""

from datetime import datetime
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError
from pydantic import Field

from wattloop.wire.message_fields import shown
from wattloop_operator.api.model import Rule

NICKNAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
CRON_FORM = "five cron fields (minute, hour, day of month, month, day of week) such as '0 3 * * 1-5'"
TIME_ZONE_FORM = "a name of the IANA time zone database such as Europe/Paris"


class ScheduleError(ValueError):
    """The schedule or its time zone is invalid.

    Attributes:
        field: The invalid field, `schedule` or `timeZone`.
        found: Text of its value.
        expected: Description of a valid value.
    """

    def __init__(self, field: str, found: str, expected: str) -> None:
        super().__init__(f"{field}: found {found}, expected {expected}")
        self.field = field
        self.found = found
        self.expected = expected


def time_zone(name: str) -> ZoneInfo:
    """Return the time zone with this name.

    Raises:
        ScheduleError: There is no such time zone.
    """
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ScheduleError("timeZone", shown(name), TIME_ZONE_FORM) from None


def schedule_times(schedule: str, zone: ZoneInfo, start: datetime, *, backwards: bool = False) -> CronSim:
    """Iterate over the times of a schedule after (or before) a start time, which is excluded.

    Raises:
        ScheduleError: The schedule is invalid or never occurs, such as on the 30th of February.

    Example:
        >>> next(schedule_times("@daily", ZoneInfo("UTC"), datetime(2026, 3, 1, 12, tzinfo=ZoneInfo("UTC")))).day
        2
    """
    try:
        return CronSim(NICKNAMES.get(schedule, schedule), start.astimezone(zone), reverse=backwards)
    except (CronSimError, ValueError) as error:
        # Python itself raises ValueError for a digit outside ASCII and for thousands of digits.
        reason = str(error).lower() if isinstance(error, CronSimError) else "a number that cannot be parsed"
        raise ScheduleError("schedule", f"{shown(schedule)} ({reason})", CRON_FORM) from None


def check_schedule(schedule: str, zone_name: str) -> None:
    """Check that a schedule is valid and occurs.

    Raises:
        ScheduleError: The schedule or the time zone is invalid.

    Example:
        >>> check_schedule("0 3 30 2 *", "Europe/Paris")
        Traceback (most recent call last):
        ...
        wattloop_operator.api.cron.ScheduleError: schedule: found '0 3 30 2 *' (bad day-of-month), expected five \
cron fields (minute, hour, day of month, month, day of week) such as '0 3 * * 1-5'
    """
    zone = time_zone(zone_name)
    schedule_times(schedule, zone, datetime(2026, 1, 1, tzinfo=zone))


# As far as a regular expression can check; `check_schedule` checks the rest (30 February, 50-10).
MINUTE = "[0-5]?[0-9]"
HOUR = "([01]?[0-9]|2[0-3])"
DAY = "(0?[1-9]|[12][0-9]|3[01])"
MONTH = "(0?[1-9]|1[0-2]|JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC)"
WEEKDAY = "([0-7]|SUN|MON|TUE|WED|THU|FRI|SAT)"


def _cron_field(value: str, special: str = "") -> str:
    """The pattern of a cron field: a list of `*`, values, ranges, steps and terms that only this field allows."""
    term = rf"((\*|{value}(-{value})?)(/0*[1-9][0-9]*)?{special})"
    return f"{term}(,{term})*"


CRON_FIELDS = (
    _cron_field(MINUTE),
    _cron_field(HOUR),
    _cron_field(DAY, "|LW?"),
    _cron_field(MONTH),
    _cron_field(WEEKDAY, f"|{WEEKDAY}(#[1-5]|L)"),
)
CRON_PATTERN = f"^(({'|'.join(NICKNAMES)})|(?i:{' +'.join(CRON_FIELDS)}))$"
SCHEDULE_FORM = f"{CRON_FORM}, or one of @hourly, @daily, @weekly, @monthly, @yearly"
SOME_TIME = "2026-01-01T00:00:00Z"


SCHEDULE_RULES = (
    Rule("!has(self.schedule) || !self.continuous", "a schedule or continuous: true, not both", ".continuous"),
    Rule(
        "!has(self.schedule) || !self.schedule.contains('TZ=')",
        "a schedule without TZ= or CRON_TZ=; set the time zone in timeZone",
        ".schedule",
    ),
    Rule(
        f"!has(self.schedule) || self.schedule.contains('TZ=') || self.schedule.matches(r'{CRON_PATTERN}')",
        SCHEDULE_FORM,
        ".schedule",
    ),
    Rule(
        # The API server knows the time zones; an unknown one is an error of `getFullYear`.
        f"self.timeZone != 'Local' && timestamp('{SOME_TIME}').getFullYear(self.timeZone) > 0",
        TIME_ZONE_FORM,
        ".timeZone",
    ),
)
Schedule = Annotated[str, Field(min_length=1, max_length=100)]
TimeZone = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*$")]
