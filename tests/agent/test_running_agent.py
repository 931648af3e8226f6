"""A supervised agent is restarted when it dies, and connections survive that."""

import os
import signal
import time
from collections.abc import Iterator

import pytest

from support.agents.agent_fixture import AgentFixture
from support.agents.processes import children_of, program_of, wait_for_end
from wattloop.gpus.agent import AgentConnection, AgentUnavailable
from wattloop.gpus.agent_process import stop_agent


@pytest.fixture
def supervised(agent_fixture: AgentFixture) -> Iterator[AgentFixture]:
    with agent_fixture.supervised():
        yield agent_fixture


def agent_of(agent_fixture: AgentFixture) -> int:
    """The monitor that this process started for the agent fixture."""
    for pid in children_of(os.getpid()):
        if str(agent_fixture.socket) in program_of(pid):
            return pid
    raise AssertionError("no agent")


def test_a_hold_survives_a_restart_of_the_agent(supervised: AgentFixture) -> None:
    with AgentConnection(supervised.socket) as connection:
        connection.hold_limit(supervised.uuids[:2], 200)
        connection.hold_clocks(supervised.uuids[:1], 900)
        connection.release(supervised.uuids[1:2])
        for round_number in (1, 2):
            (power_controller,) = children_of(agent_of(supervised))
            os.kill(agent_of(supervised), signal.SIGKILL)
            wait_for_end(power_controller)
            assert supervised.limits == [400, 400, 400]
            assert len(connection.energy()) == 3, "the request finds the next agent"
            assert connection.interruptions == round_number
            assert supervised.limits == [200, 400, 400]
            assert supervised.gpus.describe().gpus[0].locked_graphics_clocks_megahertz == (900, 900)
        assert [lease.yours for lease in connection.leases()] == [True, True]


def test_an_unsupervised_agent_is_waited_for_once(agent_fixture: AgentFixture) -> None:
    with AgentConnection(agent_fixture.socket, reconnect_seconds=0.3) as connection:
        process = agent_fixture.start()
        connection.hold_limit(agent_fixture.uuids, 200)
        assert stop_agent(process) == 0
        begin = time.monotonic()
        for _ in range(20):
            with pytest.raises(AgentUnavailable):
                connection.energy()
        assert time.monotonic() - begin < 20 * 0.3, "not for each request again"
        with agent_fixture.running():
            assert connection.energy()
            assert agent_fixture.limits == [400, 400, 400], "given up with the agent that went away for good"


def test_the_end_of_the_block_leaves_nothing_behind(agent_fixture: AgentFixture) -> None:
    with agent_fixture.supervised():
        first = agent_of(agent_fixture)
        os.kill(first, signal.SIGKILL)
        with AgentConnection(agent_fixture.socket) as connection:
            connection.hold_limit(agent_fixture.uuids, 200)
            assert agent_of(agent_fixture) != first, "a fresh connection waits for the next agent too"
    assert agent_fixture.limits == [400, 400, 400]
    assert not agent_fixture.socket.exists()


def test_an_agent_that_cannot_be_started_is_an_error_at_once(agent_fixture: AgentFixture) -> None:
    agent_fixture.socket.write_text("in the way")
    with pytest.raises(AgentUnavailable, match="before it served"), agent_fixture.supervised():
        raise AssertionError("entered")
