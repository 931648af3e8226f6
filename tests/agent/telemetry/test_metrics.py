"""What Prometheus sees of a real agent."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.agents.agent_fixture import AgentFixture, until
from support.agents.processes import free_port, single_agent
from support.agents.scraping import scraped
from wattloop.agent import AgentConnection, AgentRequestError
from wattloop_agent.power_controller.node_lock import NodeLock
from wattloop_agent.telemetry.catalogue import CATALOGUE


@pytest.fixture
def address(agent_fixture: AgentFixture) -> Iterator[str]:
    address = f"127.0.0.1:{free_port()}"
    environment = {
        **agent_fixture.environment,
        "WATTLOOP_AGENT_METRICS_BIND": address,
        "WATTLOOP_AGENT_SAMPLE_INTERVAL": "0.05",
    }
    with single_agent(agent_fixture.socket, agent_fixture.state, environment=environment, log=agent_fixture.log):
        yield address


def test_the_families_are_those_of_the_catalogue(address: str) -> None:
    assert set(scraped(address)) == {metric.name for metric in CATALOGUE}


def test_a_gpu_is_named_as_dcgm_names_it_and_its_values_are_the_truth(
    agent_fixture: AgentFixture, address: str
) -> None:
    until(lambda: len(scraped(address)["wattloop_gpu_energy_joules"]) == 3, "the first readings")
    labels, joules = scraped(address)["wattloop_gpu_energy_joules"][0]
    assert labels == {
        "UUID": agent_fixture.uuids[0],
        "modelName": "NVIDIA A100-SXM4-80GB",
        "Hostname": socket.gethostname(),
    }
    assert joules == pytest.approx(agent_fixture.gpus.describe().gpus[0].counter_millijoules / 1000)
    assert [value for _, value in scraped(address)["wattloop_gpu_power_limit_watts"]] == [400, 400, 400]
    assert [value for _, value in scraped(address)["wattloop_gpu_readable"]] == [1, 1, 1]


def test_leases_overriding_and_refusals_are_counted(agent_fixture: AgentFixture, address: str) -> None:
    with AgentConnection(agent_fixture.socket) as connection:
        connection.hold_limit(agent_fixture.uuids[:2], 200)
        with pytest.raises(AgentRequestError):
            connection.hold_limit(agent_fixture.uuids, 1000)
        agent_fixture.gpus.set_power_limit_as_another_actor(1, 250.0)
        until(
            lambda: [v for _, v in scraped(address)["wattloop_gpu_power_limit_overridden"]] == [0, 1],
            "the other actor is seen",
        )
        seen = scraped(address)
    assert seen["wattloop_agent_leases"] == [({"setting": "power_limit"}, 2)]
    assert [value for _, value in seen["wattloop_gpu_power_limit_original_watts"]] == [400, 400]
    assert [value for _, value in seen["wattloop_gpu_power_limit_held_watts"]] == [200, 200]
    assert seen["wattloop_agent_requests_rejected"] == [({"reason": "OutOfRange"}, 1)]
    assert seen["wattloop_agent_ready"] == [({"state": "ready"}, 1)]


@pytest.mark.parametrize(("function", "gpu"), [("nvmlDeviceGetTotalEnergyConsumption", 2), ("*", 0)])
def test_a_gpu_that_does_not_answer_is_shown_as_such(
    agent_fixture: AgentFixture, address: str, function: str, gpu: int
) -> None:
    others = [uuid for index, uuid in enumerate(agent_fixture.uuids) if index != gpu]
    # A GPU that is lost before the agent knows its uuid is shown by its index: tests/agent/test_lost_gpu.py.
    until(lambda: [v for _, v in scraped(address).get("wattloop_gpu_readable", [])] == [1, 1, 1], "the first look")
    agent_fixture.gpus.inject_fault(function, code=15, gpu=gpu)
    readable = [float(index != gpu) for index in range(3)]
    until(lambda: [v for _, v in scraped(address)["wattloop_gpu_readable"]] == readable, "the lost GPU is seen")
    for _ in range(5):
        seen = scraped(address)
        assert [labels["UUID"] for labels, _ in seen["wattloop_gpu_energy_joules"]] == others
        assert set(others) <= {labels["UUID"] for labels, _ in seen["wattloop_gpu_power_watts"]}


def test_guard_rails_that_can_not_be_read_are_a_warning(agent_fixture: AgentFixture) -> None:
    (agent_fixture.state / "monitor").mkdir(parents=True)
    (agent_fixture.state / "monitor" / "bounds.json").write_text("{")
    address = f"127.0.0.1:{free_port()}"
    environment = {**agent_fixture.environment, "WATTLOOP_AGENT_METRICS_BIND": address}
    with single_agent(agent_fixture.socket, agent_fixture.state, environment=environment, log=agent_fixture.log):
        ((labels, value),) = scraped(address)["wattloop_agent_warning"]
    assert value == 1
    assert "bounds.json" in labels["warning"]


def test_an_agent_whose_node_another_power_controller_holds_is_not_ready_until_that_ends(
    agent_fixture: AgentFixture,
) -> None:
    lock = NodeLock(
        Path(agent_fixture.environment["WATTLOOP_AGENT_LOCK_DIRECTORY"]), "process 1 with state folder /elsewhere"
    )
    address = f"127.0.0.1:{free_port()}"
    environment = {**agent_fixture.environment, "WATTLOOP_AGENT_METRICS_BIND": address}
    with single_agent(agent_fixture.socket, agent_fixture.state, environment=environment, log=agent_fixture.log):
        ((labels, value),) = scraped(address)["wattloop_agent_ready"]
        assert value == 0
        assert (
            "another power controller holds this node's GPUs (process 1 with state folder /elsewhere;"
            in labels["state"]
        )
        lock.close()
        until(lambda: scraped(address)["wattloop_agent_ready"] == [({"state": "ready"}, 1)], "it takes over")
