"""Energy as server-sent events: streams, reconnections and rejected requests."""

import contextlib
import http.client
import json
from collections.abc import Iterator
from http.client import HTTPResponse
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from support.agents.agent_fixture import AgentFixture
from support.free_ports import free_port
from wattloop.commands.settings import Address
from wattloop.energy.gpu_reading import GpuReading
from wattloop.errors import OperationError
from wattloop_agent.monitor.energy.ledger import Ledger
from wattloop_agent.telemetry.serving import EnergyEvents, serve


def sample(second: int) -> GpuReading:
    return GpuReading("GPU-0", second, second, second * 100_000, None, 100.0, second, "NVIDIA H200")


@pytest.fixture
def ledger() -> Ledger:
    ledger = Ledger()
    for second in range(3):
        ledger.add_samples([sample(second)], second)
    return ledger


@pytest.fixture
def address(ledger: Ledger) -> Iterator[Address]:
    address = Address("127.0.0.1", free_port())
    stop = serve(address, CollectorRegistry(), EnergyEvents(ledger))
    yield address
    stop()


@contextlib.contextmanager
def requested(address: Address, target: str, **headers: str) -> Iterator[HTTPResponse]:
    connection = http.client.HTTPConnection(address.host, address.port, timeout=60)
    connection.request("GET", target, headers=headers)
    with contextlib.closing(connection), connection.getresponse() as response:
        yield response


def event(response: HTTPResponse) -> dict[str, str]:
    """The fields of the next event."""
    fields = {}
    while (line := response.readline().decode().rstrip("\n")) != "":
        name, _, value = line.partition(": ")
        fields[name] = value
    return fields


def energy(response: HTTPResponse) -> dict[str, Any]:
    """Return the data of the next energy event."""
    fields = event(response)
    assert fields["event"] == "energy"
    assert fields["id"].isdecimal()
    content: dict[str, Any] = json.loads(fields["data"])
    return content


def test_each_event_has_the_whole_ledger(address: Address, ledger: Ledger) -> None:
    with requested(address, "/v1/energy/events?interval_seconds=1") as response:
        assert (response.status, response.headers["Content-Type"]) == (200, "text/event-stream")
        assert event(response) == {"retry": "2000"}
        first = energy(response)
        assert (first["ledger"], first["usages"]) == (ledger.id, [])
        assert [(gpu["uuid"], gpu["energy_millijoules"]) for gpu in first["gpus"]] == [("GPU-0", 200_000)]
        ledger.add_samples([sample(3)], 3)
        assert energy(response)["gpus"][0]["energy_millijoules"] == 300_000


def test_a_client_that_reconnects_has_missed_nothing(address: Address, ledger: Ledger) -> None:
    with requested(address, "/v1/energy/events") as response:
        event(response)
        last = event(response)["id"]
    ledger.add_samples([sample(9)], 9)
    with requested(address, "/v1/energy/events", **{"Last-Event-ID": last}) as response:
        event(response)
        assert energy(response)["gpus"][0]["energy_millijoules"] == 900_000


def test_an_unknown_path_is_answered_with_the_known_ones(address: Address) -> None:
    with requested(address, "/v1/energy/event") as response:
        assert response.status == 404
        assert response.read() == b"not found; the paths are /metrics, /v1/energy/events, /healthz and /readyz\n"


@pytest.mark.parametrize("interval", ["0", "61", "soon", "nan"])
def test_an_invalid_interval_is_rejected(address: Address, interval: str) -> None:
    with requested(address, f"/v1/energy/events?interval_seconds={interval}") as response:
        assert response.status == 400
        assert f"interval_seconds: found '{interval}', expected a number from 1 to 60" in response.read().decode()


def test_an_address_in_use_is_reported(address: Address, ledger: Ledger) -> None:
    with pytest.raises(OperationError, match=f"metrics at 127.0.0.1:{address.port}: Address already in use"):
        serve(address, CollectorRegistry(), EnergyEvents(ledger))


def test_a_real_agent_streams_its_gpus(agent_fixture: AgentFixture) -> None:
    address = Address("127.0.0.1", free_port())
    with (
        agent_fixture.running(metrics_bind=str(address), sample_interval=0.05),
        requested(address, "/v1/energy/events?interval_seconds=1") as response,
    ):
        event(response)
        uuids: list[str] = []
        while not uuids:
            uuids = [gpu["uuid"] for gpu in energy(response)["gpus"]]
    assert sorted(uuids) == sorted(agent_fixture.uuids)


def test_ids_increase_if_the_wall_clock_is_set_back(ledger: Ledger) -> None:
    days = iter((10.0, 9.0, 9.0, 12.0))
    events = EnergyEvents(ledger, lambda: next(days) * 86400)
    ids = [int(events._event().partition(b"\n")[0].removeprefix(b"id: ")) for _ in range(4)]
    assert ids == sorted(set(ids))
    assert ids[-1] == 12 * 86400 * 1000
