"""A schedule of a CronJob becomes one that starts at the same times, or its difference is said."""

import pytest

from wattloop_operator.conversion.cron_kinds import schedule_of


@pytest.mark.parametrize(
    ("schedule", "expected", "time_zone"),
    [
        ("*/5 * * * *", "*/5 * * * *", "Etc/UTC"),
        ("  0  3 ? * MON ", "0 3 * * MON", "Etc/UTC"),
        ("@weekly", "@weekly", "Etc/UTC"),
        ("CRON_TZ=Asia/Tokyo @daily", "@daily", "Asia/Tokyo"),
        ("@every 90m", "0 */2 * * *", "Etc/UTC"),
        ("@every 1h0.5s", "0 * * * *", "Etc/UTC"),
        ("@every 10ms", "* * * * *", "Etc/UTC"),
        ("@every 9000h", "@yearly", "Etc/UTC"),
        ("@every day", "@every day", "Etc/UTC"),
    ],
)
def test_each_form_of_a_schedule_is_carried_over(schedule: str, expected: str, time_zone: str) -> None:
    assert schedule_of(schedule, "Etc/UTC")[0] == {"schedule": expected, "timeZone": time_zone}


@pytest.mark.parametrize(
    ("schedule", "differs"),
    [
        ("0 0 */2 * 1", True),
        ("0 0 1 * */3", True),
        ("0 0 */1 * 1", False),
        ("0 0 1,15 * 1", False),
        ("0 0 */2 * *", False),
        ("0 0 ? * */2", False),
    ],
)
def test_days_that_the_controllers_match_differently_are_said(schedule: str, differs: bool) -> None:
    _, notes = schedule_of(schedule, "Etc/UTC")
    assert [note.path for note in notes] == ([("spec", "schedule")] if differs else [])
