"""Cron schedules that name numbers which no clock has, or which Python does not read."""

from __future__ import annotations

import pytest

from wattloop_operator.api.cron import ScheduleError, check_schedule


@pytest.mark.parametrize(
    "schedule",
    ["9" * 5000 + " * * * *", "*/" + "9" * 5000 + " * * * *", "\u00b2 * * * *", "1-\u00b2 * * * *", "* * * * 1#\u00b2"],
    ids=["digits", "step", "superscript", "range", "weekday"],
)
def test_a_number_that_python_does_not_read_is_no_schedule(schedule: str) -> None:
    with pytest.raises(ScheduleError, match="five cron fields") as refusal:
        check_schedule(schedule, "UTC")
    assert refusal.value.field == "schedule"
    assert len(refusal.value.found) < 200


def test_a_long_name_of_a_time_zone_is_shown_short() -> None:
    with pytest.raises(ScheduleError, match="IANA") as refusal:
        check_schedule("0 3 * * *", "x" * 5000)
    assert len(refusal.value.found) < 100
