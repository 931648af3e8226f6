"""Log lines with names from the driver or from callers."""

import io
import json
import logging
import sys
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.agents.agent_fixture import AgentFixture, until
from support.agents.processes import raw_answer
from wattloop.printable import MAX_TEXT_CHARACTERS
from wattloop_agent.agent_logs import set_up_logs

Logged = Callable[..., str]
ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=("Cs",)), max_size=100)


@pytest.fixture(params=["text", "json"])
def logged(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Logged]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    set_up_logs(request.param, "info")

    def log(message: str, **fields: str) -> str:
        stream.seek(0)
        stream.truncate()
        logging.getLogger("wattloop_agent").info(message, extra=fields)
        return stream.getvalue()

    log.form = request.param  # type: ignore[attr-defined]
    yield log
    root.handlers[:] = handlers
    root.setLevel(level)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ANY_TEXT, ANY_TEXT)
def test_a_record_with_any_name_is_one_printable_line(logged: Logged, message: str, name: str) -> None:
    line = logged(f"GPU {message}", gpu=name)
    assert line.endswith("\n")
    assert line[:-1].isprintable()
    if logged.form == "json":  # type: ignore[attr-defined]
        assert json.loads(line)["gpu"] == name


def test_a_field_is_bounded(logged: Logged) -> None:
    line = logged("rejected", problem="x" * 100 * MAX_TEXT_CHARACTERS)
    assert MAX_TEXT_CHARACTERS < len(line) < MAX_TEXT_CHARACTERS + 200


def test_a_caller_cannot_forge_a_line_of_a_real_agents_log(agent_fixture: AgentFixture) -> None:
    forged = "GPU-0\n12:00:00 INFO wattloop_agent.monitor.leases: owner gone owner=pod:victim\x1b[2J\u202e"
    request = json.dumps({"verb": "hold_limit", "gpus": [forged], "watts": 200}).encode() + b"\n"
    with agent_fixture.running():
        assert raw_answer(agent_fixture.socket, request)["error"]["reason"] == "UnknownGpu"
        until(lambda: "pod:victim" in agent_fixture.log.read_text(), "the refusal is logged")
    lines = agent_fixture.log.read_text().split("\n")
    assert all(line.isprintable() for line in lines)
    (line,) = [line for line in lines if "pod:victim" in line]
    assert "GPU-0\\n12:00:00 INFO" in line
