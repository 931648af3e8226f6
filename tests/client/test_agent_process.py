"""An agent that cannot be started is said to be; tests/agent/test_running_agent.py has those that can."""

from __future__ import annotations

from pathlib import Path

import pytest

from wattloop.agent import AgentUnavailable
from wattloop.agent_process import start_agent


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_log_that_cannot_be_written_is_said_and_nothing_is_left_open(tmp_path: Path) -> None:
    before = open_files()
    with pytest.raises(AgentUnavailable, match=r"the agent for .*agent.sock cannot be started: .*Is a directory"):
        start_agent(tmp_path / "agent.sock", tmp_path / "state", log=tmp_path)
    assert open_files() == before
