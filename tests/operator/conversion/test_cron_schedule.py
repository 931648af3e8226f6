"""A schedule of a CronJob becomes a trigger that starts at the same times, or its difference is said."""

from __future__ import annotations

from typing import Any

import pytest

from wattloop_operator.conversion.cron_schedule import trigger_of


@pytest.mark.parametrize(
    ("schedule", "trigger"),
    [
        ("*/5 * * * *", {"cron": {"schedule": "*/5 * * * *", "timeZone": "Etc/UTC"}}),
        ("  0  3 ? * MON ", {"cron": {"schedule": "0 3 * * MON", "timeZone": "Etc/UTC"}}),
        ("@weekly", {"cron": {"schedule": "@weekly", "timeZone": "Etc/UTC"}}),
        ("CRON_TZ=Asia/Tokyo @daily", {"cron": {"schedule": "@daily", "timeZone": "Asia/Tokyo"}}),
        ("@every 90m", {"interval": {"seconds": 5400}}),
        ("@every 1h0.5s", {"interval": {"seconds": 3600}}),
        ("@every 10ms", {"interval": {"seconds": 1}}),
        ("@every day", {"cron": {"schedule": "@every day", "timeZone": "Etc/UTC"}}),
    ],
)
def test_each_form_of_a_schedule_becomes_a_trigger(schedule: str, trigger: dict[str, Any]) -> None:
    assert trigger_of(schedule, "Etc/UTC")[0] == trigger


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
    _, notes = trigger_of(schedule, "Etc/UTC")
    assert [note.path for note in notes] == ([("spec", "schedule")] if differs else [])
