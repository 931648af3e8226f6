"""A hostile caller of the agent's socket: ``python hostile_client.py SOCKET ATTACK [--connections N] [--seconds S]``.

It uses only the standard library, so that it runs in any pod. Each attack is bounded in time and
connections, and finally prints one JSON object: the requests sent, the answers, and the number of
open connections. ``victim`` is no attack: it holds a limit on GPUs, lists its leases repeatedly,
and prints the longest time to an answer, less what it waited for a processor.
"""

import argparse
import contextlib
import json
import resource
import selectors
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

NEWLINES = b"\n" * 65536
CHUNK_BYTES = 65536
# Its first answer too must come before a test gives up, however busy the machine.
ANSWER_SECONDS = 60.0
ASK_EVERY_SECONDS = 0.05
# Between two rounds over all connections. The agent takes longer to read what one round sends, so it is never idle, and
# the attacker does not spend a processor on waiting for it.
ROUND_SECONDS = 0.005
TICK_SECONDS = 0.05


@dataclass(eq=False)
class Caller:
    """One hostile connection: the data left to send, and the answers."""

    connection: socket.socket
    pending: bytes = b""
    received: bytes = b""


@dataclass
class Result:
    """The result that an attack prints."""

    opened: int = 0
    sent_bytes: int = 0
    answers: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    closed_by_agent: int = 0
    open_at_end: int = 0

    def show(self) -> None:
        """Print it."""
        sys.stdout.write(json.dumps(vars(self)) + "\n")
        sys.stdout.flush()


