"""An attempt whose energy was not measured has no cost: nothing is learned from it, and its message says what to do."""

from collections.abc import Callable
from typing import Any

import pytest

from support.backends.model_backend import KEY, ModelBackend
from wattloop_operator.domain.snapshot import Failure
from wattloop_operator.reconcile.learning.costs import attempt_cost_joules, default_cost
from wattloop_operator.reconcile.learning.decision import decision_context

Backend = Callable[..., ModelBackend]
UNMEASURED = [
    pytest.param({"joules": 0.0, "seconds": 100.0}, "counters of its GPU did not advance in 100 s", id="no energy"),
    pytest.param({"joules": 0.0, "seconds": 0.0}, "no time passed on its GPUs", id="no time"),
    pytest.param({"gpus": 0}, "neither its processes nor a node agent", id="no GPU"),
]


def run_attempt(backend: ModelBackend, **reported: Any) -> str:
    name = backend.start_attempt()
    backend.report(name, epoch=10, metric=0.95, finished=True, **reported)
    backend.end_workload(name)
    backend.reconcile()
    backend.advance(3600)
    return name


@pytest.mark.parametrize(("reported", "cause"), UNMEASURED)
def test_an_attempt_without_a_measured_energy_has_no_cost_and_says_what_to_do(
    backend_with: Backend, reported: dict[str, Any], cause: str
) -> None:
    backend = backend_with()
    name = run_attempt(backend, **reported)
    status = backend.recurrences[name].status
    assert status.cost_joules is None
    assert "no energy was measured, so nothing is learned from it" in status.message
    assert cause in status.message
    record = next(iter(backend.records.values()))
    assert attempt_cost_joules(record, 0.5) is None
    snapshot = backend.snapshot(KEY)
    assert snapshot is not None
    assert decision_context(snapshot, 1, 0).observations == ()
    assert default_cost(snapshot) is None


def test_attempts_without_a_measured_energy_change_no_expectation(backend_with: Backend) -> None:
    backend = backend_with()
    run_attempt(backend, joules=10_000.0, seconds=100.0)
    snapshot = backend.snapshot(KEY)
    assert snapshot is not None
    before = default_cost(snapshot), decision_context(snapshot, 9, 0).observations
    message = backend.recurrences[run_attempt(backend, joules=0.0, seconds=100.0)].status.message
    snapshot = backend.snapshot(KEY)
    assert snapshot is not None
    assert (default_cost(snapshot), decision_context(snapshot, 9, 0).observations) == before
    assert message.startswith("accuracy reached 0.95 after 10 epochs; no energy")


def test_a_crash_has_no_remedy_for_its_energy(backend_with: Backend) -> None:
    backend = backend_with()
    name = backend.start_attempt()
    backend.end_workload(name, Failure.CRASHED)
    backend.reconcile()
    assert "no energy" not in backend.recurrences[name].status.message
