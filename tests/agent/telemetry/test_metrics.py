"""What Prometheus sees of a real agent."""

from __future__ import annotations

import socket
import urllib.request
from collections.abc import Iterator

import pytest
from bench import Bench, until
from processes import single_agent
from prometheus_client.parser import text_string_to_metric_families

from wattloop.agent import AgentConnection, AgentRefused
from wattloop_agent.telemetry.catalogue import CATALOGUE

Scraped = dict[str, list[tuple[dict[str, str], float]]]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def address(bench: Bench) -> Iterator[str]:
    address = f"127.0.0.1:{free_port()}"
    environment = {
        **bench.environment,
        "WATTLOOP_AGENT_METRICS_BIND": address,
        "WATTLOOP_AGENT_SAMPLE_INTERVAL": "0.05",
    }
    with single_agent(bench.socket, bench.state, environment=environment, log=bench.log):
        yield address


def scraped(address: str) -> Scraped:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    return {family.name: [(sample.labels, sample.value) for sample in family.samples] for family in families}


def test_the_families_are_those_of_the_catalogue(address: str) -> None:
    assert set(scraped(address)) == {metric.name for metric in CATALOGUE}


def test_a_gpu_is_named_as_dcgm_names_it_and_its_values_are_the_truth(bench: Bench, address: str) -> None:
    until(lambda: len(scraped(address)["wattloop_gpu_energy_joules"]) == 3, "the first readings")
    labels, joules = scraped(address)["wattloop_gpu_energy_joules"][0]
    assert labels == {
        "UUID": bench.uuids[0],
        "modelName": "NVIDIA A100-SXM4-80GB",
        "Hostname": socket.gethostname(),
    }
    assert joules == pytest.approx(bench.gpus.describe().gpus[0].counter_millijoules / 1000)
    assert [value for _, value in scraped(address)["wattloop_gpu_power_limit_watts"]] == [400, 400, 400]
    assert [value for _, value in scraped(address)["wattloop_gpu_readable"]] == [1, 1, 1]


def test_leases_overriding_and_refusals_are_counted(bench: Bench, address: str) -> None:
    with AgentConnection(bench.socket) as connection:
        connection.hold_limit(bench.uuids[:2], 200)
        with pytest.raises(AgentRefused):
            connection.hold_limit(bench.uuids, 1000)
        bench.gpus.set_power_limit_as_another_actor(1, 250.0)
        until(
            lambda: [v for _, v in scraped(address)["wattloop_gpu_power_limit_overridden"]] == [0, 1],
            "the other actor is seen",
        )
        seen = scraped(address)
    assert seen["wattloop_agent_leases"] == [({"setting": "power_limit"}, 2)]
    assert [value for _, value in seen["wattloop_gpu_power_limit_found_watts"]] == [400, 400]
    assert [value for _, value in seen["wattloop_gpu_power_limit_held_watts"]] == [200, 200]
    assert seen["wattloop_agent_refusals"] == [({"reason": "OutOfRange"}, 1)]
    assert seen["wattloop_agent_ready"] == [({"state": "ready"}, 1)]


def test_a_gpu_that_does_not_answer_is_shown_as_such(bench: Bench, address: str) -> None:
    bench.gpus.inject_fault("nvmlDeviceGetTotalEnergyConsumption", code=15, gpu=bench.uuids[2])
    until(lambda: [v for _, v in scraped(address)["wattloop_gpu_readable"]] == [1, 1, 0], "the lost GPU is seen")
    energies = [labels["UUID"] for labels, _ in scraped(address)["wattloop_gpu_energy_joules"]]
    assert energies == bench.uuids[:2]
