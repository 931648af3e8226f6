"""The agent on a node: real cgroups, a real gRPC kubelet, pods that are processes in cgroups."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.agents.agent_fixture import AgentFixture, new_agent_fixture, short_folder, until
from support.agents.node_pods import Cluster, running_node
from wattloop.gpus.agent import AgentConnection, AgentRequestError


@pytest.fixture(scope="module", params=["v2", "v1"])
def cluster_of_module(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with (
        short_folder() as name,
        new_agent_fixture(Path(name)) as agent_fixture,
        running_node(agent_fixture, request.param) as node,
    ):
        yield node


@pytest.fixture
def cluster(cluster_of_module: Cluster) -> Iterator[Cluster]:
    """A node without pods. The tests of a version of cgroups share its agent."""
    yield cluster_of_module
    cluster_of_module.clear()


@pytest.fixture
def own_cluster(agent_fixture: AgentFixture) -> Iterator[Cluster]:
    """A node for a test that changes more than limits."""
    with running_node(agent_fixture, "v2") as node:
        yield node


def test_a_pod_reaches_only_its_own_gpus(cluster: Cluster) -> None:
    agent_fixture = cluster.agent_fixture
    trainer = cluster.pod("trainer", agent_fixture.uuids[:1])
    neighbour = cluster.pod("neighbour", agent_fixture.uuids[1:2])
    sharer = cluster.pod("sharer", [f"{agent_fixture.uuids[2]}::0"])
    assert trainer.ask("gpus") == (1, None)
    assert trainer.ask("hold_limit", agent_fixture.uuids[:1], 200) == (1, None)
    assert trainer.ask("hold_limit", agent_fixture.uuids[:2], 150) == (None, "NotYours")
    assert trainer.ask("energy", agent_fixture.uuids[1:]) == (None, "NotYours")
    assert neighbour.ask("release", agent_fixture.uuids[:1]) == (None, "NotYours")
    assert neighbour.ask("leases") == (0, None)
    assert sharer.ask("energy") == (1, None)
    assert sharer.ask("hold_limit", agent_fixture.uuids[2:], 200) == (None, "Shared")
    assert agent_fixture.limits == [200, 400, 400]


def test_only_pods_of_admitted_namespaces_can_hold_a_limit(cluster: Cluster) -> None:
    agent_fixture = cluster.agent_fixture
    allowed = cluster.pod("trainer", agent_fixture.uuids[:1])
    other = cluster.pod("stranger", agent_fixture.uuids[1:2], namespace="search")
    assert other.ask("hold_limit", agent_fixture.uuids[1:2], 200) == (None, "NotPermitted")
    assert other.ask("hold_clocks", agent_fixture.uuids[1:2], 900) == (None, "NotPermitted")
    assert other.ask("energy") == (1, None)
    assert allowed.ask("hold_limit", agent_fixture.uuids[:1], 200) == (1, None)
    assert agent_fixture.limits == [200, 400, 400]


def test_a_mig_device_shows_its_gpu_and_sets_nothing_on_it(own_cluster: Cluster) -> None:
    agent_fixture = own_cluster.agent_fixture
    agent_fixture.gpus.partition(1, 2)
    first, second = (part.uuid for part in agent_fixture.gpus.describe().gpus[1].mig_devices)
    renter = own_cluster.pod("renter", [first])
    replica = own_cluster.pod("replica", [f"{second}::1"])
    for pod in (renter, replica):
        assert pod.ask("gpus") == (1, None)
        assert pod.ask("energy", agent_fixture.uuids[1:2]) == (1, None)
        assert pod.ask("hold_limit", agent_fixture.uuids[1:2], 200) == (None, "Shared")
        assert pod.ask("hold_clocks", agent_fixture.uuids[1:2], 900) == (None, "Shared")
        assert pod.ask("energy", agent_fixture.uuids[:1]) == (None, "NotYours")
        assert pod.ask("hold_limit", [first], 200) == (None, "NotYours")
    assert agent_fixture.limits == [400, 400, 400]


def test_a_removed_mig_device_gives_no_gpu(own_cluster: Cluster) -> None:
    agent_fixture = own_cluster.agent_fixture
    agent_fixture.gpus.partition(1, 2)
    left = own_cluster.pod("left", [agent_fixture.gpus.describe().gpus[1].mig_devices[0].uuid])
    assert left.ask("gpus") == (1, None)
    agent_fixture.gpus.partition(1, 7)
    assert left.ask("gpus") == (0, None)
    assert left.ask("energy", agent_fixture.uuids[1:2]) == (None, "NotYours")


def test_a_process_outside_every_pod_is_refused(cluster: Cluster) -> None:
    with AgentConnection(cluster.agent_fixture.socket) as connection, pytest.raises(AgentRequestError) as caught:
        connection.gpus()
    assert caught.value.reason == "NotPermitted"


def test_a_lease_is_the_pods_and_ends_with_its_last_process(cluster: Cluster) -> None:
    agent_fixture = cluster.agent_fixture
    trainer = cluster.pod("trainer", agent_fixture.uuids)
    trainer.start(agent_fixture)
    assert trainer.ask("hold_limit", agent_fixture.uuids, 200) == (3, None)
    assert trainer.ask("hold_limit", agent_fixture.uuids, 250, process=1) == (3, None), (
        "another process of the same pod"
    )
    trainer.processes[0].kill()
    trainer.processes[0].communicate()
    assert trainer.ask("hold_limit", agent_fixture.uuids, 300, process=1) == (3, None)
    assert agent_fixture.limits == [300, 300, 300]
    trainer.processes[1].kill()
    until(lambda: agent_fixture.limits == [400, 400, 400], "restored after the pod's last process")


def test_a_process_that_moves_to_another_pods_cgroup_is_refused(cluster: Cluster) -> None:
    agent_fixture = cluster.agent_fixture
    thief = cluster.pod("thief", [])
    victim = cluster.pod("victim", agent_fixture.uuids)
    assert victim.ask("hold_limit", agent_fixture.uuids, 200) == (3, None)
    assert thief.ask("gpus") == (0, None)
    (victim.cgroup / "cgroup.procs").write_text(str(thief.processes[0].pid))
    assert thief.ask("hold_limit", agent_fixture.uuids, 100) == (None, "NotPermitted")
    assert agent_fixture.limits == [200, 200, 200]


@pytest.mark.processes
def test_a_completed_pod_that_is_still_listed_no_longer_uses_its_gpu(own_cluster: Cluster) -> None:
    ledger = own_cluster.agent_fixture.state / "monitor" / "energy.json"
    trainer = own_cluster.pod("trainer", own_cluster.agent_fixture.uuids[:1])
    own_cluster.pod("other", own_cluster.agent_fixture.uuids[1:2])

    def ended() -> dict[str, bool]:
        intervals = json.loads(ledger.read_text())["ledger"]["intervals"] if ledger.exists() else []
        return {interval["pod"]: interval["ended"] for interval in intervals}

    until(lambda: ended() == {"trainer": False, "other": False}, "both have their GPUs")
    trainer.processes[0].kill()
    trainer.processes[0].communicate()
    until(lambda: ended() == {"trainer": True, "other": False}, "the one that has no process has given its GPU back")
