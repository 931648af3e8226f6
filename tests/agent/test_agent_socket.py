"""A real agent on simulated GPUs, through the client."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.agents.agent_fixture import AgentFixture, until
from support.agents.processes import holding_process, raw_answer
from wattloop.gpus.agent import AgentConnection, AgentRequestError, AgentUnavailable
from wattloop.gpus.agent_process import start_agent, stop_agent


@pytest.fixture
def connection(agent: AgentFixture) -> Iterator[AgentConnection]:
    with AgentConnection(agent.socket) as connection:
        yield connection
        connection.release()


def test_gpus_are_listed_with_their_limits(agent: AgentFixture, connection: AgentConnection) -> None:
    gpus = connection.gpus()
    assert [gpu.uuid for gpu in gpus] == agent.uuids
    limits = gpus[0].power_limits
    assert (limits.found_watts, limits.current_watts, limits.minimum_watts) == (400, 400, 100)
    assert limits.maximum_watts == 400
    connection.hold_limit([gpus[0].uuid], 150)
    held = connection.gpus()[0].power_limits
    assert (held.found_watts, held.current_watts) == (400, 150)


def test_energy_is_the_counter_on_the_clock_it_was_integrated_on(
    agent: AgentFixture, connection: AgentConnection
) -> None:
    uuid = agent.uuids[1]
    before = connection.energy([uuid])[0]
    seconds = agent.gpus.occupy(uuid, work=312.0 * 30, intensity=1.0)
    after = connection.energy([uuid])[0]
    assert after.clock_seconds - before.clock_seconds == pytest.approx(seconds)
    simulated = agent.gpus.describe().gpus[1]
    assert after.energy_millijoules == simulated.counter_millijoules
    watts = (after.cumulative_millijoules - before.cumulative_millijoules) / 1000 / seconds
    assert 0.9 * 400 < watts <= 400


def test_a_limit_is_held_and_released(agent: AgentFixture, connection: AgentConnection) -> None:
    uuids = agent.uuids[:2]
    held = connection.hold_limit(uuids, 200)
    assert [(each.uuid, each.found_watts, each.held_watts, each.enforced_watts) for each in held] == [
        (uuid, 400, 200, 200) for uuid in uuids
    ]
    assert agent.limits == [200, 200, 400]
    assert {lease.uuid for lease in connection.leases() if lease.yours} == set(uuids)
    assert connection.release() == uuids
    assert connection.release() == []
    assert agent.limits == [400, 400, 400]
    assert connection.leases() == []


def test_a_second_hold_still_restores_what_the_first_found(agent: AgentFixture, connection: AgentConnection) -> None:
    connection.hold_limit(agent.uuids, 200)
    assert {each.found_watts for each in connection.hold_limit(agent.uuids, 150)} == {400}
    connection.release(agent.uuids[:1])
    assert agent.limits == [400, 150, 150]


def test_a_limit_out_of_range_names_both_ranges_and_changes_nothing(
    agent: AgentFixture, connection: AgentConnection
) -> None:
    with pytest.raises(AgentRequestError, match=r"the device accepts 100 to 400 watts, no other bounds") as caught:
        connection.hold_limit(agent.uuids, 99)
    assert caught.value.reason == "OutOfRange"
    assert agent.limits == [400, 400, 400]


def test_clocks_are_locked_at_the_nearest_step_and_unlocked(agent: AgentFixture, connection: AgentConnection) -> None:
    def locked() -> list[object]:
        return [gpu.locked_graphics_clocks_megahertz for gpu in agent.gpus.describe().gpus]

    steps = {held.held_megahertz for held in connection.hold_clocks(agent.uuids[:2], 1003.0)}
    assert steps == {1005.0}
    assert locked() == [(1005, 1005), (1005, 1005), None]
    for megahertz in (900, 1200):
        connection.hold_clocks(agent.uuids[:2], megahertz)
    assert locked() == [(1200, 1200), (1200, 1200), None]
    connection.hold_limit(agent.uuids[:1], 250)
    assert {lease.setting for lease in connection.leases()} == {"graphics_clock", "power_limit"}
    connection.release()
    assert locked() == [None, None, None]
    assert agent.limits == [400, 400, 400]


def test_a_clock_out_of_range_is_refused(agent: AgentFixture, connection: AgentConnection) -> None:
    with pytest.raises(AgentRequestError, match="a graphics clock of 5000 megahertz is out of range") as caught:
        connection.hold_clocks(agent.uuids, 5000)
    assert caught.value.reason == "OutOfRange"


def test_a_gpu_that_another_process_holds_is_refused(agent: AgentFixture, connection: AgentConnection) -> None:
    other = holding_process(agent.socket, 300, agent.uuids[:1])
    for attempt in (lambda: connection.hold_limit(agent.uuids, 200), lambda: connection.release(agent.uuids[:1])):
        with pytest.raises(AgentRequestError) as caught:
            attempt()
        assert caught.value.reason == "NotYours"
    assert agent.limits == [300, 400, 400]
    other.communicate()
    until(lambda: agent.limits == [400, 400, 400], "restored when the process that held it has ended")


def test_one_failing_gpu_leaves_all_gpus_of_the_request_unchanged(
    agent: AgentFixture, connection: AgentConnection
) -> None:
    connection.hold_limit(agent.uuids[:1], 300)
    agent.gpus.inject_fault("nvmlDeviceSetPowerManagementLimit", code=999, gpu=agent.uuids[2], count=1)
    with pytest.raises(AgentRequestError, match=agent.uuids[2]) as caught:
        connection.hold_limit(agent.uuids, 200)
    assert caught.value.reason == "DeviceFailed"
    assert agent.limits == [300, 400, 400]
    assert [lease.uuid for lease in connection.leases()] == agent.uuids[:1]


def test_a_subscription_sends_the_counters_repeatedly(agent: AgentFixture, connection: AgentConnection) -> None:
    readings = connection.subscribe(0.02)
    first = next(readings)
    agent.gpus.occupy(0, work=312.0, intensity=1.0)
    while (second := next(readings))[0].clock_seconds == first[0].clock_seconds:
        pass
    readings.close()
    assert [reading.uuid for reading in first] == agent.uuids
    assert second[0].cumulative_millijoules > first[0].cumulative_millijoules
    assert connection.gpus(), "the connection can be used again"


BAD = {
    "no JSON": b"hello\n",
    "an array": b"[]\n",
    "no verb": b"{}\n",
    "an unknown verb": b'{"verb": "shutdown"}\n',
    "no GPUs": b'{"verb": "hold_limit", "watts": 200}\n',
    "GPUs by index": b'{"verb": "hold_limit", "gpus": [0], "watts": 200}\n',
    "a GPU twice": b'{"verb": "energy", "gpus": ["a", "a"]}\n',
    "not a number": b'{"verb": "hold_limit", "gpus": ["a"], "watts": NaN}\n',
    "true for a number": b'{"verb": "hold_limit", "gpus": ["a"], "watts": true}\n',
    "a text for a number": b'{"verb": "hold_limit", "gpus": ["a"], "watts": "200"}\n',
    "a number beyond all floats": b'{"verb": "hold_limit", "gpus": ["a"], "watts": 1%s}\n' % (b"0" * 400),
    "no time to hold": b'{"verb": "hold_limit", "gpus": ["a"], "watts": 200, "for_seconds": 0}\n',
    "an unknown domain": b'{"verb": "hold_clocks", "gpus": ["a"], "megahertz": 900, "domain": "video"}\n',
    "a list for a domain": b'{"verb": "hold_clocks", "gpus": ["a"], "megahertz": 900, "domain": []}\n',
    "too fast a subscription": b'{"verb": "subscribe", "interval_seconds": 0}\n',
    "thousands of digits": b'{"verb": "hold_limit", "gpus": ["a"], "watts": 1%s}\n' % (b"0" * 5000),
    "deep nesting": b"[" * 50_000 + b"\n",
    "no UTF-8": b"\xff\xfe\n",
}


@pytest.mark.filterwarnings("default")
def test_every_bad_request_is_answered_with_its_error(agent: AgentFixture) -> None:
    logged = len(agent.log.read_text())
    answers = {name: raw_answer(agent.socket, line) for name, line in BAD.items()}
    assert {name: answer["error"]["reason"] for name, answer in answers.items()} == dict.fromkeys(BAD, "BadRequest")
    assert "ERROR" not in agent.log.read_text()[logged:], "neither part failed over any of them"
    messages = {name: answer["error"]["message"] for name, answer in answers.items()}
    assert messages["thousands of digits"].endswith("one line: a whole number of more than 4300 digits")
    assert messages["deep nesting"].endswith("one line: lists or objects nested too deeply")
    too_long = raw_answer(agent.socket, b"x" * 70_000)
    assert too_long["error"]["message"] == "the request is too long: at most 65536 bytes are allowed"
    unknown = raw_answer(agent.socket, b'{"verb": "hold_limit", "gpus": ["GPU-0"], "watts": 200}\n')
    assert unknown["error"]["reason"] == "UnknownGpu"
    assert agent.uuids[0] in unknown["error"]["message"]


def test_without_an_agent_a_client_raises_an_error(folder: Path) -> None:
    with pytest.raises(AgentUnavailable, match="no agent answers"):
        AgentConnection(folder / "agent.sock").energy()


def test_a_client_reconnects_to_a_restarted_agent(agent_fixture: AgentFixture) -> None:
    connection = AgentConnection(agent_fixture.socket)
    for _ in range(2):
        process = agent_fixture.start()
        assert [gpu.uuid for gpu in connection.gpus()] == agent_fixture.uuids
        assert stop_agent(process) == 0
    connection.close()


def test_a_second_agent_on_the_same_socket_is_refused(agent: AgentFixture) -> None:
    with pytest.raises(AgentUnavailable, match="before it served"):
        start_agent(agent.socket, agent.folder / "other", environment=agent.environment, log=agent.log)
    assert "an agent serves it, or it is no socket" in agent.log.read_text()


def test_a_second_agent_on_the_same_state_folder_grants_no_lease(agent: AgentFixture) -> None:
    second = agent.folder / "second.sock"
    # With a lock of the node of its own: only the folder keeps the two apart.
    environment = {**agent.environment, "WATTLOOP_AGENT_LOCK_DIRECTORY": str(agent.folder / "second.locks")}
    process = start_agent(second, agent.state, environment=environment, log=agent.log)
    with AgentConnection(second) as connection, pytest.raises(AgentRequestError, match="another agent uses this state"):
        connection.hold_limit(agent.uuids, 200)
    assert agent.limits == [400, 400, 400]
    assert stop_agent(process) == 0
