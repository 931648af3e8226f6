"""A crash after a device was unhealthy does not count against the batch size."""

from dataclasses import replace

import pytest

from support.backends.model_backend import ModelBackend, job
from wattloop_operator.api.attempt_state import Result
from wattloop_operator.api.meta import ConditionStatus
from wattloop_operator.domain.snapshot import Failure
from wattloop_operator.reconcile.attempt.attempt_conditions import DEVICES_HEALTHY
from wattloop_operator.reconcile.learning import job_observations

UNHEALTHY = "pod a-x: unhealthy: nvidia.com/gpu GPU-a"


def crashed(*, unhealthy: str) -> tuple[ModelBackend, str]:
    """An attempt that crashes after its devices were reported as unhealthy, and no longer are."""
    backend = ModelBackend(job(mode="Fixed"))
    backend.reconcile()
    name = backend.running[0]
    backend.run_workload(name)
    backend.workloads[name] = replace(backend.workloads[name], unhealthy=unhealthy)
    backend.reconcile()
    backend.workloads[name] = replace(backend.workloads[name], unhealthy="")
    backend.reconcile()
    backend.end_workload(name, Failure.CRASHED, "container train ended with exit code 1")
    backend.reconcile()
    return backend, name


@pytest.mark.parametrize(("unhealthy", "result"), [(UNHEALTHY, Result.DISRUPTED), ("", Result.CRASHED)])
def test_a_crash_with_an_unhealthy_device_is_a_disruption(unhealthy: str, result: Result) -> None:
    backend, name = crashed(unhealthy=unhealthy)
    assert backend.recurrences[name].status.result is result
    assert "exit code 1" in backend.recurrences[name].status.message
    assert bool(job_observations.observations(tuple(backend.records.values()))) is (result is Result.CRASHED)


def test_a_condition_names_the_unhealthy_device_until_the_end() -> None:
    backend, name = crashed(unhealthy=UNHEALTHY)
    condition = next(each for each in backend.recurrences[name].status.conditions if each.type == DEVICES_HEALTHY)
    assert (condition.status, condition.reason, condition.message) == (ConditionStatus.FALSE, "Unhealthy", UNHEALTHY)
    assert UNHEALTHY in backend.recurrences[name].status.message
