"""The cost of an epoch without the start of the training, and the start itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.backends.model_backend import ModelBackend, job, report
from wattloop.messages import LimitMeasurement
from wattloop_operator.api.attempt import Progress
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.reconcile.attempt.progress import progress_after
from wattloop_operator.reconcile.energy.epoch_usage import EpochUsage, epoch_usage
from wattloop_operator.reconcile.energy.usage import usage_of
from wattloop_planner.observations import StartUp

Backend = Callable[..., ModelBackend]
NO_LIMIT = {"power": {"limit": {"mode": "None"}}}


@pytest.fixture(scope="module")
def attempt() -> TrainingRecurrence:
    """A running attempt that measures no power limits."""
    backend = ModelBackend(job(**NO_LIMIT))
    return backend.recurrences[backend.start_attempt()]


def after(attempt: TrainingRecurrence, *reports: tuple[float, float, float]) -> TrainingRecurrence:
    """The attempt after reports of (epochs, joules, seconds)."""
    for sequence, (epoch, joules, seconds) in enumerate(reports, 1):
        progress = progress_after(attempt, report(sequence=sequence, epoch=epoch, joules=joules, seconds=seconds))
        attempt = attempt.model_copy(update={"status": attempt.status.model_copy(update={"progress": progress})})
    return attempt


def usage(attempt: TrainingRecurrence) -> EpochUsage:
    progress = attempt.status.progress or Progress()
    return epoch_usage(attempt.spec, progress, usage_of(progress), progress.epoch)


@given(
    start_joules=st.floats(0, 1e6),
    start_seconds=st.floats(0, 1e4),
    epoch_joules=st.floats(1, 1e6),
    epoch_seconds=st.floats(2, 1e4),
    seen=st.sets(st.integers(1, 40), min_size=1),
)
def test_the_start_is_measured_exactly_whichever_reports_arrive(
    attempt: TrainingRecurrence,
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


def test_after_one_epoch_the_start_is_not_known(attempt: TrainingRecurrence) -> None:
    assert usage(after(attempt, (0, 900.0, 9.0), (1, 1000.0, 10.0))) == EpochUsage()


def test_the_mean_of_several_epochs_counts_if_only_one_report_arrived(attempt: TrainingRecurrence) -> None:
    assert usage(after(attempt, (10, 1000.0, 100.0))) == EpochUsage(100.0, 10.0)


def test_too_short_a_time_gives_the_start_and_no_precise_epoch(attempt: TrainingRecurrence) -> None:
    found = usage(after(attempt, (1, 1000.0, 10.0), (4, 1300.0, 11.5)))
    assert found == EpochUsage(None, None, StartUp(900.0, 9.5))


def test_the_start_is_never_negative(attempt: TrainingRecurrence) -> None:
    # Later epochs take longer, for example because another process slows the machine.
    assert usage(after(attempt, (1, 100.0, 10.0), (3, 700.0, 70.0))) == EpochUsage(700 / 3, 70 / 3, StartUp(0.0, 0.0))


def test_measured_power_limits_give_the_epoch_and_no_start(attempt: TrainingRecurrence) -> None:
    profiling = attempt.model_copy(update={"spec": attempt.spec.model_copy(update={"profile_power_limits": True})})
    assert usage(after(profiling, (1, 1000.0, 10.0), (2, 1100.0, 20.0))) == EpochUsage()
    measured = report(
        sequence=3, epoch=3, joules=1200.0, seconds=30.0, profile=(LimitMeasurement(300.0, 80.0, 9.0, 1.0),)
    )
    progress = progress_after(after(profiling, (1, 1000.0, 10.0)), measured)
    held = progress.model_copy(update={"power_limit_watts": 300})
    assert epoch_usage(profiling.spec, held, usage_of(held), held.epoch) == EpochUsage(80.0, 9.0)
