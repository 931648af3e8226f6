"""Metrics of a real agent as Prometheus scrapes them."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.agents.agent_fixture import AgentFixture, until
from support.agents.scraping import MeteredAgent, metered_agent, scraped
from support.test_sets.parameters import exhaustive_after
from wattloop.gpus.agent import AgentRequestError
from wattloop_agent.power_controller.lease_manager import NodeLock
from wattloop_agent.telemetry.catalogue import CATALOGUE


@pytest.fixture
def agent(agent_fixture: AgentFixture) -> Iterator[MeteredAgent]:
    with metered_agent(agent_fixture) as agent:
        yield agent


def test_the_families_are_those_of_the_catalogue(agent: MeteredAgent) -> None:
    assert set(scraped(agent.metrics)) == {metric.name for metric in CATALOGUE}


def test_a_gpu_has_dcgms_labels_and_correct_values(agent_fixture: AgentFixture, agent: MeteredAgent) -> None:
    until(lambda: len(agent.scraped("wattloop_gpu_energy_joules")) == 3, "the first samples")
    labels, joules = agent.scraped("wattloop_gpu_energy_joules")[0]
    assert labels == {
        "UUID": agent_fixture.uuids[0],
        "modelName": "NVIDIA A100-SXM4-80GB",
        "Hostname": socket.gethostname(),
    }
    assert joules == pytest.approx(agent_fixture.gpus.describe().gpus[0].counter_millijoules / 1000)
    assert [value for _, value in agent.scraped("wattloop_gpu_power_limit_watts")] == [400, 400, 400]
    assert [value for _, value in agent.scraped("wattloop_gpu_readable")] == [1, 1, 1]


def test_leases_overrides_and_rejected_requests_are_counted(agent_fixture: AgentFixture, agent: MeteredAgent) -> None:
    agent.connection.hold_limit(agent_fixture.uuids[:2], 200)
    with pytest.raises(AgentRequestError):
        agent.connection.hold_limit(agent_fixture.uuids, 1000)
    agent_fixture.gpus.set_power_limit_as_another_actor(1, 250.0)
    overridden = dict(zip(agent_fixture.uuids, (0, 1), strict=False))
    until(lambda: agent.by_uuid("wattloop_gpu_power_limit_overridden") == overridden, "the override is detected")
    metrics = scraped(agent.metrics)
    assert metrics["wattloop_agent_leases"] == [({"setting": "power_limit"}, 2)]
    assert [value for _, value in metrics["wattloop_gpu_power_limit_original_watts"]] == [400, 400]
    assert [value for _, value in metrics["wattloop_gpu_power_limit_held_watts"]] == [200, 200]
    assert metrics["wattloop_agent_requests_rejected"] == [({"reason": "OutOfRange"}, 1)]
    assert metrics["wattloop_agent_ready"] == [({"state": "ready"}, 1)]


@pytest.mark.parametrize(("function", "gpu"), exhaustive_after([("*", 0), ("nvmlDeviceGetTotalEnergyConsumption", 2)]))
def test_a_gpu_that_does_not_answer_is_not_readable(
    agent_fixture: AgentFixture, agent: MeteredAgent, function: str, gpu: int
) -> None:
    others = [uuid for index, uuid in enumerate(agent_fixture.uuids) if index != gpu]
    # tests/agent/test_lost_gpu.py tests a GPU that is lost before the agent knows its UUID.
    until(lambda: [v for _, v in agent.scraped("wattloop_gpu_readable")] == [1, 1, 1], "the first sampling")
    agent_fixture.gpus.inject_fault(function, code=15, gpu=gpu)
    readable = [float(index != gpu) for index in range(3)]
    until(lambda: [v for _, v in agent.scraped("wattloop_gpu_readable")] == readable, "the lost GPU is detected")
    for _ in range(5):
        metrics = scraped(agent.metrics)
        assert [labels["UUID"] for labels, _ in metrics["wattloop_gpu_energy_joules"]] == others
        assert set(others) <= {labels["UUID"] for labels, _ in metrics["wattloop_gpu_power_watts"]}


def test_unreadable_bounds_are_a_warning(agent_fixture: AgentFixture) -> None:
    (agent_fixture.state / "monitor").mkdir(parents=True)
    (agent_fixture.state / "monitor" / "bounds.json").write_text("{")
    with metered_agent(agent_fixture) as agent:
        ((labels, value),) = agent.scraped("wattloop_agent_warning")
    assert value == 1
    assert "bounds.json" in labels["warning"]


def test_an_agent_is_not_ready_while_another_power_controller_has_the_node(agent_fixture: AgentFixture) -> None:
    lock = NodeLock(
        Path(agent_fixture.environment["WATTLOOP_AGENT_LOCK_DIRECTORY"]), "process 1 with state folder /elsewhere"
    )
    with metered_agent(agent_fixture) as agent:
        ((labels, value),) = agent.scraped("wattloop_agent_ready")
        assert value == 0
        assert (
            "another power controller holds this node's GPUs (process 1 with state folder /elsewhere;"
            in labels["state"]
        )
        lock.close()
        until(lambda: agent.scraped("wattloop_agent_ready") == [({"state": "ready"}, 1)], "the agent takes over")
