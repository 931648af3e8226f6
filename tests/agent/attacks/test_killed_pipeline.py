"""A rank under a frequency plan while its agent, or the rank itself, is killed or stopped."""

import logging
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from support.agents.agent_fixture import AgentFixture, until
from support.agents.processes import children_of
from wattloop.gpus.agent_process import stop_agent
from wattloop.pipeline import Pipeline

pytestmark = pytest.mark.processes

STEPS = ("forward", "backward")
CLOCKS = (1200, 900)
FREE = [None, None, None]


@contextmanager
def agent_of(agent_fixture: AgentFixture) -> Iterator[subprocess.Popen[bytes]]:
    process = agent_fixture.start()
    try:
        yield process
    finally:
        stop_agent(process)


@pytest.fixture
def pipeline(agent_fixture: AgentFixture) -> Iterator[Callable[[], Pipeline]]:
    """Makes a pipeline of one rank under a plan, which is closed at the end."""
    made: list[Pipeline] = []

    def make() -> Pipeline:
        made.append(
            Pipeline(
                stage=0,
                stages=1,
                microbatches=1,
                plan=CLOCKS,
                instructions=[f"{kind}:0:0" for kind in STEPS],
                environment={"WATTLOOP_AGENT_SOCKET": str(agent_fixture.socket)},
            )
        )
        return made[-1]

    yield make
    for each in made:
        each.close()


def locked(agent_fixture: AgentFixture) -> list[int | None]:
    pairs = [gpu.locked_graphics_clocks_megahertz for gpu in agent_fixture.gpus.describe().gpus]
    return [None if pair is None else pair[0] for pair in pairs]


def iterate(pipeline: Pipeline, agent_fixture: AgentFixture | None = None) -> None:
    """One iteration; with a fixture, wait in each instruction until the GPUs have its clock."""
    with pipeline.iteration():
        for kind, clock in zip(STEPS, CLOCKS, strict=True):
            with pipeline.instruction(kind, microbatch=0):
                if agent_fixture is not None:
                    until(lambda clock=clock: locked(agent_fixture) == [clock] * 3, f"the clock is {clock}")


def test_clocks_are_free_after_the_agent_is_killed_and_follow_the_plan_with_the_next_agent(
    agent_fixture: AgentFixture, pipeline: Callable[[], Pipeline], caplog: pytest.LogCaptureFixture
) -> None:
    with agent_of(agent_fixture) as agent:
        rank = pipeline()
        iterate(rank, agent_fixture)
        agent.kill()
        until(lambda: locked(agent_fixture) == FREE, "the power controller has restored every GPU")
        for _ in range(100):
            iterate(rank)
    assert rank.refusal == ""
    caplog.set_level(logging.WARNING)
    with agent_of(agent_fixture):
        for _ in range(3):
            iterate(rank, agent_fixture)
        assert rank.iterations == 104
        rank.close()
        assert locked(agent_fixture) == FREE
    messages = [record.getMessage() for record in caplog.records]
    assert [message.split(":")[0] for message in messages] == [
        "the clocks of this rank's instructions are free until an agent holds them",
        "the agent holds the clocks of this rank's instructions again",
    ]


def test_the_plan_goes_on_after_its_power_controller_is_killed(
    agent_fixture: AgentFixture, pipeline: Callable[[], Pipeline]
) -> None:
    with agent_of(agent_fixture) as agent:
        rank = pipeline()
        iterate(rank, agent_fixture)
        (power_controller,) = children_of(agent.pid)
        subprocess.run(["kill", "-KILL", str(power_controller)], check=True)
        for _ in range(3):
            iterate(rank, agent_fixture)
        rank.close()
        assert locked(agent_fixture) == FREE


def test_an_agent_that_stops_does_not_stop_the_training_and_then_sets_the_newest_clock(
    agent_fixture: AgentFixture, pipeline: Callable[[], Pipeline]
) -> None:
    with agent_of(agent_fixture) as agent:
        rank = pipeline()
        iterate(rank, agent_fixture)
        before = agent_fixture.gpus.describe().calls["nvmlDeviceSetGpuLockedClocks"]
        agent.send_signal(signal.SIGSTOP)
        try:
            for _ in range(500):
                iterate(rank)
            assert rank.iterations == 501
        finally:
            agent.send_signal(signal.SIGCONT)
        with rank.iteration(), rank.instruction("forward", microbatch=0):
            until(lambda: locked(agent_fixture) == [1200] * 3, "the newest clock is set")
        changes = agent_fixture.gpus.describe().calls["nvmlDeviceSetGpuLockedClocks"] - before
        rank.close()
        assert changes < 3 * 100, "of a thousand clocks, those that were superseded are not set"


RANK = """
import sys
from wattloop.pipeline import Pipeline
pipeline = Pipeline(
    stage=0, stages=1, microbatches=1, plan=[1200], instructions=["forward:0:0"],
    environment={"WATTLOOP_AGENT_SOCKET": sys.argv[1]},
)
with pipeline.iteration(), pipeline.instruction("forward", microbatch=0):
    print("running", flush=True)
    sys.stdin.read()
"""


def test_the_clocks_of_a_killed_rank_are_restored(agent_fixture: AgentFixture) -> None:
    with agent_of(agent_fixture):
        command = [sys.executable, "-c", RANK, str(agent_fixture.socket)]
        with subprocess.Popen(command, stdin=subprocess.PIPE) as rank:
            until(lambda: locked(agent_fixture) == [1200] * 3, "the rank holds its clock")
            rank.kill()
        until(lambda: locked(agent_fixture) == FREE, "every GPU is restored")
