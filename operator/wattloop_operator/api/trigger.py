"""The trigger of a job: exactly one of cron, interval, continuous, manual and once; and its times."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError
from pydantic import Field

from wattloop.wire.message_fields import shown
from wattloop_operator.api.field_types import SECONDS_OF_YEAR
from wattloop_operator.api.model import ApiModel, Rule, exactly_one_of

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
        raise ScheduleError(
            "schedule",
            f"{shown(schedule)} ({reason})",
            CRON_FORM,
        ) from None


def check_schedule(schedule: str, zone_name: str) -> None:
    """Check that a schedule is valid and occurs.

    Raises:
        ScheduleError: The schedule or the time zone is invalid.

    Example:
        >>> check_schedule("0 3 30 2 *", "Europe/Paris")
        Traceback (most recent call last):
        ...
        wattloop_operator.api.trigger.ScheduleError: schedule: found '0 3 30 2 *' (bad day-of-month), expected five \
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


class CronTrigger(ApiModel):
    """A run at each time of a cron schedule."""

    rules = (
        Rule(
            "!self.schedule.contains('TZ=')",
            "a schedule without TZ= or CRON_TZ=; set the time zone in timeZone",
            ".schedule",
        ),
        Rule(
            f"self.schedule.contains('TZ=') || self.schedule.matches(r'{CRON_PATTERN}')",
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

    schedule: str = Field(
        description=f"{SCHEDULE_FORM.capitalize()}. TZ= is not allowed; use timeZone.",
        min_length=1,
        max_length=100,
    )
    time_zone: str = Field(
        default="Etc/UTC",
        description="Time zone of the schedule, a name in the IANA database such as Europe/Paris. A local time that "
        "daylight saving time skips runs once, right after the gap; a local time that it repeats runs once.",
        min_length=1,
        max_length=64,
        pattern=r"^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*$",
    )


class IntervalTrigger(ApiModel):
    """A run at a fixed interval, counted from the creation of the job."""

    seconds: int = Field(
        description=f"Seconds between starts, 1 to {SECONDS_OF_YEAR} (a year).", ge=1, le=SECONDS_OF_YEAR
    )


class ContinuousTrigger(ApiModel):
    """A run as soon as the previous one has ended."""

    min_gap_seconds: int = Field(
        default=0,
        description="Minimum number of seconds between the end of a run and the start of the next one.",
        ge=0,
        le=SECONDS_OF_YEAR,
    )


class ManualTrigger(ApiModel):
    """Runs only on request; see spec.runRequest."""


class OnceTrigger(ApiModel):
    """One run, at the creation of the job."""


class Trigger(ApiModel):
    """When runs start."""

    rules = (exactly_one_of("cron", "interval", "continuous", "manual", "once", example="trigger: {manual: {}}"),)

    cron: CronTrigger | None = Field(
        default=None, description="Runs on a schedule, for nightly retraining or weekly fine-tuning."
    )
    interval: IntervalTrigger | None = Field(
        default=None, description="Runs at a fixed interval, independent of the calendar."
    )
    continuous: ContinuousTrigger | None = Field(
        default=None, description="Runs one after another. Each starts when the previous one has ended."
    )
    manual: ManualTrigger | None = Field(
        default=None,
        description="Runs only when spec.runRequest changes, for pipelines that start runs themselves.",
    )
    once: OnceTrigger | None = Field(
        default=None, description="Runs once, at creation. A change of spec.runRequest runs it again."
    )
