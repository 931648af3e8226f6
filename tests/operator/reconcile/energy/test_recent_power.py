"""The mean power of a GPU between two reports of its process."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from support.backends.model_backend import ModelBackend, job, report
from wattloop.wire.training_messages import GpuEnergy
from wattloop_operator.reconcile.attempt.report_effect import progress_after
from wattloop_operator.reconcile.energy.recent_power import with_recent_power

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def recent(*readings: tuple[int, float, int, float]) -> list[tuple[float, float, int] | None]:
    """Watts, seconds and index of the later report after each report of (start mJ, start s, mJ, s)."""
    backend = ModelBackend(job())
    attempt = backend.recurrences[backend.start_attempt()]
    found: list[tuple[float, float, int] | None] = []
    for index, (start_millijoules, start_seconds, millijoules, seconds) in enumerate(readings):
        gpu = GpuEnergy("GPU-0", start_millijoules, millijoules, start_seconds, seconds)
        sent = replace(report(sequence=index + 1), gpus=(gpu,))
        at = NOW + timedelta(seconds=index)
        after = with_recent_power(attempt.progress, progress_after(attempt, sent), sent.gpus, at)
        attempt = attempt.model_copy(update={"progress": after})
        power = after.gpus[0].recent
        found.append(
            None
            if power is None
            else (float(power.power_watts), float(power.seconds), (power.time - NOW) // timedelta(seconds=1))
        )
    return found


def test_the_power_is_that_since_the_report_before_and_of_the_first_report_since_the_start() -> None:
    readings = (5_000, 10.0, 5_000, 10.0), (5_000, 10.0, 1_005_000, 15.0), (5_000, 10.0, 1_205_000, 17.0)
    assert recent(*readings) == [None, (200.0, 5.0, 1), (100.0, 2.0, 2)]


def test_reports_that_come_twice_too_soon_or_without_a_new_energy_leave_the_power_and_its_time() -> None:
    first = (0, 0.0, 500_000, 2.0)
    for later in (first, (0, 0.0, 520_000, 2.9), (0, 0.0, 500_000, 9.0), (0, 0.0, 400_000, 1.0)):
        assert recent(first, later) == [(250.0, 2.0, 0)] * 2, later


def test_another_process_whose_counter_may_begin_again_has_the_power_since_its_own_start() -> None:
    before = (0, 0.0, 500_000, 2.0)
    assert recent(before, (0, 1.0, 900_000, 4.0)) == [(250.0, 2.0, 0), (300.0, 3.0, 1)]
    assert recent(before, (0, 0.0, 600_000, 1.5))[1] == (250.0, 2.0, 0)
    # Its second report is compared with its first one; a counter that began again is never compared with the old one.
    again = recent(before, (0, 1.0, 400_000, 1.5), (0, 1.0, 900_000, 4.0), (0, 1.0, 1_100_000, 6.0))
    assert again[2:] == [(300.0, 3.0, 2), (100.0, 2.0, 3)]
    behind = recent(before, (0, 0.5, 600_000, 1.5), (0, 0.5, 700_000, 3.0), (0, 0.5, 800_000, 5.0))
    assert behind[1:] == [(250.0, 2.0, 0), (280.0, 2.5, 2), (50.0, 2.0, 3)]


def test_where_reports_come_within_a_second_the_power_is_that_since_the_start_and_goes_on() -> None:
    found = recent(*((0, 0.0, 100_000 * number, number / 2) for number in range(1, 14)))
    assert found[:3] == [None, (200.0, 1.0, 1), (200.0, 1.0, 1)]
    assert found[11] == (200.0, 6.0, 11)
