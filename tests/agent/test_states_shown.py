"""Conditions of the machine in metrics, log and answers; no crash loop."""

import contextlib
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import nvml_simulator
from support.agents.agent_fixture import AgentFixture, until
from support.agents.processes import children_of
from support.agents.scraping import MeteredAgent, metered_agent
from support.free_ports import free_port
from support.test_sets.parameters import exhaustive_after
from wattloop.gpus.agent import AgentConnection, AgentRequestError, AgentUnavailable
from wattloop.gpus.agent_process import stop_agent

pytestmark = pytest.mark.processes

DISK = "size=64k"


@dataclass
class Seen(MeteredAgent):
    """One agent, as those see it who ask it, scrape it, read its log."""

    agent_fixture: AgentFixture

    def is_ready(self) -> bool:
        return self.scraped("wattloop_agent_ready") == [({"state": "ready"}, 1.0)]

    def problem(self) -> str:
        ((labels, value),) = self.scraped("wattloop_agent_ready")
        assert value == 0, "alerts go by the value"
        return labels["state"]

    def refusal(self) -> str:
        with pytest.raises(AgentRequestError) as caught:
            self.connection.hold_limit(self.agent_fixture.uuids, 200)
        assert self.agent_fixture.limits == [400, 400, 400]
        return caught.value.reason


@contextlib.contextmanager
def agent_seen(agent_fixture: AgentFixture) -> Iterator[Seen]:
    with metered_agent(agent_fixture) as agent:
        (power_controller,) = children_of(agent.process.pid)
        yield Seen(agent.metrics, agent.process, agent.connection, agent_fixture)
        assert children_of(agent.process.pid) == [power_controller], "the power controller was started again"


def test_a_missing_driver_is_shown_until_there_is_one(agent_fixture: AgentFixture) -> None:
    elsewhere = agent_fixture.folder / "elsewhere"
    agent_fixture.gpus.path.rename(elsewhere)
    with agent_seen(agent_fixture) as seen:
        until(lambda: "Driver Not Loaded" in seen.problem(), "the metrics say that there is no driver")
        with pytest.raises(AgentRequestError) as caught:
            seen.connection.gpus()
        assert caught.value.reason == "NoDriver"
        assert seen.refusal() == "NoDriver"
        elsewhere.rename(agent_fixture.gpus.path)
        until(seen.is_ready, "the metrics say that all is well")
        assert [gpu.uuid for gpu in seen.connection.gpus()] == agent_fixture.uuids
        seen.connection.hold_limit(agent_fixture.uuids, 200)
        assert agent_fixture.limits == [200, 200, 200]
    assert agent_fixture.limits == [400, 400, 400]
    assert agent_fixture.log.read_text().count("Driver Not Loaded") <= 4, "said once by each part, not at each look"


def test_a_machine_without_a_gpu_is_served(folder: Path) -> None:
    state = nvml_simulator.create(folder / "gpus", count=0, clock="virtual")
    with nvml_simulator.Machine(state) as machine:
        agent_fixture = AgentFixture(folder, machine)
        with agent_seen(agent_fixture) as seen:
            assert seen.connection.gpus() == []
            assert seen.connection.energy() == []
            assert seen.connection.release() == []
            with pytest.raises(AgentRequestError, match="this machine has none") as caught:
                seen.connection.hold_limit(["GPU-1"], 200)
            assert caught.value.reason == "UnknownGpu"
            until(seen.is_ready, "the agent is well")
            assert seen.scraped("wattloop_gpu_readable") == []


def test_a_corrupt_lease_file_is_moved_aside_logged_and_a_warning_in_the_metrics(agent_fixture: AgentFixture) -> None:
    agent_fixture.state.mkdir()
    (agent_fixture.state / "leases.json").write_bytes(b"{")
    with agent_seen(agent_fixture) as seen:
        ((labels, value),) = seen.scraped("wattloop_agent_warning")
        assert value == 1
        assert "leases.json.corrupt-0" in str(labels)
        assert seen.is_ready(), "leases are given out all the same"
        seen.connection.hold_limit(agent_fixture.uuids, 200)
    assert "lease file corrupt" in agent_fixture.log.read_text()
    assert (agent_fixture.state / "leases.json.corrupt-0").read_bytes() == b"{"
    assert agent_fixture.limits == [400, 400, 400]


