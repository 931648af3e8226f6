"""An agent that is started again when it dies, and connections that live through it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

from support.agents.bench import Bench
from support.agents.processes import children_of, single_agent, wait_for_end
from wattloop.agent import AgentConnection, AgentUnavailable
from wattloop.agent_process import end_agent, running_agent, start_agent


@pytest.fixture
def kept(bench: Bench) -> Iterator[Bench]:
    with running_agent(bench.socket, bench.state, environment=bench.environment, log=bench.log):
        yield bench


def agent_of(bench: Bench) -> int:
    """The monitor that this process started and that serves the bench."""
    for pid in children_of(os.getpid()):
        with open(f"/proc/{pid}/cmdline", "rb") as stream:  # noqa: PTH123
            if str(bench.socket).encode() in stream.read():
                return pid
    raise AssertionError("no agent")


def test_a_hold_outlives_the_agent_for_the_process_that_made_it(kept: Bench) -> None:
    with AgentConnection(kept.socket) as connection:
        connection.hold_limit(kept.uuids[:2], 200)
        connection.hold_clocks(kept.uuids[:1], 900)
        connection.release(kept.uuids[1:2])
        for round_number in (1, 2):
            (power_controller,) = children_of(agent_of(kept))
            os.kill(agent_of(kept), signal.SIGKILL)
            wait_for_end(power_controller)
            assert kept.limits == [400, 400, 400]
            assert len(connection.energy()) == 3, "the request finds the next agent"
            assert connection.interruptions == round_number
            assert kept.limits == [200, 400, 400]
            assert kept.gpus.describe().gpus[0].locked_graphics_clocks_megahertz == (900, 900)
        assert [lease.yours for lease in connection.leases()] == [True, True]


def test_an_agent_that_is_not_kept_is_waited_for_once(bench: Bench) -> None:
    with AgentConnection(bench.socket, patience_seconds=0.3) as connection:
        process = start_agent(bench.socket, bench.state, environment=bench.environment, log=bench.log)
        connection.hold_limit(bench.uuids, 200)
        assert end_agent(process) == 0
        begin = time.monotonic()
        for _ in range(20):
            with pytest.raises(AgentUnavailable):
                connection.energy()
        assert time.monotonic() - begin < 20 * 0.3, "not for each request again"
        with single_agent(bench.socket, bench.state, environment=bench.environment, log=bench.log):
            assert connection.energy()
            assert bench.limits == [400, 400, 400], "given up with the agent that went away for good"


def test_nothing_is_left_when_the_block_ends(bench: Bench) -> None:
    with running_agent(bench.socket, bench.state, environment=bench.environment, log=bench.log):
        first = agent_of(bench)
        os.kill(first, signal.SIGKILL)
        with AgentConnection(bench.socket) as connection:
            connection.hold_limit(bench.uuids, 200)
            assert agent_of(bench) != first, "a fresh connection waits for the next agent too"
    assert bench.limits == [400, 400, 400]
    assert not bench.socket.exists()


def test_an_agent_that_cannot_be_started_is_said_at_once(bench: Bench) -> None:
    bench.socket.write_text("in the way")
    with (
        pytest.raises(AgentUnavailable, match="before it served"),
        running_agent(bench.socket, bench.state, environment=bench.environment, log=bench.log),
    ):
        raise AssertionError("entered")
