"""An administrator partitions a GPU on which a pod holds a limit: the limit ends, with a reason."""

from collections.abc import Iterator

import pytest

from support.agents.agent_fixture import AgentFixture, until
from support.agents.node_pods import Cluster, Pod, running_node

pytestmark = pytest.mark.processes

PARTITIONED = 1


@pytest.fixture
def cluster(agent_fixture: AgentFixture) -> Iterator[Cluster]:
    with running_node(agent_fixture, "v2", sample_interval=0.05) as node:
        yield node
        for pod in node.pods:
            pod.end()


def held_again(pod: Pod, gpu: str) -> bool:
    return pod.ask("hold_limit", [gpu], 200) == (1, None)


def test_the_limit_of_a_gpu_that_is_partitioned_ends_and_the_others_stay(cluster: Cluster) -> None:
    agent_fixture = cluster.agent_fixture
    gpu, other = agent_fixture.uuids[PARTITIONED], agent_fixture.uuids[0]
    trainer, neighbour = cluster.pod("trainer", [gpu]), cluster.pod("neighbour", [other])
    assert trainer.ask("hold_limit", [gpu], 200) == (1, None)
    assert trainer.ask("hold_clocks", [gpu], 900) == (1, None)
    assert neighbour.ask("hold_limit", [other], 250) == (1, None)

    for parts in (2, 7, 1):
        agent_fixture.gpus.partition(PARTITIONED, parts)
        until(lambda: agent_fixture.limits == [250, 400, 400], "the GPU has its own limit again")
        until(
            lambda: agent_fixture.gpus.describe().gpus[PARTITIONED].locked_graphics_clocks_megahertz is None,
            "and its own clocks",
        )
        # The kubelet still lists the whole GPU for the trainer; of the parts others may have some.
        assert trainer.ask("hold_limit", [gpu], 200) == (None, "Shared")
        assert trainer.ask("hold_clocks", [gpu], 900) == (None, "Shared")
        assert trainer.ask("energy", [gpu]) == (1, None)
        part = agent_fixture.gpus.describe().gpus[PARTITIONED].mig_devices[0].uuid
        renter = cluster.pod(f"renter-{parts}", [part])
        assert renter.ask("hold_limit", [gpu], 200) == (None, "Shared")
        assert agent_fixture.limits == [250, 400, 400]

    agent_fixture.gpus.partition(PARTITIONED, 0)
    until(lambda: held_again(trainer, gpu), "the whole GPU can be held again")
    assert agent_fixture.limits == [250, 200, 400]
    (line, *_) = (line for line in agent_fixture.log.read_text().splitlines() if "MIG" in line)
    assert gpu in line
    assert trainer.uid in line


def test_a_limit_held_across_a_failing_read_of_the_mode_stays(cluster: Cluster) -> None:
    agent_fixture = cluster.agent_fixture
    gpu = agent_fixture.uuids[PARTITIONED]
    trainer = cluster.pod("trainer", [gpu])
    assert trainer.ask("hold_limit", [gpu], 200) == (1, None)
    calls = agent_fixture.gpus.describe().calls.get("nvmlDeviceGetMigMode", 0)
    agent_fixture.gpus.inject_fault("nvmlDeviceGetMigMode", code=999)
    until(lambda: agent_fixture.gpus.describe().calls["nvmlDeviceGetMigMode"] > calls + 6, "read, and failed")
    assert trainer.ask("hold_limit", [gpu], 250) == (1, None)
    assert agent_fixture.limits == [400, 250, 400]
