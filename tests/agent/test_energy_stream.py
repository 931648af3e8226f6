"""The agent's stream, as energy windows read it: times of calls, power, processors."""

import json
import time

import pytest

from support.agents.agent_fixture import AgentFixture
from wattloop.energy_monitor.process_sampler import ProcessSampler
from wattloop.energy_monitor.sources import AgentSource
from wattloop.gpus.agent import AgentConnection, AgentRequestError
from wattloop.gpus.agent.answers import entry_of


def test_a_reading_is_between_two_moments_of_the_monotonic_clock_and_has_the_power(agent: AgentFixture) -> None:
    agent.gpus.occupy(0, 3120.0, 0.5)
    with AgentConnection(agent.socket) as connection:
        before = time.monotonic()
        read = connection.energy(agent.uuids)
        after = time.monotonic()
        stream = connection.stream(0.02, agent.uuids[:1])
        first, second = next(stream), next(stream)
        stream.close()  # type: ignore[attr-defined]
    for reading in (*read, *first.gpus, *second.gpus):
        assert before <= reading.begin_seconds <= reading.end_seconds
        assert reading.instant_watts is not None
    assert all(reading.end_seconds <= after for reading in read)
    assert [reading.uuid for reading in second.gpus] == agent.uuids[:1]
    assert second.gpus[0].instant_watts > 200
    assert second.gpus[0].end_seconds > after


def test_a_stream_with_processors_has_their_energy(agent: AgentFixture) -> None:
    with AgentConnection(agent.socket) as connection:
        stream = connection.stream(0.02)
        messages = [next(stream) for _ in range(3)]
        stream.close()  # type: ignore[attr-defined]
    moments = [message.processor_seconds for message in messages]
    assert moments == sorted(moments)
    assert all(joules >= 0 for message in messages for joules in message.processor_joules.values())
    assert all(len(message.gpus) == 3 for message in messages)


def test_processors_that_are_no_boolean_are_refused(agent: AgentFixture) -> None:
    with AgentConnection(agent.socket) as connection:
        connection._transport.send({"verb": "subscribe", "interval_seconds": 1.0, "processors": "yes"})
        with pytest.raises(AgentRequestError, match="found \"processors\" 'yes', expected true or false"):
            connection._transport.answer()


def test_the_gpus_of_the_source_are_those_that_cuda_shows(agent: AgentFixture) -> None:
    for value, shown in ((None, agent.uuids), ("2,0", [agent.uuids[2], agent.uuids[0]]), ("", [])):
        source = AgentSource(str(agent.socket), {} if value is None else {"CUDA_VISIBLE_DEVICES": value})
        assert list(source.open()) == shown
        source.close()


def test_one_stream_serves_all_windows_of_a_process(agent: AgentFixture) -> None:
    source = AgentSource(str(agent.socket), {})
    sampler = ProcessSampler(lambda: source)
    sampler.open()
    sampler.select(agent.uuids[:1])
    sampler.sample()
    sampler.select(agent.uuids[1:2])
    sampler.sample()
    sampler.sample()
    source.close()
    assert set(sampler._timelines) == set(agent.uuids[:2])


def test_a_stream_survives_a_gpu_that_reports_no_power(agent: AgentFixture) -> None:
    agent.gpus.inject_fault("nvmlDeviceGetFieldValues", code=3, gpu=0)
    agent.gpus.inject_fault("nvmlDeviceGetPowerUsage", code=3, gpu=0)
    with AgentConnection(agent.socket) as connection:
        readings = connection.energy(agent.uuids)
    assert [reading.instant_watts is None for reading in readings] == [True, False, False]
    assert json.dumps([entry_of(reading) for reading in readings])
