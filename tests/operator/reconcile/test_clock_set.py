"""A clock that is set ahead or back by a day: what is started, and what is not started twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from support.backends.model_backend import ModelBackend

DAY = 86_400
Reconcile = Callable[[ModelBackend], None]
TRIGGERS: dict[str, dict[str, Any]] = {
    "cron": {"cron": {"schedule": "0 * * * *"}},
    "interval": {"interval": {"seconds": 3600}},
    "continuous": {"continuous": {"minGapSeconds": 3600}},
}


def run(backend: ModelBackend, settled: Reconcile) -> None:
    """The recurrence that was started reaches its target."""
    (name,) = backend.running
    backend.run_workload(name)
    backend.report(name, metric=0.95, finished=True)
    backend.end_workload(name)
    settled(backend)


@pytest.fixture(params=TRIGGERS.values(), ids=TRIGGERS.keys())
def backend(
    request: pytest.FixtureRequest, backend_with: Callable[..., ModelBackend], settled: Reconcile
) -> ModelBackend:
    """A job that runs every hour and has run once."""
    made = backend_with(trigger=request.param)
    settled(made)
    made.pass_seconds(3600)
    settled(made)
    while made.running:
        run(made, settled)
    return made


def starts_nothing_again_before_its_time(backend: ModelBackend, settled: Reconcile, known: set[str]) -> None:
    """Of a job that ran a day ahead of the clock."""
    for _ in range(23):
        backend.pass_seconds(3600)
        settled(backend)
    assert set(backend.recurrences) == known
    backend.pass_seconds(2 * 3600)
    settled(backend)
    assert len(backend.running) == 1


def test_set_back_it_starts_nothing_again_and_goes_on_where_it_was(backend: ModelBackend, settled: Reconcile) -> None:
    before = set(backend.recurrences)
    backend.pass_seconds(-DAY)
    starts_nothing_again_before_its_time(backend, settled, before)


def test_set_ahead_it_starts_one_run_and_counts_the_others_as_missed(backend: ModelBackend, settled: Reconcile) -> None:
    before = len(backend.recurrences)
    backend.pass_seconds(DAY)
    settled(backend)
    assert len(backend.recurrences) == before + 1
    # A continuous job has no calendar that it could miss.
    assert backend.job.status.counts.missed == (0 if backend.job.spec.trigger.continuous else 23)


def test_set_ahead_and_back_again_it_goes_on_when_the_time_has_caught_up(
    backend: ModelBackend, settled: Reconcile
) -> None:
    backend.pass_seconds(DAY)
    settled(backend)
    run(backend, settled)
    ahead = set(backend.recurrences)
    backend.pass_seconds(-DAY)
    starts_nothing_again_before_its_time(backend, settled, ahead)


@pytest.mark.parametrize(
    "trigger", [{"once": {}}, {"continuous": {"minGapSeconds": 60}}, {"interval": {"seconds": 60}}]
)
def test_behind_the_api_servers_clock_a_new_job_starts_all_the_same(
    trigger: dict[str, Any], backend_with: Callable[..., ModelBackend], settled: Reconcile
) -> None:
    backend = backend_with(trigger=trigger)
    backend.pass_seconds(-DAY)
    settled(backend)
    run(backend, settled)
    assert len(backend.recurrences) == 1
