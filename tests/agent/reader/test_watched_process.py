"""A process that ends is noticed, with pidfds and without; one that gets its pid later is another."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from wattloop_agent.reader import watched_process
from wattloop_agent.reader.processes import ProcessCallers
from wattloop_agent.reader.watched_process import WatchedProcess
from wattloop_agent.refusal import Refused

# A process that waits for its standard input to close, and ends.
WAITS = [sys.executable, "-S", "-c", "import sys; sys.stdin.read()"]


@pytest.fixture(params=["with pidfds", "without pidfds"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "without pidfds":

        def refused(pid: int) -> int:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

        monkeypatch.setattr(os, "pidfd_open", refused)
        monkeypatch.setattr(watched_process, "_SO_PEERPIDFD", -1)
        monkeypatch.setattr(watched_process, "LOOK_AGAIN_SECONDS", 0.01)
    return str(request.param)


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(WAITS, stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def test_the_end_of_a_process_is_told_once(kernel: str, process: subprocess.Popen[bytes]) -> None:
    told: list[str] = []

    async def watch() -> None:
        ended = asyncio.Event()
        WatchedProcess.opened(process.pid).when_ended(lambda: (told.append("ended"), ended.set())[-1])
        assert told == []
        process.kill()
        await asyncio.wait_for(ended.wait(), 10)

    asyncio.run(watch())
    assert told == ["ended"]


def test_a_process_that_has_ended_cannot_be_watched(kernel: str, process: subprocess.Popen[bytes]) -> None:
    watched = WatchedProcess.opened(process.pid)
    assert not watched.has_ended()
    process.kill()
    process.wait()
    assert watched.has_ended()
    watched.close()
    with pytest.raises(ProcessLookupError):
        WatchedProcess.opened(process.pid)


def test_a_zombie_has_ended(kernel: str, process: subprocess.Popen[bytes]) -> None:
    watched = WatchedProcess.opened(process.pid)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert watched.has_ended()
    watched.close()


def test_the_peer_of_a_connection_is_the_process_that_made_it(kernel: str) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        peer = ProcessCallers(lambda _: None).peer(ours)
        owner = asyncio.run(peer.caller()).owner
        peer.close()
    assert owner.split(":")[:2] == ["process", str(os.getpid())]


def test_an_owner_is_not_the_process_that_has_its_pid_now(kernel: str) -> None:
    gone: list[str] = []
    callers = ProcessCallers(gone.append)
    mine = f"process:{os.getpid()}:{watched_process.start_ticks(os.getpid())}"
    assert callers.alive(mine)
    assert not callers.alive(f"process:{os.getpid()}:1")
    assert callers.alive("pod:somebody"), "in doubt: yes"


def test_a_connection_whose_process_is_gone_is_nobodys(kernel: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind("\0wattloop-test-" + os.urandom(8).hex())
        listening.listen()
        name = bytes(listening.getsockname()).decode()
        script = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect('\\0' + sys.argv[1])"
        subprocess.run([sys.executable, "-S", "-c", script, name[1:]], check=True)
        connection, _ = listening.accept()
        with connection, pytest.raises(Refused, match="is gone"):
            ProcessCallers(lambda _: None).peer(connection)
