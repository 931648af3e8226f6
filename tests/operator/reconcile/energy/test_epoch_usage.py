"""The cost of an epoch without the start of the training, and the start itself."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.backends.model_backend import ModelBackend, job, report
from wattloop.wire.training_messages import LimitMeasurement
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.reconcile.attempt.report_effect import progress_after
from wattloop_operator.reconcile.energy.attempt_usage import usage_of
from wattloop_operator.reconcile.energy.epoch_usage import EpochUsage, epoch_usage
from wattloop_planner.observations import StartUp

Backend = Callable[..., ModelBackend]
NO_LIMIT = {"power": {"mode": "None"}}


@pytest.fixture(scope="module")
def attempt() -> TrainingAttempt:
    """A running attempt that measures no power limits."""
    backend = ModelBackend(job(**NO_LIMIT))
    return backend.recurrences[backend.start_attempt()]


def after(attempt: TrainingAttempt, *reports: tuple[float, float, float]) -> TrainingAttempt:
    """The attempt after reports of (epochs, joules, seconds)."""
    for sequence, (epoch, joules, seconds) in enumerate(reports, 1):
        progress = progress_after(attempt, report(sequence=sequence, epoch=epoch, joules=joules, seconds=seconds))
        attempt = attempt.model_copy(update={"progress": progress})
    return attempt


def usage(attempt: TrainingAttempt) -> EpochUsage:
    progress = attempt.progress
    return epoch_usage(attempt.spec, progress, usage_of(progress), progress.epoch)


@given(
    start_joules=st.floats(0, 1e6),
    start_seconds=st.floats(0, 1e4),
    epoch_joules=st.floats(1, 1e6),
    epoch_seconds=st.floats(2, 1e4),
    seen=st.sets(st.integers(1, 40), min_size=1),
)
def test_the_start_is_measured_exactly_whichever_reports_arrive(
    attempt: TrainingAttempt,
    start_joules: float,
    start_seconds: float,
    epoch_joules: float,
    epoch_seconds: float,
    seen: set[int],
) -> None:
    reports = [
        (float(epoch), start_joules + epoch * epoch_joules, start_seconds + epoch * epoch_seconds)
        for epoch in sorted({1, *(epoch + 1 for epoch in seen)})
    ]
    found = usage(after(attempt, *reports))
    # Counters have millijoules and milliseconds.
    assert found.energy_joules == pytest.approx(epoch_joules, rel=1e-6, abs=0.01)
    assert found.time_seconds == pytest.approx(epoch_seconds, rel=1e-6, abs=0.01)
    assert found.start_up is not None
    assert found.start_up.energy_joules == pytest.approx(start_joules, rel=1e-6, abs=0.5)
    assert found.start_up.time_seconds == pytest.approx(start_seconds, rel=1e-6, abs=0.5)


def test_after_one_epoch_the_start_is_not_known(attempt: TrainingAttempt) -> None:
    assert usage(after(attempt, (0, 900.0, 9.0), (1, 1000.0, 10.0))) == EpochUsage()


def test_the_mean_of_several_epochs_counts_if_only_one_report_arrived(attempt: TrainingAttempt) -> None:
    assert usage(after(attempt, (10, 1000.0, 100.0))) == EpochUsage(100.0, 10.0)


def test_too_short_a_time_gives_the_start_and_no_precise_epoch(attempt: TrainingAttempt) -> None:
    found = usage(after(attempt, (1, 1000.0, 10.0), (4, 1300.0, 11.5)))
    assert found == EpochUsage(None, None, StartUp(900.0, 9.5))


def test_the_start_is_never_negative(attempt: TrainingAttempt) -> None:
    # Later epochs take longer, for example because another process slows the machine.
    assert usage(after(attempt, (1, 100.0, 10.0), (3, 700.0, 70.0))) == EpochUsage(700 / 3, 70 / 3, StartUp(0.0, 0.0))


def profiling(attempt: TrainingAttempt) -> TrainingAttempt:
    return attempt.model_copy(update={"spec": attempt.spec.model_copy(update={"profile_power_limits": True})})


def test_the_start_is_known_while_limits_are_measured(attempt: TrainingAttempt) -> None:
    # The first epoch has 900 J and 9 s of start. The limit may change any time, so the epoch is not known.
    reported = after(profiling(attempt), (1, 1000.0, 10.0), (2, 1100.0, 20.0))
    assert usage(reported) == EpochUsage(start_up=StartUp(900.0, 0.0))


def test_a_training_without_steps_measures_no_limit_and_shows_its_epochs(attempt: TrainingAttempt) -> None:
    reported = after(profiling(attempt), (1, 1900.0, 29.0), (8, 2600.0, 99.0))
    assert usage(reported) == EpochUsage(100.0, 10.0, StartUp(1800.0, 19.0))


@given(
    start_joules=st.floats(0, 1e6),
    start_seconds=st.floats(0, 1e4),
    epochs=st.lists(st.floats(0.05, 0.3), min_size=1, max_size=3),
    joules=st.lists(st.floats(50, 500), min_size=3, max_size=3),
)
def test_measured_power_limits_give_the_epoch_and_the_start(
    attempt: TrainingAttempt, start_joules: float, start_seconds: float, epochs: list[float], joules: list[float]
) -> None:
    measured = tuple(
        LimitMeasurement(300.0 - 50 * index, part * joules[index], part * 9.0, part)
        for index, part in enumerate(epochs)
    )
    held = len(epochs) - 1
    first = sum(each.energy_joules for each in measured) + (1 - sum(epochs)) * joules[held]
    attempt = profiling(attempt)
    for sequence, epoch in enumerate((1, 2, 9), 1):
        received = report(
            sequence=sequence,
            epoch=epoch,
            joules=start_joules + first + (epoch - 1) * joules[held],
            seconds=start_seconds + 9.0 * epoch,
            profile=measured,
        )
        progress = progress_after(attempt, received).model_copy(update={"power_limit_watts": 300 - 50 * held})
        attempt = attempt.model_copy(update={"progress": progress})
        found = usage(attempt)
        assert (found.energy_joules, found.time_seconds) == pytest.approx((joules[held], 9.0), rel=1e-3)
        assert found.start_up is not None
        assert found.start_up.energy_joules == pytest.approx(start_joules, rel=1e-3, abs=1.0)
        assert found.start_up.time_seconds == pytest.approx(start_seconds, rel=1e-3, abs=0.1)
