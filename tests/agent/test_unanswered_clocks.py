"""Requests for clocks that are answered only if they are refused, on a real agent."""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from support.agents.agent_fixture import DEADLINE_SECONDS, AgentFixture, until
from support.agents.processes import holding_process
from wattloop.gpus.agent import AgentConnection

SET_CLOCKS = "nvmlDeviceSetGpuLockedClocks"


class Caller:
    """A connection that sends lines, and reads lines."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lines = connection.makefile("rb")

    def send(self, *requests: dict[str, object]) -> None:
        self._connection.sendall(b"".join(json.dumps(each).encode() + b"\n" for each in requests))

    def line(self) -> dict[str, object]:
        line: dict[str, object] = json.loads(self._lines.readline())
        return line

    def move(self, gpus: list[str], *clocks: object, **fields: object) -> None:
        self.send(
            *({"verb": "hold_clocks", "unanswered": True, "gpus": gpus, "megahertz": each, **fields} for each in clocks)
        )

    def close(self) -> None:
        self._lines.close()


@contextmanager
def connected(agent: AgentFixture) -> Iterator[Caller]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(DEADLINE_SECONDS)
        connection.connect(str(agent.socket))
        caller = Caller(connection)
        try:
            yield caller
        finally:
            caller.close()


@pytest.fixture
def caller(agent: AgentFixture) -> Iterator[Caller]:
    with connected(agent) as opened:
        yield opened
        opened.send({"verb": "release"})
        while "unanswered" in (answer := opened.line()):
            pass
        assert "result" in answer


def locked(agent: AgentFixture) -> list[object]:
    pairs = [gpu.locked_graphics_clocks_megahertz for gpu in agent.gpus.describe().gpus]
    return [None if pair is None else pair[0] for pair in pairs]


def test_a_clock_is_held_without_an_answer(agent: AgentFixture, caller: Caller) -> None:
    caller.move(agent.uuids[:2], 900)
    caller.send({"verb": "list"})
    answer = caller.line()
    assert locked(agent) == [900, 900, None]
    assert [(each["setting"], each["held"], each["yours"]) for each in answer["result"]] == [  # type: ignore[attr-defined]
        ("graphics_clock", 900, True)
    ] * 2


def test_of_the_requests_that_wait_only_the_newest_is_executed(agent: AgentFixture, caller: Caller) -> None:
    before = agent.gpus.describe().calls.get(SET_CLOCKS, 0)
    caller.move(agent.uuids[:1], *([900, 1200] * 200), 1005)
    caller.send({"verb": "list"})
    caller.line()
    assert locked(agent) == [1005, None, None]
    # Of 401 requests, 32 at most are replaced at once, and all of a read of 16 KiB have arrived.
    assert agent.gpus.describe().calls[SET_CLOCKS] - before < 401 / 8


def test_requests_for_other_gpus_or_another_clock_replace_none(agent: AgentFixture, caller: Caller) -> None:
    for index, clock in ((0, 900), (1, 1005), (2, 1200)):
        caller.move(agent.uuids[index : index + 1], clock)
    caller.move(agent.uuids[:1], 1215, domain="memory")
    caller.send({"verb": "list"})
    caller.line()
    assert locked(agent) == [900, 1005, 1200]


@pytest.mark.parametrize(
    ("clock", "reason"), [(99_999, "OutOfRange"), (1, "OutOfRange"), ("fast", "BadRequest"), (None, "BadRequest")]
)
def test_a_refusal_is_sent_and_leaves_the_clock_as_it_was(
    agent: AgentFixture, caller: Caller, clock: object, reason: str
) -> None:
    caller.move(agent.uuids[:1], 900)
    caller.move(agent.uuids[:2], clock)
    refusal = caller.line()
    assert refusal["unanswered"] is True
    assert refusal["error"]["reason"] == reason  # type: ignore[index]
    assert locked(agent) == [900, None, None]


def test_a_gpu_that_another_owner_holds_is_refused(agent: AgentFixture, caller: Caller) -> None:
    with holding_process(agent.socket, 200, agent.uuids[:1]) as other:
        caller.move(agent.uuids[:1], 900)
        assert caller.line()["error"]["reason"] == "NotYours"  # type: ignore[index]
        assert locked(agent) == [None, None, None]
        other.communicate("")


@pytest.mark.parametrize("unanswered", [1, "true", None, []])
def test_another_type_for_unanswered_is_a_bad_request(agent: AgentFixture, caller: Caller, unanswered: object) -> None:
    caller.move(agent.uuids[:1], 900, unanswered=unanswered)
    answer = caller.line()
    assert set(answer) == {"error"}
    assert "true or false" in answer["error"]["message"]  # type: ignore[index]


def test_the_end_of_the_process_restores_clocks_that_were_moved_without_an_answer(agent: AgentFixture) -> None:
    program = "\n".join(
        (
            "import json, os, socket, sys",
            "connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)",
            "connection.connect(sys.argv[1])",
            "request = {'verb': 'hold_clocks', 'unanswered': True, 'gpus': sys.argv[2:], 'megahertz': 900}",
            "connection.sendall(json.dumps(request).encode() + b'\\n')",
            "sys.stdin.read()",
        )
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(agent.socket), *agent.uuids], stdin=subprocess.PIPE
    ) as process:
        until(lambda: locked(agent) == [900, 900, 900], "the clocks are held")
        process.send_signal(signal.SIGKILL)
    until(lambda: locked(agent) == [None, None, None], "the clocks are free")


def test_a_release_of_one_setting_leaves_the_others(agent: AgentFixture) -> None:
    with AgentConnection(agent.socket) as connection:
        connection.hold_limit(agent.uuids[:2], 250)
        connection.hold_clocks(agent.uuids[:2], 900)
        assert connection.release(agent.uuids[:1], "graphics_clock") == agent.uuids[:1]
        assert (locked(agent), agent.limits) == ([None, 900, None], [250, 250, 400])
        assert connection.release(setting="power_limit") == agent.uuids[:2]
        assert (locked(agent), agent.limits) == ([None, 900, None], [400, 400, 400])
        connection.release()
        assert locked(agent) == [None, None, None]


def test_the_release_of_an_unknown_setting_is_refused(agent: AgentFixture, caller: Caller) -> None:
    caller.send({"verb": "release", "setting": "voltage"})
    message = caller.line()["error"]["message"]  # type: ignore[index]
    assert message == "found \"setting\" 'voltage', expected one of power_limit, graphics_clock, memory_clock"
