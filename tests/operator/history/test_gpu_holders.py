"""The GPUs of running attempts: their power, the limits that are held, and until when."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from support.databases.many_jobs import LONGEST, RUNNING, running_recurrence
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.history.gpu_holders import HeldGpu, gpus_of_attempt

SINCE = datetime(2026, 3, 2, 3, tzinfo=UTC)


def found(deadline: int | None = None, status: dict[str, Any] | None = None, **progress: Any) -> tuple[HeldGpu, ...]:
    body = running_recurrence(LONGEST, **progress)
    body["status"] |= status or {}
    return tuple(gpus_of_attempt(TrainingRecurrence.model_validate(body), deadline, "node not known"))


def test_each_reported_gpu_has_its_mean_power_and_the_limit_that_the_processes_hold() -> None:
    (gpu,) = found(3600, powerLimitWatts=200)
    assert (gpu.gpu, gpu.attempt, gpu.product, gpu.node) == ("GPU-0", RUNNING, "NVIDIA A40", "node not known")
    assert (gpu.mean_power_watts, gpu.limit_watts) == (250.0, 200)
    assert (gpu.since, gpu.until) == (SINCE, datetime(2026, 3, 2, 4, tzinfo=UTC))
    assert found()[0].until is None


def test_without_reports_of_gpus_the_agents_measurements_and_limits_of_all_pods_count() -> None:
    pods = [{"uid": "a", "node": "node-1"}, {"uid": "b", "node": "node-2"}]
    first = {"epoch": "0", "energyJoules": "0", "timeSeconds": "0"}
    agents = {"devices": 4, "first": first, "latest": {"epoch": "1", "energyJoules": "9000", "timeSeconds": "10"}}
    held = [{"uid": "a", "heldWatts": 250}, {"uid": "b", "heldWatts": 250}]
    (all_gpus,) = found(status={"pods": pods}, gpus=[], agents=agents, agentLimits={"pods": held})
    assert (all_gpus.gpu, all_gpus.gpus, all_gpus.node) == ("", 4, "node-1, node-2")
    assert (all_gpus.mean_power_watts, all_gpus.limit_watts) == (900.0, 250)
    (differing,) = found(gpus=[], agents=agents, agentLimits={"pods": [held[0], {"uid": "b"}]})
    assert differing.limit_watts is None


def test_an_attempt_that_has_reported_nothing_has_the_gpus_that_it_requests() -> None:
    (requested,) = found(status={"devices": 2}, gpus=[])
    assert (requested.gpus, requested.mean_power_watts) == (2, None)
    assert found(gpus=[]) == ()


def test_an_attempt_that_waits_in_a_queue_holds_no_gpu() -> None:
    assert found(status={"devices": 2, "startTime": None}, gpus=[]) == ()


def test_clocks_are_held_only_while_the_ranks_run_the_plan() -> None:
    plan = {"name": "digits-plan", "mode": "Plan"}
    assert found(status={"frequencyPlan": plan})[0].frequency_plan == "digits-plan"
    assert found(status={"frequencyPlan": {**plan, "mode": "Free"}})[0].frequency_plan == ""
