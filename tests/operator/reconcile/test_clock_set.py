"""Starts after the clock was set ahead or back by a day: nothing is started twice."""

from collections.abc import Callable

import pytest

from support.backends.model_backend import ModelBackend

DAY = 86_400


def finish_run(backend: ModelBackend) -> None:
    """The running recurrence reaches its target."""
    (name,) = backend.running
    backend.run_workload(name)
    backend.report(name, metric=0.95, finished=True)
    backend.end_workload(name)
    backend.reconcile()


@pytest.fixture
def backend(backend_with: Callable[..., ModelBackend]) -> ModelBackend:
    """An hourly job that has run."""
    made = backend_with()
    made.reconcile()
    made.advance(3600)
    made.reconcile()
    while made.running:
        finish_run(made)
    return made


def assert_next_start_after_a_day(backend: ModelBackend, known: set[str]) -> None:
    """The job ran a day ahead of the clock: it starts nothing before that time."""
    for _ in range(23):
        backend.advance(3600)
        backend.reconcile()
    assert set(backend.recurrences) == known
    backend.advance(2 * 3600)
    backend.reconcile()
    assert len(backend.running) == 1


def test_after_the_clock_is_set_back_nothing_starts_twice(backend: ModelBackend) -> None:
    before = set(backend.recurrences)
    backend.advance(-DAY)
    assert_next_start_after_a_day(backend, before)


def test_after_the_clock_is_set_ahead_one_run_starts_and_the_others_are_missed(backend: ModelBackend) -> None:
    before = len(backend.recurrences)
    backend.advance(DAY)
    backend.reconcile()
    assert len(backend.recurrences) == before + 1
    assert backend.job.status.totals.missed == 23


def test_after_the_clock_is_set_ahead_and_back_the_next_start_waits_for_that_time(backend: ModelBackend) -> None:
    backend.advance(DAY)
    backend.reconcile()
    finish_run(backend)
    ahead = set(backend.recurrences)
    backend.advance(-DAY)
    assert_next_start_after_a_day(backend, ahead)


def test_a_new_job_starts_although_the_clock_is_behind_the_api_servers(
    backend_with: Callable[..., ModelBackend],
) -> None:
    backend = backend_with(continuous=True, maxRecurrences=1)
    backend.advance(-DAY)
    backend.reconcile()
    finish_run(backend)
    assert len(backend.recurrences) == 1
