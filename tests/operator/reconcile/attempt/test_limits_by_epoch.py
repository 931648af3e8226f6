"""Power limits measured over whole epochs, whose ends are seen late."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattloop.power.windows import Totals
from wattloop_operator.reconcile.attempt.limits_by_epoch import EpochEnd, LimitsByEpoch

LIMITS = (400, 300, 200)
START_SECONDS = 7.0


def power_and_epoch_seconds(watts: int, epoch_seconds: float) -> tuple[float, float]:
    """Watts that are drawn, and seconds of an epoch, at a limit."""
    return 0.9 * watts, epoch_seconds * (400 / watts) ** 0.5


@given(
    epoch_seconds=st.floats(0.5, 500.0),
    lateness=st.lists(st.floats(0.0, 0.4), min_size=40, max_size=40),
    takes_seconds=st.floats(0.0, 0.1),
)
def test_each_measured_limit_is_right_within_the_time_that_its_ends_were_seen_late(
    epoch_seconds: float, lateness: list[float], takes_seconds: float
) -> None:
    limits = LimitsByEpoch(LIMITS)
    seconds, joules = START_SECONDS, 0.0
    for epoch, late in enumerate(lateness):
        if limits.finished:
            break
        watts, duration = power_and_epoch_seconds(limits.limit_watts, epoch_seconds)
        if epoch:
            seconds, joules = seconds + duration, joules + watts * duration
        before = limits.limit_watts
        limits.add(EpochEnd(float(epoch), Totals(joules + late * watts, seconds + late), 0.4))
        if limits.limit_watts != before:
            # The training goes on under the old limit until the new one is held.
            faster = power_and_epoch_seconds(before, epoch_seconds)[1] / duration
            seconds += takes_seconds * (1 - faster)
            limits.limit_set(takes_seconds)
    for point in limits.measurements:
        watts, duration = power_and_epoch_seconds(round(point.power_limit_watts), epoch_seconds)
        assert abs(point.time_seconds / point.epochs / duration - 1) < 0.025
        assert abs(point.energy_joules / point.epochs / (watts * duration) - 1) < 0.06
        assert point.time_seconds >= 5.0
    # 40 epochs of 30 s and longer suffice.
    assert limits.finished or epoch_seconds < 30


def ends(limits: LimitsByEpoch, *ends: tuple[float, float, float]) -> list[int]:
    """The limit to hold after each end: epoch, seconds, how late. 100 W are drawn."""
    found = []
    for epoch, seconds, late in ends:
        limits.add(EpochEnd(epoch, Totals(100 * seconds, seconds), late))
        found.append(limits.limit_watts)
    return found


@pytest.mark.parametrize(
    ("seen", "held", "measured"),
    [
        (((1, 500, 0.2), (2, 600, 0.2), (3, 700, 0.2)), [400, 300, 200], [(1, 100), (1, 100)]),
        (((1, 4, 0.2), (2, 14, 0.2), (3, 23, 0.2), (4, 24, 0.2)), [400, 400, 400, 300], [(3, 20)]),
        (((1, 100, 30), (2, 200, 0.2), (3, 300, 0.2)), [400, 400, 300], [(1, 100)]),
        (((5, 100, 0.2), (1, 250, 0.2), (2, 350, 0.2)), [400, 400, 300], [(1, 100)]),
    ],
    ids=["the first epoch has the start", "short epochs", "an end that was seen very late", "a training begins again"],
)
def test_a_window_begins_and_ends_with_epochs_whose_ends_are_sharp(
    seen: tuple[tuple[float, float, float], ...], held: list[int], measured: list[tuple[float, float]]
) -> None:
    limits = LimitsByEpoch(LIMITS)
    assert ends(limits, *seen) == held
    assert [(each.epochs, each.time_seconds) for each in limits.measurements] == measured


def test_a_limit_that_was_not_held_for_a_moment_is_measured_again() -> None:
    limits = LimitsByEpoch(LIMITS)
    ends(limits, (1, 100, 0.2))
    limits.restart_window()
    assert ends(limits, (2, 200, 0.2), (3, 300, 0.2)) == [400, 300]
