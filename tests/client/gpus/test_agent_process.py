"""When an agent is restarted after it ends; tests/agent/test_running_agent.py kills real agents."""

import contextlib
import gc
import itertools
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from wattloop.gpus import agent_process
from wattloop.gpus.agent import AgentUnavailable
from wattloop.gpus.agent_process import (
    LONG_RUN_SECONDS,
    MAX_BACKOFF_SECONDS,
    MAX_FAILURES,
    AgentSupervisor,
    backoff_seconds,
    start_agent,
)

Agent = subprocess.Popen[bytes]
EXITS = [sys.executable, "-S", "-c", "raise SystemExit(3)"]
WAITS = [sys.executable, "-S", "-c", "import sys; sys.stdin.read()"]
LONG = LONG_RUN_SECONDS


def exits_immediately() -> Agent:
    return subprocess.Popen(EXITS)


def killed(process: Agent) -> int:
    process.kill()
    return process.wait()


def delays(start: Callable[[], Agent], runs_seconds: Sequence[float]) -> list[float]:
    """The delay after each run, if agents run for these times by the supervisor's clock."""
    moments = itertools.chain.from_iterable((0.0, seconds) for seconds in runs_seconds)
    waited: list[float] = []

    def stopped_within(seconds: float) -> bool:
        waited.append(seconds)
        return len(waited) == len(runs_seconds)

    AgentSupervisor(start, killed, clock=moments.__next__, stopped_within=stopped_within).run()
    return waited


def test_restarts_of_an_agent_that_keeps_ending_soon_back_off() -> None:
    assert delays(exits_immediately, [1.0] * 5) == [0.0, 0.1, 0.2, 0.4, 0.8]


def test_an_agent_that_ran_for_long_is_restarted_immediately() -> None:
    assert delays(exits_immediately, [1.0, 1.0, LONG, 1.0, 1.0]) == [0.0, 0.1, 0.0, 0.0, 0.1]


def test_the_backoff_never_shrinks_and_is_bounded() -> None:
    found = [backoff_seconds(short_runs) for short_runs in range(5000)]
    assert found == sorted(found)
    assert (found[1], found[-1]) == (0.0, MAX_BACKOFF_SECONDS)


def test_the_supervisor_gives_up_after_repeated_failures_and_logs_it(caplog: pytest.LogCaptureFixture) -> None:
    starts: list[str] = []

    def starts_once() -> Agent:
        starts.append("")
        if len(starts) > 1:
            raise AgentUnavailable("cannot be started")
        return exits_immediately()

    AgentSupervisor(starts_once, killed, clock=lambda: 0.0, stopped_within=lambda _: False).run()
    assert len(starts) == 1 + MAX_FAILURES
    assert "no power limit is held" in caplog.messages[-1]


def test_stop_during_the_backoff_prevents_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_process, "MAX_BACKOFF_SECONDS", 3600.0)
    monkeypatch.setattr(agent_process, "FIRST_BACKOFF_SECONDS", 3600.0)
    starts: list[Agent] = []
    second_ended = threading.Event()

    def start() -> Agent:
        starts.append(exits_immediately())
        return starts[-1]

    def clock() -> float:
        if len(starts) == 2 and starts[-1].returncode is not None:
            second_ended.set()
        return 0.0

    supervisor = AgentSupervisor(start, killed, clock=clock)
    thread = threading.Thread(target=supervisor.run)
    thread.start()
    assert second_ended.wait(60)
    supervisor.stop()
    thread.join(60)
    assert not thread.is_alive()
    assert len(starts) == 2


def test_stop_at_the_end_of_the_backoff_prevents_a_restart(caplog: pytest.LogCaptureFixture) -> None:
    starts: list[Agent] = []

    def start() -> Agent:
        starts.append(exits_immediately())
        return starts[-1]

    def stopped_meanwhile(_: float) -> bool:
        supervisor.stop()
        return False

    supervisor = AgentSupervisor(start, killed, stopped_within=stopped_meanwhile)
    supervisor.run()
    assert len(starts) == 1
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def test_stop_ends_a_running_agent() -> None:
    with subprocess.Popen(WAITS, stdin=subprocess.PIPE) as process:
        supervisor = AgentSupervisor(lambda: process, killed)
        thread = threading.Thread(target=supervisor.run)
        thread.start()
        supervisor.stop()
        thread.join(60)
        assert not thread.is_alive()
        assert process.returncode is not None


def open_files() -> set[tuple[str, Path]]:
    """The descriptors of this process, with what they refer to."""
    found = set()
    for each in list(Path("/proc/self/fd").iterdir()):
        # That of the folder itself is closed by now.
        with contextlib.suppress(FileNotFoundError):
            found.add((each.name, each.readlink()))
    return found


def test_an_unwritable_log_is_an_error_and_leaves_no_file_open(tmp_path: Path) -> None:
    # A file that an earlier test lost would be closed meanwhile, and its number taken again.
    gc.collect()
    before = open_files()
    with pytest.raises(AgentUnavailable, match=r"the agent for .*agent.sock cannot be started: .*Is a directory"):
        start_agent(tmp_path / "agent.sock", tmp_path / "state", log=tmp_path)
    assert open_files() <= before
