"""When an agent that ended is started again; tests/agent/test_running_agent.py has real agents that are killed."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattloop import agent_supervisor
from wattloop.agent import AgentUnavailable
from wattloop.agent_supervisor import (
    LONG_RUN_SECONDS,
    MAX_FAILURES,
    MAX_PAUSE_SECONDS,
    AgentSupervisor,
    RestartPause,
)

Agent = subprocess.Popen[bytes]
ENDS_AT_ONCE = [sys.executable, "-S", "-c", "raise SystemExit(3)"]
WAITS = [sys.executable, "-S", "-c", "import sys; sys.stdin.read()"]
LONG = LONG_RUN_SECONDS


def dies_at_once() -> Agent:
    return subprocess.Popen(ENDS_AT_ONCE)


def ended(process: Agent) -> int:
    process.kill()
    return process.wait()


def pauses(start: Callable[[], Agent], runs_seconds: Sequence[float]) -> list[float]:
    """How long is waited after each run, where agents run so long by the supervisor's clock."""
    moments = itertools.chain.from_iterable((0.0, seconds) for seconds in runs_seconds)
    waited: list[float] = []

    def ends_within(seconds: float) -> bool:
        waited.append(seconds)
        return len(waited) == len(runs_seconds)

    AgentSupervisor(start, ended, clock=moments.__next__, ends_within=ends_within).keep()
    return waited


def test_an_agent_that_dies_soon_after_each_start_is_started_ever_later() -> None:
    assert pauses(dies_at_once, [1.0] * 5) == [0.0, 0.1, 0.2, 0.4, 0.8]


def test_an_agent_that_ran_for_long_is_started_again_at_once() -> None:
    assert pauses(dies_at_once, [1.0, 1.0, LONG, 1.0, 1.0]) == [0.0, 0.1, 0.0, 0.0, 0.1]


@given(st.lists(st.floats(0, 2 * LONG), max_size=60))
def test_a_pause_is_bounded_and_grows_until_an_agent_runs_for_long(runs_seconds: list[float]) -> None:
    pause, before = RestartPause(), 0.0
    for ran in runs_seconds:
        seconds = pause.after(ran)
        assert 0.0 <= seconds <= MAX_PAUSE_SECONDS
        assert seconds == 0.0 if ran >= LONG else seconds >= before
        before = seconds


def test_an_agent_that_never_runs_for_long_is_tried_at_the_longest_pause_for_ever() -> None:
    pause = RestartPause()
    assert [pause.after(0.0) for _ in range(5000)][-1] == MAX_PAUSE_SECONDS


def test_an_agent_that_cannot_be_started_again_is_given_up_and_that_is_said(caplog: pytest.LogCaptureFixture) -> None:
    starts: list[str] = []

    def starts_once() -> Agent:
        starts.append("")
        if len(starts) > 1:
            raise AgentUnavailable("no agent is here")
        return dies_at_once()

    AgentSupervisor(starts_once, ended, clock=lambda: 0.0, ends_within=lambda _: False).keep()
    assert len(starts) == 1 + MAX_FAILURES
    assert "no power limit is held" in caplog.messages[-1]


def test_told_to_end_in_a_pause_it_starts_none_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_supervisor, "MAX_PAUSE_SECONDS", 3600.0)
    monkeypatch.setattr(agent_supervisor, "FIRST_PAUSE_SECONDS", 3600.0)
    starts: list[Agent] = []
    second_ended = threading.Event()

    def start() -> Agent:
        starts.append(dies_at_once())
        return starts[-1]

    def clock() -> float:
        if len(starts) == 2 and starts[-1].returncode is not None:
            second_ended.set()
        return 0.0

    supervisor = AgentSupervisor(start, ended, clock=clock)
    thread = threading.Thread(target=supervisor.keep)
    thread.start()
    assert second_ended.wait(60)
    supervisor.end()
    thread.join(60)
    assert not thread.is_alive()
    assert len(starts) == 2


def test_told_to_end_just_as_a_pause_is_over_it_starts_none_any_more(caplog: pytest.LogCaptureFixture) -> None:
    starts: list[Agent] = []

    def start() -> Agent:
        starts.append(dies_at_once())
        return starts[-1]

    def is_told_meanwhile(_: float) -> bool:
        supervisor.end()
        return False

    supervisor = AgentSupervisor(start, ended, ends_within=is_told_meanwhile)
    supervisor.keep()
    assert len(starts) == 1
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def test_told_to_end_while_the_agent_runs_it_ends_it() -> None:
    with subprocess.Popen(WAITS, stdin=subprocess.PIPE) as process:
        supervisor = AgentSupervisor(lambda: process, ended)
        thread = threading.Thread(target=supervisor.keep)
        thread.start()
        supervisor.end()
        thread.join(60)
        assert not thread.is_alive()
        assert process.returncode is not None