@contextlib.contextmanager
def agent_on_full_disk(agent_fixture: AgentFixture) -> Iterator[tuple[Seen, Path]]:
    """An agent whose state folder is a disk of its own that is full; gives the file that fills it, too."""
    metrics = f"127.0.0.1:{free_port()}"
    agent_fixture.state.mkdir()
    fill = f"dd if=/dev/zero of={agent_fixture.state}/filler bs=1k count=1000 2> /dev/null"
    disk = f"mount -t tmpfs -o {DISK} tmpfs {agent_fixture.state}; {fill}; test -s {agent_fixture.state}/filler"
    if subprocess.run(["unshare", "--mount", "sh", "-c", disk], capture_output=True, check=False).returncode:
        pytest.skip("this machine lets us mount no disk")
    agent = (
        f"{sys.executable} -m wattloop_agent --socket {agent_fixture.socket} --state-directory {agent_fixture.state} "
        f"--metrics-bind {metrics} --sample-interval 0.05 --ready-descriptor 1 2>> {agent_fixture.log}"
    )
    with subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", f"{disk} && exec {agent}"],
        env=agent_fixture.environment,
        stdout=subprocess.PIPE,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n", agent_fixture.log.read_text()
            (power_controller,) = children_of(process.pid)
            # Its mounts are seen from here through its root.
            with AgentConnection(agent_fixture.socket) as connection:
                seen = Seen(metrics, process, connection, agent_fixture)
                yield seen, Path(f"/proc/{process.pid}/root{agent_fixture.state}/filler")
            assert children_of(process.pid) == [power_controller], "the power controller was started again"
        finally:
            code = stop_agent(process)
        assert code == 0


def fill_up(filler: Path) -> None:
    """Until not a byte more fits."""
    with filler.open("ab", buffering=0) as stream, contextlib.suppress(OSError):
        while stream.write(b"0" * 512):
            pass


def test_on_a_full_disk_no_gpu_is_changed_and_held_ones_are_restored(agent_fixture: AgentFixture) -> None:
    with agent_on_full_disk(agent_fixture) as (seen, filler):
        connection = seen.connection
        assert seen.refusal() == "StateNotDurable"
        assert len(connection.energy()) == 3, "energy can be read all the same"
        assert "No space left on device" in agent_fixture.log.read_text()
        filler.write_bytes(b"")
        connection.hold_limit(agent_fixture.uuids, 200)
        assert agent_fixture.limits == [200, 200, 200]
        fill_up(filler)
        with pytest.raises(AgentRequestError) as caught:
            connection.hold_limit(agent_fixture.uuids, 150)
        assert caught.value.reason == "StateNotDurable"
        assert agent_fixture.limits == [200, 200, 200], "as it was before"
        until(lambda: "No space left" in seen.scraped("wattloop_agent_warning")[0][0]["warning"], "it is shown")
        connection.release()
        assert agent_fixture.limits == [400, 400, 400], "giving back needs no disk"


IN_THE_WAY: dict[str, Callable[[Path], object]] = {
    "a file": Path.touch,
    "a folder": Path.mkdir,
    "a link to nowhere": lambda path: path.symlink_to("nowhere"),
}


@pytest.mark.parametrize("what", exhaustive_after(IN_THE_WAY))
def test_a_file_at_the_sockets_path_is_left_and_reported(what: str, agent_fixture: AgentFixture) -> None:
    IN_THE_WAY[what](agent_fixture.socket)
    before = agent_fixture.socket.lstat()
    with pytest.raises(AgentUnavailable, match="before it served"):
        agent_fixture.start()
    assert agent_fixture.socket.lstat().st_ino == before.st_ino, "not ours to remove"
    assert "cannot listen there: an agent serves it, or it is no socket" in agent_fixture.log.read_text()


def test_the_socket_of_a_dead_agent_is_replaced(agent_fixture: AgentFixture) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(str(agent_fixture.socket))
    with agent_seen(agent_fixture) as seen:
        assert [gpu.uuid for gpu in seen.connection.gpus()] == agent_fixture.uuids
