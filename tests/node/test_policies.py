"""A GPUPowerPolicy on the node: a limit outside of it fails no training and is reported, one inside is held."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from kubernetes import client
from kubernetes.dynamic import DynamicClient

from nvml_simulator import Machine
from support.control_plane.commands import ClusterCommand
from support.control_plane.objects import GPU_POWER_POLICY
from support.control_plane.waiting import Object, wait_until
from support.kubernetes_node.node import About
from support.kubernetes_node.users import make_editor
from support.node.digits import API_VERSION, Runs
from support.node.limit_observer import LimitObserver
from support.node.paced import paced_job, put_scripts
from support.node.policy_changes import PolicyChanges
from support.node.waits import SLOWEST_SECONDS

NAMESPACE = "guarded"
ASKED_WATTS = 120
FOUND_WATTS = 400.0


@dataclass(frozen=True)
class Tried:
    """A recurrence that asks for a limit.

    Attributes:
        recurrence: When it had ended.
        worked_at: The limits at which GPUs were seen to work, in watts.
        limits_after: The limits of the GPUs at the end.
    """

    recurrence: Object
    worked_at: set[float]
    limits_after: set[float]

    @property
    def held(self) -> Object:
        """Its condition PowerLimitHeld."""
        (found,) = [each for each in self.recurrence["status"]["conditions"] if each["type"] == "PowerLimitHeld"]
        return found


def policy(least_watts: int) -> Object:
    return {
        "apiVersion": API_VERSION,
        "kind": "GPUPowerPolicy",
        "metadata": {"name": "fleet"},
        "spec": {"powerLimit": {"minWatts": least_watts, "maxWatts": 350}},
    }


@pytest.fixture(scope="module")
def runs(
    node: About, kubectl: ClusterCommand, core: client.CoreV1Api, cluster: DynamicClient, gpus: Machine
) -> Iterator[tuple[Tried, Tried, list[Object]]]:
    """One that asks outside of the policy, one that asks inside of it, and the events of both."""
    user = kubectl.as_user(make_editor(node, kubectl, core, NAMESPACE))
    put_scripts(user, NAMESPACE)
    power = {"mode": "Fixed", "watts": ASKED_WATTS}
    # One fixed batch size, so that no run is stopped as too expensive.
    user.apply(paced_job("guarded", epoch_seconds=0.3, power=power, mode="Fixed"), namespace=NAMESPACE)
    asking = Runs(user, cluster, "guarded", NAMESPACE)

    def tried(index: int) -> Tried:
        with LimitObserver(gpus) as seen:
            recurrence = asking.run(index)
        worked_at = {watts for of_gpu in seen.worked_at.values() for watts in of_gpu}
        return Tried(recurrence, worked_at, {gpu.power_limit_watts for gpu in gpus.describe().gpus})

    agent = PolicyChanges(kubectl)
    try:
        kubectl.apply(policy(150))
        agent.await_next()
        outside = tried(0)
        kubectl.apply(policy(100))
        agent.await_next()
        inside = tried(1)
        reported = kubectl.json("get", "events", namespace=NAMESPACE)["items"]
        yield outside, inside, reported
    finally:
        # A policy applies to every pod of the node, also to other tests' pods.
        kubectl("delete", "gpupowerpolicy", "fleet", "--ignore-not-found")
        agent.await_next()


def test_a_limit_outside_of_a_policy_is_not_held_and_the_training_reaches_its_target(
    runs: tuple[Tried, Tried, list[Object]],
) -> None:
    outside, _, _ = runs
    status = outside.recurrence["status"]
    assert status["result"] == "Reached"
    assert outside.worked_at == {FOUND_WATTS}
    assert "powerLimitWatts" not in status["progress"]
    assert (outside.held["status"], outside.held["reason"]) == ("False", "Refused")
    words = "GPUPowerPolicy fleet allows 150 to 350 watts, the device accepts 100 to 400 watts"
    assert words in outside.held["message"]


def test_the_job_has_an_event_for_the_rejected_limit(runs: tuple[Tried, Tried, list[Object]]) -> None:
    _, _, reported = runs
    refused = [each for each in reported if each["reason"] == "PowerLimitRefused"]
    assert [each["type"] for each in refused] == ["Warning"] * 2, json.dumps([each["reason"] for each in reported])
    assert "GPUPowerPolicy fleet" in refused[0].get("message", refused[0].get("note", ""))


def test_once_the_policy_allows_the_limit_it_is_held_and_restored(runs: tuple[Tried, Tried, list[Object]]) -> None:
    _, inside, _ = runs
    assert inside.recurrence["status"]["result"] == "Reached"
    assert inside.held["status"] == "True"
    assert inside.recurrence["status"]["progress"]["powerLimitWatts"] == ASKED_WATTS
    assert float(ASKED_WATTS) in inside.worked_at
    assert inside.limits_after == {FOUND_WATTS}


def test_the_policys_status_lists_its_nodes(
    runs: tuple[Tried, Tried, list[Object]], cluster: DynamicClient, kubectl: ClusterCommand
) -> None:
    nodes = wait_until(
        cluster,
        GPU_POWER_POLICY,
        lambda found: [each.get("status", {}).get("nodes") for each in found] == [1],
        "the policy to hold on the one node there is",
        timeout_seconds=SLOWEST_SECONDS,
    )
    assert nodes
    assert "fleet" in kubectl("get", "gpp")
