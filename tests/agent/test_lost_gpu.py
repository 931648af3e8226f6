"""A lost GPU is reported as such, and the machine's other GPUs are read, held and restored."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

import nvml_simulator
from support.agents.agent_fixture import AgentFixture, until
from support.agents.scraping import metered_agent
from support.test_sets.parameters import exhaustive_after
from wattloop.gpus.agent import AgentConnection, AgentRequestError
from wattloop_agent.nvml_gpus import NvmlGpus
from wattloop_agent.refusals import Reason, RequestError

GPU_IS_LOST = 15
MINUTE = 60.0


@pytest.fixture
def gpus(agent_fixture: AgentFixture, monkeypatch: pytest.MonkeyPatch) -> Iterator[NvmlGpus]:
    """The agent's GPUs, read in this process."""
    monkeypatch.setenv(nvml_simulator.STATE_VARIABLE, str(agent_fixture.gpus.path))
    nvml_simulator.load()
    gpus = NvmlGpus()
    yield gpus
    gpus.close()


@pytest.mark.parametrize("lost", exhaustive_after([1, 0, 2]))
def test_the_other_gpus_are_held_read_and_restored(agent_fixture: AgentFixture, lost: int) -> None:
    others = [uuid for index, uuid in enumerate(agent_fixture.uuids) if index != lost]
    with agent_fixture.running():
        with AgentConnection(agent_fixture.socket) as connection:
            connection.hold_limit(agent_fixture.uuids, 200)
            # The power controller answers a hold; the monitor must have enumerated the GPUs as well.
            assert [gpu.uuid for gpu in connection.gpus()] == agent_fixture.uuids
            agent_fixture.gpus.inject_fault("*", code=GPU_IS_LOST, gpu=lost)
            with pytest.raises(AgentRequestError, match="is lost") as caught:
                connection.hold_limit([agent_fixture.uuids[lost]], 250)
            assert caught.value.reason == Reason.GPU_LOST
            assert agent_fixture.uuids[lost] in str(caught.value)
            assert [held.held_watts for held in connection.hold_limit(others, 250)] == [250, 250]
            assert [reading.uuid for reading in connection.energy(others)] == others
            gpus_listed = connection.gpus()
            assert [gpu.uuid for gpu in gpus_listed] == agent_fixture.uuids
            assert [gpu.index for gpu in gpus_listed if gpu.power_limits is None] == [lost]
            with pytest.raises(AgentRequestError, match="not restored yet"):
                connection.release()
        assert agent_fixture.limits == [200 if index == lost else 400 for index in range(3)]
        agent_fixture.gpus.clear_faults()
        until(lambda: agent_fixture.limits == [400, 400, 400], "given back as soon as it answers again")


def test_a_gpu_lost_before_the_start_is_found_when_it_answers(
    agent_fixture: AgentFixture, gpus: NvmlGpus, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    agent_fixture.gpus.inject_fault("*", code=GPU_IS_LOST, gpu=1)
    assert [gpu.index for gpu in gpus.all()] == [0, 2]
    assert "NVML can't enumerate GPU 1: " in caplog.text
    with pytest.raises(RequestError, match=r"NVML can't enumerate GPU 1: .*is lost") as caught:
        gpus.gpu(agent_fixture.uuids[1])
    assert caught.value.reason is Reason.UNKNOWN_GPU
    assert list(gpus.unnamed) == [1]
    agent_fixture.gpus.clear_faults()
    monkeypatch.setattr("wattloop_agent.nvml_gpus.time.monotonic", lambda: float("inf"))
    assert [gpu.uuid for gpu in gpus.all()] == agent_fixture.uuids
    assert gpus.unnamed == {}
    assert "NVML enumerates GPU 1 again" in caplog.text


def monitored(agent_fixture: AgentFixture, form: str) -> str:
    command = [sys.executable, "-c", "import sys; from wattloop.commands.main import main; sys.exit(main())"]
    arguments = ["monitor", "--seconds", "0.01", "--format", form]
    done = subprocess.run(
        [*command, *arguments], env=agent_fixture.environment, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.mark.processes
def test_a_gpu_lost_at_the_agents_start_is_shown_and_returns_without_a_restart(agent_fixture: AgentFixture) -> None:
    agent_fixture.gpus.inject_fault("*", code=GPU_IS_LOST, gpu=1)
    others = [agent_fixture.uuids[0], agent_fixture.uuids[2]]
    with metered_agent(agent_fixture) as agent:
        connection = agent.connection
        until(lambda: agent.scraped("wattloop_gpu_unidentified") != [], "the metrics show it", MINUTE)
        ((labels, value),) = agent.scraped("wattloop_gpu_unidentified")
        assert (labels["index"], value) == ("1", 1)
        assert "is lost" in labels["problem"]
        until(lambda: agent.readable() == dict.fromkeys(others, 1.0), "the others are read", MINUTE)
        assert [gpu.uuid for gpu in connection.gpus()] == others
        connection.hold_limit(others, 200)
        with pytest.raises(AgentRequestError, match="NVML can't enumerate GPU 1") as caught:
            connection.hold_limit([agent_fixture.uuids[1]], 200)
        assert caught.value.reason == Reason.UNKNOWN_GPU
        assert [each["index"] for each in json.loads(monitored(agent_fixture, "json"))["lost"]] == [1]
        assert "GPU 1: " in monitored(agent_fixture, "table")

        agent_fixture.gpus.clear_faults()
        until(lambda: agent.readable() == dict.fromkeys(agent_fixture.uuids, 1.0), "it is read again", MINUTE)
        assert agent.scraped("wattloop_gpu_unidentified") == []

        def held_again() -> bool:
            with contextlib.suppress(AgentRequestError):
                return len(connection.hold_limit(agent_fixture.uuids, 150)) == 3
            return False

        until(held_again, "the power controller finds it too", MINUTE)
        assert set(connection.release()) == set(agent_fixture.uuids)
    assert agent_fixture.limits == [400, 400, 400]


def test_if_all_gpus_are_lost_the_error_says_so(agent_fixture: AgentFixture, gpus: NvmlGpus) -> None:
    agent_fixture.gpus.inject_fault("*", code=GPU_IS_LOST)
    with pytest.raises(RequestError, match="is lost"):
        gpus.all()
