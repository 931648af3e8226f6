"""A part of the monitor that ends, at an arbitrary instruction, ends the monitor, and its supervisor starts another."""

import subprocess
import sys
from collections.abc import Iterator

import httpx
import pytest
from prometheus_client import CollectorRegistry

from support.agents.agent_fixture import AgentFixture
from support.free_ports import free_port
from support.python_path import PYTHON_PATH
from support.test_sets.parameters import exhaustive_after
from wattloop.commands.settings import Address
from wattloop.threads import WatchedThread
from wattloop_agent.monitor.energy.ledger import Ledger
from wattloop_agent.telemetry.serving import EnergyEvents, serve

# docs/internals/threads.md says what an exception in each of them does.
THREADS = ["owners", "nvml", "push", "metrics"]
TASKS = ["accept", "sweep", "energy-recorder", "loop-progress"]
# The names of what is watched once the agent serves, of which it then ends one, or prints them.
PROGRAM = """
import asyncio, sys, threading
from support.ended_threads import end_thread, watched_names
from wattloop.commands.entry import main
from wattloop_agent.monitor import loop_watchdog
from wattloop_agent.monitor_main import _Monitor

def end(name):
    if name == "none":
        print(*watched_names(), sep=",", flush=True)
        return
    if any(each.name == name for each in threading.enumerate()):
        end_thread(name)
    for task in asyncio.all_tasks():
        if task.get_name() == name:
            task.cancel()

def ready(self):
    end(sys.argv[1])
    if sys.argv[1] == "none":
        self._end("the names are known")

_Monitor._notify_ready = ready
sys.exit(main(["agent", *sys.argv[2:]]))
"""


def agent_that_ends(fixture: AgentFixture, name: str) -> subprocess.CompletedProcess[str]:
    """Run an agent of which a part ends as soon as it serves, until the agent ends."""
    token = fixture.folder / "token"
    token.write_text("token")
    options = ["--socket", fixture.socket, "--state-directory", fixture.state]
    options += ["--metrics-bind", f"127.0.0.1:{free_port()}", "--sample-interval", "0.1"]
    options += ["--push-url", f"http://127.0.0.1:{free_port()}", "--push-token-file", token, "--node-name", "node"]
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, name, *map(str, options)],
        env=fixture.environment | {"PYTHONPATH": PYTHON_PATH},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_every_part_of_the_monitor_is_watched(agent_fixture: AgentFixture) -> None:
    done = agent_that_ends(agent_fixture, "none")
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.strip().split(",")) == {"wattloop-interruption", *THREADS, *TASKS}


# One thread and one task: all others are watched in the same way, as the test above shows.
@pytest.mark.parametrize(
    "name", exhaustive_after(["nvml", "sweep", *sorted({*THREADS, *TASKS} - {"nvml", "sweep"})], usual=2)
)
def test_the_monitor_ends_when_a_part_of_it_has_ended(agent_fixture: AgentFixture, name: str) -> None:
    done = agent_that_ends(agent_fixture, name)
    assert done.returncode == 1, done.stderr
    kind = "thread" if name in THREADS else "task"
    assert f"the {kind} {name} has ended" in done.stderr


@pytest.fixture
def url() -> Iterator[str]:
    """An agent that grants no leases, by its HTTP endpoints."""
    port = free_port()
    address = Address("127.0.0.1", port)
    stop = serve(address, CollectorRegistry(), EnergyEvents(Ledger()), not_ready=lambda: "no driver")
    yield f"http://127.0.0.1:{port}"
    stop()


def test_an_agent_that_grants_no_leases_is_live_and_not_ready_with_the_reason(url: str) -> None:
    live, ready = (httpx.get(f"{url}/{name}") for name in ("healthz", "readyz"))
    assert (live.status_code, live.text) == (200, "ok\n")
    assert (ready.status_code, ready.text) == (503, "no driver\n")


def test_the_agents_health_names_the_part_that_has_ended(url: str) -> None:
    thread = WatchedThread(lambda: None, "nvml")
    try:
        thread.start()
        thread.join()
        answer = httpx.get(f"{url}/healthz")
        assert (answer.status_code, answer.text) == (503, "the thread nvml has ended\n")
    finally:
        thread.release()
