"""The end of a process is noticed, with and without pidfds; a reused pid is another process."""

import asyncio
import errno
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from wattloop_agent.monitor import watched_process
from wattloop_agent.monitor.identity import ProcessAuthenticator
from wattloop_agent.monitor.watched_process import WatchedProcess, start_ticks
from wattloop_agent.refusals import Reason, RequestError

# A process that waits for its standard input to close, and ends.
WAITS = [sys.executable, "-S", "-c", "import sys; sys.stdin.read()"]


@pytest.fixture(params=["with pidfds", "without pidfds"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "without pidfds":

        def refused(pid: int) -> int:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

        monkeypatch.setattr(os, "pidfd_open", refused)
        monkeypatch.setattr(watched_process, "_SO_PEERPIDFD", -1)
        monkeypatch.setattr(watched_process, "POLL_SECONDS", 0.01)
    return str(request.param)


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(WAITS, stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def test_the_end_of_a_process_is_reported_once(kernel: str, process: subprocess.Popen[bytes]) -> None:
    events: list[str] = []

    async def watch() -> None:
        ended = asyncio.Event()
        WatchedProcess.opened(process.pid).when_ended(lambda: (events.append("ended"), ended.set())[-1])
        assert events == []
        process.kill()
        await asyncio.wait_for(ended.wait(), 10)

    asyncio.run(watch())
    assert events == ["ended"]


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


def test_the_peer_of_a_connection_is_the_process_that_opened_it(kernel: str) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        peer = ProcessAuthenticator().peer(ours)
        owner = asyncio.run(peer.caller()).owner
        peer.close()
    assert owner.split(":")[:2] == ["process", str(os.getpid())]


def test_a_process_with_a_reused_pid_is_another_owner(kernel: str) -> None:
    authenticator = ProcessAuthenticator()
    mine = f"process:{os.getpid()}:{watched_process.start_ticks(os.getpid())}"
    found = authenticator.process_of(mine)
    assert (found.pid, found.descriptor is None) == (os.getpid(), kernel == "without pidfds")
    found.close()
    assert authenticator.process_of(f"process:{os.getpid()}:1") is None
    assert authenticator.alive(mine)
    assert not authenticator.alive(f"process:{os.getpid()}:1")
    assert authenticator.alive("pod:somebody"), "in doubt: yes"


def test_a_connection_of_an_ended_process_is_refused(kernel: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind("\0wattloop-test-" + os.urandom(8).hex())
        listening.listen()
        name = bytes(listening.getsockname()).decode()
        script = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect('\\0' + sys.argv[1])"
        subprocess.run([sys.executable, "-S", "-c", script, name[1:]], check=True)
        connection, _ = listening.accept()
        with connection, pytest.raises(RequestError, match="is gone"):
            ProcessAuthenticator().peer(connection)


def as_folder(stat: Path) -> None:
    stat.mkdir()


def as_loop(stat: Path) -> None:
    stat.symlink_to(stat)


def as_text(text: str) -> Callable[[Path], None]:
    def make(stat: Path) -> None:
        stat.write_text(text)

    return make


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (as_folder, errno.EISDIR),
        (as_loop, errno.ELOOP),
        (as_text(""), errno.EIO),
        (as_text("17 (cut off) S 1 2"), errno.EIO),
        (as_text(f"17 (garbled) S {'x ' * 30}"), errno.EIO),
    ],
    ids=["a folder", "a loop", "empty", "cut off", "garbled"],
)
def test_a_failed_read_is_not_the_end_of_a_process(tmp_path: Path, make: Callable[[Path], None], error: int) -> None:
    (tmp_path / "17").mkdir()
    make(tmp_path / "17" / "stat")
    with pytest.raises(OSError, match="stat") as caught:
        start_ticks(17, tmp_path)
    assert caught.value.errno == error


@pytest.mark.parametrize("state", ["Z", "X"])
def test_only_a_missing_or_dead_process_has_no_start_time(tmp_path: Path, state: str) -> None:
    (tmp_path / "17").mkdir()
    assert start_ticks(17, tmp_path) is None
    assert start_ticks(18, tmp_path) is None
    stat = tmp_path / "17" / "stat"
    stat.write_text(f"17 (a) name) {state} {'4 ' * 30}")
    assert start_ticks(17, tmp_path) is None
    stat.write_bytes(b"17 (\xff\xfe\n) S " + b"4 " * 30)
    assert start_ticks(17, tmp_path) == 4, "a program's name may hold any bytes"


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.EACCES])
def test_after_any_failed_read_an_owner_counts_as_alive_and_a_caller_is_refused(
    number: int, kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    authenticator = ProcessAuthenticator()
    mine = f"process:{os.getpid()}:{start_ticks(os.getpid())}"
    ours, theirs = socket.socketpair()
    with ours, theirs:
        peer = authenticator.peer(ours)

        def failed(path: Path) -> bytes:
            raise OSError(number, os.strerror(number), str(path))

        monkeypatch.setattr(Path, "read_bytes", failed)
        assert authenticator.alive(mine)
        assert authenticator.process_of(mine) is None
        with pytest.raises(RequestError, match="can't be identified") as caught:
            authenticator.peer(ours)
        assert caught.value.reason is Reason.UNAVAILABLE
        if kernel == "without pidfds":
            with pytest.raises(RequestError, match="can't be identified"):
                asyncio.run(peer.caller())
        peer.close()


def test_a_process_that_cannot_be_read_is_watched_until_it_can(
    kernel: str, process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    read, failures = Path.read_bytes, iter([OSError(errno.EMFILE, "none left")] * 3)

    def read_or_failed(path: Path) -> bytes:
        error = next(failures, None)
        if error is not None:
            raise error
        return read(path)

    async def watch() -> None:
        ended = asyncio.Event()
        watched = WatchedProcess.opened(process.pid)
        monkeypatch.setattr(Path, "read_bytes", read_or_failed)
        watched.when_ended(ended.set)
        assert not ended.is_set()
        process.kill()
        process.wait()
        await asyncio.wait_for(ended.wait(), 10)

    asyncio.run(watch())


class PeerWithoutPidfd(socket.socket):
    """A connection whose other end the kernel gives no pidfd of, for a reason of the test's."""

    number = 0

    def getsockopt(self, *arguments: int) -> int | bytes:  # type: ignore[override]
        if arguments[1] == 77:
            raise OSError(self.number, os.strerror(self.number))
        return super().getsockopt(*arguments)


@pytest.mark.parametrize(
    ("number", "raised"),
    [(errno.EMFILE, OSError), (errno.ENFILE, OSError), (errno.ESRCH, ProcessLookupError), (errno.EINVAL, OSError)],
)
def test_a_peer_is_found_by_pid_only_if_the_kernel_offers_no_pidfd(number: int, raised: type[OSError]) -> None:
    ours, theirs = socket.socketpair()
    with theirs, PeerWithoutPidfd(fileno=ours.detach()) as connection:
        connection.number = number
        with pytest.raises(raised):
            WatchedProcess.of_peer(connection)
        connection.number = errno.ENOPROTOOPT
        watched = WatchedProcess.of_peer(connection)
        assert watched.pid == os.getpid()
        watched.close()
