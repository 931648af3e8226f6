"""The GPUs of running attempts: their power, the limits that are held, and until when."""

from datetime import UTC, datetime
from typing import Any

from support.databases.many_jobs import LONGEST, RUNNING, running_recurrence
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.domain.progress import Progress
from wattloop_operator.domain.training_attempt import ProgressRow, TrainingAttempt
from wattloop_operator.history.gpu_holders import GpuLine, gpus_of_attempt

SINCE = datetime(2026, 3, 2, 3, tzinfo=UTC)


GPU = {"uuid": "GPU-0", "startEnergyMillijoules": 0, "energyMillijoules": 500_000, "startTimeSeconds": "0"}
GPU |= {"timeSeconds": "2"}


def found(
    deadline: int | None = None, status: dict[str, Any] | None = None, progress: dict[str, Any] | None = None
) -> tuple[GpuLine, ...]:
    """The GPUs of an attempt, of which a database has this progress; None: its object alone is known."""
    body = running_recurrence(LONGEST)
    body["status"] |= status or {}
    row = None if progress is None else ProgressRow(1, Progress.from_wire(progress), SINCE)
    attempt = TrainingAttempt.of(TrainingRecurrence.model_validate(body), row)
    return tuple(gpus_of_attempt(attempt, deadline, "node not known"))


def test_each_reported_gpu_has_its_mean_power_and_the_limit_that_the_processes_hold() -> None:
    reported = {"gpus": [GPU], "gpuProduct": "NVIDIA A40", "powerLimitWatts": 200}
    (gpu,) = found(3600, progress=reported)
    assert (gpu.gpu, gpu.attempt, gpu.product, gpu.node) == ("GPU-0", RUNNING, "NVIDIA A40", "node not known")
    assert (gpu.mean_power_watts, gpu.limit_watts) == (250.0, 200)
    assert (gpu.since, gpu.until) == (SINCE, datetime(2026, 3, 2, 4, tzinfo=UTC))
    assert found(progress=reported)[0].until is None


def test_an_object_has_the_power_of_all_gpus_of_its_attempt_together() -> None:
    summary = {"energyJoules": "9000", "timeSeconds": "10", "powerWatts": "800", "powerLimitWatts": 250}
    summary["lastReportTime"] = "2026-03-02T03:00:00Z"
    refused = {"type": "PowerLimitHeld", "status": "False", "reason": "Refused", "message": "too low"}
    refused["lastTransitionTime"] = "2026-03-02T03:00:00Z"
    (gpus,) = found(status={"progress": summary, "devices": 4, "conditions": [refused]})
    assert (gpus.gpu, gpus.gpus, gpus.mean_power_watts, gpus.limit_watts) == ("", 4, 900.0, 250)
    assert (gpus.recent_power_watts, gpus.recent_until, gpus.refused_limit) == (800.0, SINCE, "too low")


def test_without_reports_of_gpus_the_agents_measurements_and_limits_of_all_pods_count() -> None:
    pods = [{"uid": "a", "node": "node-1"}, {"uid": "b", "node": "node-2"}]
    first = {"epoch": "0", "energyJoules": "0", "timeSeconds": "0"}
    agents = {"devices": 4, "first": first, "latest": {"epoch": "1", "energyJoules": "9000", "timeSeconds": "10"}}
    held = [{"uid": "a", "heldWatts": 250}, {"uid": "b", "heldWatts": 250}]
    (all_gpus,) = found(status={"pods": pods}, progress={"agents": agents, "agentLimits": {"pods": held}})
    assert (all_gpus.gpu, all_gpus.gpus, all_gpus.node) == ("", 4, "node-1, node-2")
    assert (all_gpus.mean_power_watts, all_gpus.limit_watts) == (900.0, 250)
    (differing,) = found(progress={"agents": agents, "agentLimits": {"pods": [held[0], {"uid": "b"}]}})
    assert differing.limit_watts is None


def test_an_attempt_that_has_reported_nothing_has_the_gpus_that_it_requests() -> None:
    (requested,) = found(status={"devices": 2, "progress": None})
    assert (requested.gpus, requested.mean_power_watts) == (2, None)
    assert found(status={"devices": 0, "progress": None}) == ()


def test_an_attempt_that_waits_in_a_queue_holds_no_gpu() -> None:
    assert found(status={"devices": 2, "startTime": None}) == ()


def test_clocks_are_held_only_while_the_ranks_run_the_plan() -> None:
    plan = {"name": "digits-plan", "mode": "Plan"}
    assert found(status={"frequencyPlan": plan})[0].frequency_plan == "digits-plan"
    assert found(status={"frequencyPlan": {**plan, "mode": "Free"}})[0].frequency_plan == ""
