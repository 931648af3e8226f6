"""When a job runs: exactly one of cron, interval, continuous, manual, once."""

from __future__ import annotations

from pydantic import Field

from wattloop_operator.api.model import ApiModel, Rule

# As far as a regular expression can tell; wattloop_operator.api.cron tells the rest (30 February, 50-10).
MINUTE = "[0-5]?[0-9]"
HOUR = "([01]?[0-9]|2[0-3])"
DAY = "(0?[1-9]|[12][0-9]|3[01])"
MONTH = "(0?[1-9]|1[0-2]|JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC)"
WEEKDAY = "([0-7]|SUN|MON|TUE|WED|THU|FRI|SAT)"


def _cron_field(value: str, special: str = "") -> str:
    """The pattern of a cron field: `*`, values, ranges, steps, and what this field alone may hold, between commas."""
    term = rf"((\*|{value}(-{value})?)(/0*[1-9][0-9]*)?{special})"
    return f"{term}(,{term})*"


CRON_FIELDS = (
    _cron_field(MINUTE),
    _cron_field(HOUR),
    _cron_field(DAY, "|LW?"),
    _cron_field(MONTH),
    _cron_field(WEEKDAY, f"|{WEEKDAY}(#[1-5]|L)"),
)
CRON_PATTERN = f"^(@(yearly|annually|monthly|weekly|daily|midnight|hourly)|(?i:{' +'.join(CRON_FIELDS)}))$"


class CronTrigger(ApiModel):
    """A run at every time that a cron schedule names."""

    rules = (
        Rule(
            "!self.schedule.contains('TZ=')",
            "a schedule without TZ= or CRON_TZ=; name the time zone in timeZone",
            ".schedule",
        ),
        Rule(
            f"self.schedule.contains('TZ=') || self.schedule.matches(r'{CRON_PATTERN}')",
            "five cron fields (minute, hour, day of month, month, day of week) such as '0 3 * * 1-5', "
            "or one of @hourly, @daily, @weekly, @monthly, @yearly",
            ".schedule",
        ),
    )

    schedule: str = Field(
        description="Five cron fields: minute, hour, day of month, month, day of week, such as '0 3 * * 1-5'; or "
        "@hourly, @daily, @weekly, @monthly, @yearly. TZ= is refused: see timeZone.",
        min_length=1,
        max_length=100,
    )
    time_zone: str = Field(
        default="Etc/UTC",
        description="Time zone of the schedule, a name of the IANA database such as Europe/Paris. A local time that "
        "daylight saving skips runs once right after the gap; one that it repeats runs once.",
        min_length=1,
        max_length=64,
        pattern=r"^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*$",
    )


class IntervalTrigger(ApiModel):
    """A run every so many seconds, counted from the creation of the job."""

    seconds: int = Field(description="Seconds from one start to the next, 1 to 31536000 (a year).", ge=1, le=31_536_000)


class ContinuousTrigger(ApiModel):
    """A run as soon as the one before has ended."""

    min_gap_seconds: int = Field(
        default=0,
        description="Seconds to wait after the end of a run before the next one starts.",
        ge=0,
        le=31_536_000,
    )


class ManualTrigger(ApiModel):
    """Runs only on request: see spec.runRequest."""


class OnceTrigger(ApiModel):
    """One run, at the creation of the job."""


class Trigger(ApiModel):
    """When a job runs."""

    rules = (
        Rule(
            "[has(self.cron), has(self.interval), has(self.continuous), has(self.manual), has(self.once)]"
            ".filter(given, given).size() == 1",
            "exactly one of cron, interval, continuous, manual, once, such as trigger: {manual: {}}",
        ),
    )

    cron: CronTrigger | None = Field(
        default=None, description="Runs by the calendar: nightly retraining, weekly fine-tuning."
    )
    interval: IntervalTrigger | None = Field(
        default=None, description="Runs every so many seconds, whatever the calendar says."
    )
    continuous: ContinuousTrigger | None = Field(
        default=None, description="Runs one after another: each starts when the one before has ended."
    )
    manual: ManualTrigger | None = Field(
        default=None,
        description="Runs only when spec.runRequest gets a new value; for pipelines that decide themselves.",
    )
    once: OnceTrigger | None = Field(
        default=None, description="Runs one time, at creation; spec.runRequest runs it again."
    )
