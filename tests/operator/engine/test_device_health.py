"""A crash after a device was seen to be unhealthy blames no batch size, whatever the pod says at its end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from model_world import ModelWorld, job

from wattloop_operator.api.conditions import ConditionStatus
from wattloop_operator.api.result import Result
from wattloop_operator.engine import memory
from wattloop_operator.engine.device_health import DEVICES_HEALTHY
from wattloop_operator.engine.snapshot import Failure

Settle = Callable[[ModelWorld], None]
UNHEALTHY = "pod a-x: unhealthy: nvidia.com/gpu GPU-a"


def crashed(settled: Settle, *, seen: str) -> tuple[ModelWorld, str]:
    """An attempt that crashes after this was seen of its devices, when nothing is seen of them any more."""
    world = ModelWorld(job(policy={"fixed": {}}))
    settled(world)
    name = world.running[0]
    world.run_workload(name)
    world.workloads[name] = replace(world.workloads[name], unhealthy=seen)
    settled(world)
    world.workloads[name] = replace(world.workloads[name], unhealthy="")
    settled(world)
    world.end_workload(name, Failure.CRASHED, "container train ended with exit code 1")
    settled(world)
    return world, name


@pytest.mark.parametrize(("seen", "result"), [(UNHEALTHY, Result.DISRUPTED), ("", Result.CRASHED)])
def test_what_was_seen_of_a_device_decides_how_a_crash_is_taken(seen: str, result: Result, settled: Settle) -> None:
    world, name = crashed(settled, seen=seen)
    assert world.recurrences[name].status.result is result
    assert "exit code 1" in world.recurrences[name].status.message
    observed = [world.records[key] for key in world.records]
    assert bool(memory.observations(tuple(observed))) is (result is Result.CRASHED)


def test_a_condition_names_the_device_to_the_end(settled: Settle) -> None:
    world, name = crashed(settled, seen=UNHEALTHY)
    told = next(each for each in world.recurrences[name].status.conditions if each.type == DEVICES_HEALTHY)
    assert (told.status, told.reason, told.message) == (ConditionStatus.FALSE, "Unhealthy", UNHEALTHY)
    assert UNHEALTHY in world.recurrences[name].status.message
