"""When a job is due."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.backends.model_backend import job
from wattloop_operator.api.cron import ScheduleError
from wattloop_operator.api.recurring_training_job import RecurringTrainingJobSpec
from wattloop_operator.reconcile.job.schedule import MAX_MISSED_COUNTED, Slots, find_slots

PARIS = ZoneInfo("Europe/Paris")
CREATED = datetime(2026, 1, 1, tzinfo=UTC)


def cron(schedule: str, time_zone: str = "Etc/UTC") -> RecurringTrainingJobSpec:
    return job(schedule=schedule, timeZone=time_zone).spec


def found(spec: RecurringTrainingJobSpec, now: datetime, handled: datetime | None = None) -> Slots:
    return find_slots(spec, created=CREATED, handled=handled, last_end=None, now=now)


@pytest.mark.parametrize(
    ("schedule", "day", "local_times"),
    [
        pytest.param("30 2 * * *", (2026, 3, 29), [(3, 0)], id="a local time that is skipped runs right after the gap"),
        pytest.param("30 2 * * *", (2026, 10, 25), [(2, 30)], id="a local time that comes twice runs once"),
        pytest.param("0 3 * * *", (2026, 3, 29), [(3, 0)], id="a local time after the gap runs once"),
        pytest.param("0 12 * * *", (2026, 7, 1), [(12, 0)], id="noon is noon in summer"),
        pytest.param("0 12 * * *", (2026, 12, 1), [(12, 0)], id="noon is noon in winter"),
    ],
)
def test_a_schedule_follows_daylight_saving(
    schedule: str, day: tuple[int, int, int], local_times: list[tuple[int, int]]
) -> None:
    spec = cron(schedule, "Europe/Paris")
    midnight = datetime(*day, tzinfo=PARIS).astimezone(UTC)
    moment, starts = midnight - timedelta(seconds=1), []
    while True:
        next_slot = found(spec, moment, handled=moment).next_slot
        assert next_slot is not None
        if next_slot >= midnight + timedelta(hours=24):
            break
        starts.append(next_slot.astimezone(PARIS))
        moment = next_slot
    assert [(start.hour, start.minute) for start in starts] == local_times


@given(
    schedule=st.sampled_from(
        ["* * * * *", "*/7 * * * *", "0 3 * * *", "30 2 * * 1-5", "0 0 1 * *", "15 2 29 2 *", "@weekly", "5 4 * * 0"]
    ),
    time_zone=st.sampled_from(["Etc/UTC", "Europe/Paris", "America/New_York", "Australia/Lord_Howe"]),
    start=st.datetimes(datetime(2026, 1, 2), datetime(2028, 1, 1)),  # noqa: DTZ001  made aware below
    seconds=st.integers(0, 3 * 86400),
)
def test_the_due_slot_is_the_last_one_that_forward_iteration_finds(
    schedule: str, time_zone: str, start: datetime, seconds: int
) -> None:
    spec = cron(schedule, time_zone)
    handled = start.replace(tzinfo=UTC, microsecond=0)
    now = handled + timedelta(seconds=seconds)
    passed, moment = [], handled
    for _ in range(MAX_MISSED_COUNTED + 2):
        next_slot = found(spec, moment, handled=moment).next_slot
        assert next_slot is not None
        assert next_slot > moment
        if next_slot > now:
            break
        passed.append(next_slot)
        moment = next_slot
    result = found(spec, now, handled)
    if len(passed) <= MAX_MISSED_COUNTED:
        assert result.due == (passed[-1] if passed else None)
        assert result.missed == max(len(passed) - 1, 0)
    else:
        assert result.missed == MAX_MISSED_COUNTED


def test_years_of_missed_starts_give_one_due_slot() -> None:
    now = datetime(2046, 1, 1, 0, 0, 30, tzinfo=UTC)
    result = found(cron("* * * * *"), now)
    assert result.due == datetime(2046, 1, 1, tzinfo=UTC)
    assert result.missed == MAX_MISSED_COUNTED
    assert result.next_slot == datetime(2046, 1, 1, 0, 1, tzinfo=UTC)


def test_a_clock_that_jumps_back_makes_no_slot_due_again() -> None:
    handled = datetime(2026, 5, 1, 12, tzinfo=UTC)
    result = found(cron("0 * * * *"), handled - timedelta(hours=5), handled)
    assert result.due is None
    assert result.next_slot == handled + timedelta(hours=1)


def test_a_continuous_job_starts_when_the_last_run_ends() -> None:
    spec = job(continuous=True).spec
    end = CREATED + timedelta(seconds=100)
    assert found(spec, CREATED).due == CREATED
    before = find_slots(spec, created=CREATED, handled=CREATED, last_end=end, now=end - timedelta(seconds=1))
    assert before == Slots(None, 0, end)
    assert find_slots(spec, created=CREATED, handled=CREATED, last_end=end, now=end).due == end


def test_a_job_without_a_schedule_is_never_due() -> None:
    assert found(job(schedule=None).spec, CREATED) == Slots(None, 0, None)


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (cron("61 * * * *"), "schedule: found '61 \\* \\* \\* \\*'"),
        (cron("0 0 31 2 *"), "schedule: found"),
        (cron("0 0 * * *", "Europe/Atlantis"), "timeZone: found 'Europe/Atlantis'"),
    ],
)
def test_an_invalid_schedule_names_what_was_found(spec: RecurringTrainingJobSpec, text: str) -> None:
    with pytest.raises(ScheduleError, match=text):
        found(spec, CREATED)