class Flood:
    """Keeps connections busy: each sends the same bytes repeatedly, and reads the answers.

    Args:
        connections: Their number; one that the agent closes is reopened.
        again: Whether it sends them repeatedly, or once.
    """

    def __init__(self, path: str, connections: int, data: bytes, *, again: bool = True, reads: bool = True) -> None:
        self._path = path
        self._wanted = connections
        self._data = data
        self._again = again
        self._reads = reads
        self._selector = selectors.DefaultSelector()
        self._callers: set[Caller] = set()
        self.result = Result()

    def run(self, seconds: float, *, until_closed: bool = False) -> Result:
        """Attack for so long, or longer, until the agent has closed a connection."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline or (
            until_closed and not self.result.closed_by_agent and time.monotonic() < deadline + ANSWER_SECONDS
        ):
            while len(self._callers) < self._wanted and self._open():
                pass
            for key, events in self._selector.select(0.05):
                self._serve(key.data, events)
            time.sleep(ROUND_SECONDS)
        self.result.open_at_end = len(self._callers)
        for caller in list(self._callers):
            caller.connection.close()
        return self.result

    def _open(self) -> bool:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.setblocking(False)
        try:
            connection.connect(self._path)
        except OSError:
            # The backlog is full.
            connection.close()
            return False
        caller = Caller(connection, self._data)
        self._callers.add(caller)
        self._selector.register(connection, selectors.EVENT_READ | selectors.EVENT_WRITE, caller)
        self.result.opened += 1
        return True

    def _serve(self, caller: Caller, events: int) -> None:
        try:
            if events & selectors.EVENT_READ and self._reads:
                self._read(caller)
            if events & selectors.EVENT_WRITE:
                self._write(caller)
        except BlockingIOError:
            pass
        except OSError:
            self.result.closed_by_agent += 1
            self._selector.unregister(caller.connection)
            caller.connection.close()
            self._callers.discard(caller)

    def _write(self, caller: Caller) -> None:
        if not caller.pending and self._again:
            caller.pending = self._data
        if not caller.pending:
            self._selector.modify(caller.connection, selectors.EVENT_READ, caller)
            return
        sent = caller.connection.send(caller.pending)
        self.result.sent_bytes += sent
        caller.pending = caller.pending[sent:]

    def _read(self, caller: Caller) -> None:
        part = caller.connection.recv(CHUNK_BYTES)
        if not part:
            raise ConnectionResetError
        *lines, caller.received = (caller.received + part).split(b"\n")
        for line in lines:
            answer = json.loads(line)
            self.result.answers += 1
            if "error" in answer:
                self.result.errors[answer["error"]["reason"]] += 1


def request(verb: str, **fields: object) -> bytes:
    """The line of a request."""
    return json.dumps({"verb": verb, **fields}).encode() + b"\n"


def newlines(path: str, connections: int, seconds: float, gpus: list[str]) -> None:
    """Send 64 KiB of newlines repeatedly: each of them is a bad request."""
    Flood(path, connections, NEWLINES).run(seconds).show()


def valid(path: str, connections: int, seconds: float, gpus: list[str]) -> None:
    """Send valid requests of each kind repeatedly."""
    held = [request("hold_limit", gpus=gpus, watts=watts) for watts in (200, 250)] if gpus else []
    named = {"gpus": gpus} if gpus else {}
    kinds = [request("gpus"), request("energy", **named), request("list"), *held, request("release", **named)]
    Flood(path, connections, b"".join(kinds) * 20).run(seconds).show()


def clocks(path: str, connections: int, seconds: float, gpus: list[str]) -> None:
    """Send unanswered requests for clocks repeatedly: allowed ones, then one that is refused."""
    moved = [request("hold_clocks", gpus=gpus, megahertz=clock, unanswered=True) for clock in (900, 1200)]
    # Of another domain, so that the next one does not replace it.
    refused = request("hold_clocks", gpus=gpus, megahertz=99_999, domain="memory", unanswered=True)
    Flood(path, connections, b"".join(moved) * 20 + refused).run(seconds).show()


def idle(path: str, connections: int, seconds: float, gpus: list[str]) -> None:
    """Open connections and send nothing."""
    Flood(path, connections, b"", again=False).run(seconds).show()


def half(path: str, connections: int, seconds: float, gpus: list[str]) -> None:
    """Send the longest request without its end."""
    Flood(path, connections, b"[" + b" " * 65_000, again=False).run(seconds).show()


def subscribers(path: str, connections: int, seconds: float, gpus: list[str]) -> None:
    """Subscribe at the shortest interval on each connection."""
    Flood(path, connections, request("subscribe", interval_seconds=0.02), again=False).run(seconds).show()


def deaf(path: str, connections: int, seconds: float, gpus: list[str]) -> None:
    """Send requests repeatedly, and read no answer."""
    Flood(path, connections, request("gpus") * 100, reads=False).run(seconds).show()


def deaf_until_closed(path: str, connections: int, seconds: float, gpus: list[str]) -> None:
    """The same, until the agent has closed a connection: a busy machine takes longer."""
    Flood(path, connections, request("gpus") * 100, reads=False).run(seconds, until_closed=True).show()


def churn(path: str, connections: int, seconds: float, gpus: list[str]) -> None:
    """Open connections and close them immediately, repeatedly."""
    result = Result()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as connection:
            connection.connect(path)
            result.opened += 1
    result.show()


def victim(path: str, connections: int, seconds: float, gpus: list[str]) -> None:
    """Hold a limit and send requests repeatedly, until standard input closes."""
    with _victims_answers(path) as ask:
        held = ask(request("hold_limit", gpus=gpus, watts=150))
        assert "result" in held, held
        sys.stdout.write("held\n")
        sys.stdout.flush()
        taken, unheld, failed = [], 0, 0
        clock = _Clock()
        selector = selectors.DefaultSelector()
        selector.register(sys.stdin, selectors.EVENT_READ)
        while not selector.select(ASK_EVERY_SECONDS):
            began, ticks = time.monotonic(), clock.ticks
            answer = ask(request("list"))
            # A tick may be due when the question is asked.
            taken.append(min(time.monotonic() - began, (clock.ticks - ticks + 1) * TICK_SECONDS))
            mine = [each for each in answer.get("result", []) if each["yours"] and each["held"] == 150]
            failed += "result" not in answer
            unheld += "result" in answer and len(mine) != len(gpus)
    fields = {"asked": len(taken), "longest_seconds": max(taken), "unheld": unheld, "failed": failed}
    sys.stdout.write(json.dumps(fields) + "\n")


class _Clock:
    """Counts short waits: on a machine without a free processor for this process, fewer than by the time."""

    def __init__(self) -> None:
        self.ticks = 0
        threading.Thread(target=self._count, daemon=True).start()

    def _count(self) -> None:
        while True:
            time.sleep(TICK_SECONDS)
            self.ticks += 1


@contextlib.contextmanager
def _victims_answers(path: str) -> Iterator[Callable[[bytes], dict[str, list[dict[str, object]]]]]:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # Without a time-out, since with one a full backlog is an error at once. The product's client waits as well.
    connection.connect(path)
    connection.settimeout(ANSWER_SECONDS)
    with connection, connection.makefile("rb") as answers:

        def ask(line: bytes) -> dict[str, list[dict[str, object]]]:
            connection.sendall(line)
            answer: dict[str, list[dict[str, object]]] = json.loads(answers.readline())
            return answer

        yield ask


ATTACKS = {
    each.__name__: each
    for each in (newlines, valid, clocks, idle, half, subscribers, deaf, deaf_until_closed, churn, victim)
}


def main() -> int:
    """Run one attack."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("socket", help="the agent's socket")
    parser.add_argument("attack", choices=sorted(ATTACKS))
    parser.add_argument("--connections", type=int, default=63)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--gpus", nargs="*", default=[], help="uuids, for victim and valid")
    arguments = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    ATTACKS[arguments.attack](arguments.socket, arguments.connections, arguments.seconds, arguments.gpus)
    return 0


if __name__ == "__main__":
    sys.exit(main())
