"""A crash after a device was seen to be unhealthy blames no batch size, whatever the pod says at its end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from support.backends.model_backend import ModelBackend, job
from wattloop_operator.api.attempt import Result
from wattloop_operator.api.meta import ConditionStatus
from wattloop_operator.domain.snapshot import Failure
from wattloop_operator.reconcile.attempt.conditions import DEVICES_HEALTHY
from wattloop_operator.reconcile.learning import observations

Reconcile = Callable[[ModelBackend], None]
UNHEALTHY = "pod a-x: unhealthy: nvidia.com/gpu GPU-a"


def crashed(settled: Reconcile, *, seen: str) -> tuple[ModelBackend, str]:
    """An attempt that crashes after this was seen of its devices, when nothing is seen of them any more."""
    backend = ModelBackend(job(policy={"fixed": {}}))
    settled(backend)
    name = backend.running[0]
    backend.run_workload(name)
    backend.workloads[name] = replace(backend.workloads[name], unhealthy=seen)
    settled(backend)
    backend.workloads[name] = replace(backend.workloads[name], unhealthy="")
    settled(backend)
    backend.end_workload(name, Failure.CRASHED, "container train ended with exit code 1")
    settled(backend)
    return backend, name


@pytest.mark.parametrize(("seen", "result"), [(UNHEALTHY, Result.DISRUPTED), ("", Result.CRASHED)])
def test_what_was_seen_of_a_device_decides_how_a_crash_is_taken(seen: str, result: Result, settled: Reconcile) -> None:
    backend, name = crashed(settled, seen=seen)
    assert backend.recurrences[name].status.result is result
    assert "exit code 1" in backend.recurrences[name].status.message
    observed = [backend.records[key] for key in backend.records]
    assert bool(observations.observations(tuple(observed))) is (result is Result.CRASHED)


def test_a_condition_names_the_device_to_the_end(settled: Reconcile) -> None:
    backend, name = crashed(settled, seen=UNHEALTHY)
    told = next(each for each in backend.recurrences[name].status.conditions if each.type == DEVICES_HEALTHY)
    assert (told.status, told.reason, told.message) == (ConditionStatus.FALSE, "Unhealthy", UNHEALTHY)
    assert UNHEALTHY in backend.recurrences[name].status.message
