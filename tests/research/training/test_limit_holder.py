"""The power limit of a rank, with a real agent on simulated GPUs."""

import logging
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import nvml_simulator
from support.agents.agent_fixture import until
from support.agents.simulated_node import SimulatedNode, simulated_node
from wattloop.gpus.agent import AgentConnection, AgentRequestError
from wattloop.gpus.agent_process import running_agent
from wattloop_research.training.limit_holder import LimitHolder


class Seconds:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def node() -> Iterator[SimulatedNode]:
    with simulated_node(1) as node:
        yield node


@pytest.fixture
def clock() -> Seconds:
    return Seconds()


def limit_of(gpus: nvml_simulator.Machine) -> float:
    return gpus.describe().gpus[0].power_limit_watts


def held_on(gpus: nvml_simulator.Machine, socket: Path, clock: Seconds) -> LimitHolder:
    return LimitHolder(AgentConnection(socket), [gpus.describe().gpus[0].uuid], clock)


def test_time_counts_from_the_request_of_a_limit_to_the_last_look_at_it(node: SimulatedNode, clock: Seconds) -> None:
    held = held_on(node.gpus, node.socket, clock)
    held.hold(250)
    clock.now = 2.0
    assert held.check() == 2.0
    assert held.was_held(0.0, 2.0)
    assert not held.was_held(0.0, 2.1)
    clock.now = 3.0
    held.hold(200)
    assert limit_of(node.gpus) == 200
    clock.now = 4.0
    held.check()
    # The change is in neither time.
    assert held.was_held(1.0, 3.0)
    assert held.was_held(3.0, 4.0)
    assert not held.was_held(2.5, 3.5)
    held.close()
    assert limit_of(node.gpus) == 400


def test_time_under_the_limit_of_another_program_does_not_count(
    node: SimulatedNode, clock: Seconds, caplog: pytest.LogCaptureFixture
) -> None:
    held = held_on(node.gpus, node.socket, clock)
    held.hold(250)
    clock.now = 1.0
    held.check()
    node.gpus.set_power_limit_as_another_actor(0, 300)
    clock.now = 2.0
    held.check()
    assert held.was_held(0.0, 1.0)
    assert not held.was_held(1.0, 2.0)
    assert "the power limit of 250 W was not in force for a time, which is not measured" in caplog.messages
    clock.now = 3.0
    held.check()
    assert limit_of(node.gpus) == 250
    clock.now = 4.0
    held.check()
    assert held.was_held(3.0, 4.0)
    assert not held.was_held(2.0, 4.0)
    held.close()


def test_time_in_which_the_agent_restarted_does_not_count(clock: Seconds) -> None:
    with tempfile.TemporaryDirectory(prefix="wattloop-", dir="/tmp") as name:
        folder = Path(name)
        state = nvml_simulator.create(folder / "gpus", model="A100", count=1, permission="anyone")
        environment = {"PATH": "/usr/bin:/bin", **nvml_simulator.environment(state)}
        started: list[int] = []
        with (
            nvml_simulator.Machine(state) as gpus,
            running_agent(folder / "agent.sock", folder / "state", environment=environment, on_start=started.append),
        ):
            held = held_on(gpus, folder / "agent.sock", clock)
            held.hold(250)
            clock.now = 1.0
            held.check()
            os.kill(started[0], signal.SIGKILL)
            until(lambda: len(started) > 1, "the agent restarts")
            clock.now = 2.0
            held.check()
            clock.now = 3.0
            held.check()
            clock.now = 4.0
            held.check()
            assert limit_of(gpus) == 250
            assert held.was_held(0.0, 1.0)
            assert not held.was_held(0.5, 2.0)
            assert held.was_held(3.0, 4.0)
            held.close()


def test_a_limit_that_is_refused_is_not_in_force(
    node: SimulatedNode, clock: Seconds, caplog: pytest.LogCaptureFixture
) -> None:
    held = held_on(node.gpus, node.socket, clock)
    with caplog.at_level(logging.WARNING, "wattloop"):
        held.hold(50)
        clock.now = 1.0
        held.check()
    assert not held.was_held(0.0, 1.0)
    assert [text for text in caplog.messages if "the power limit of 50 W is not held" in text] == caplog.messages
    with pytest.raises(AgentRequestError, match="OutOfRange"):
        held.require(50)
    held.close()
