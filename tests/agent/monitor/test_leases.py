"""The thread that checks owners: nothing in the event loop delays its checks."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from support.agents.agent_fixture import DEADLINE_SECONDS, until
from wattloop_agent.monitor.identity import Authenticator, ProcessAuthenticator, no_step, owner_name
from wattloop_agent.monitor.leases import LeaseTracker
from wattloop_agent.monitor.power_controller_link import PowerControllerLink
from wattloop_agent.monitor.watched_process import WatchedProcess, start_ticks

WAITS = [sys.executable, "-S", "-c", "import sys; sys.stdin.read()"]


class PowerControllerWithLeases:
    """A power controller with leases of these owners, in a thread; it can be unavailable for a while."""

    start_seconds = 0.0

    def __init__(self, *owners: str) -> None:
        self.owners = list(owners)
        self.requests: list[str] = []
        self.is_gone = False
        self.is_slow = threading.Event()
        self.unanswered = 0
        self.opened = 0

    def connect(self) -> socket.socket:
        self.opened += 1
        if self.is_gone:
            raise ConnectionRefusedError("nobody listens")
        ours, theirs = socket.socketpair()
        threading.Thread(target=self._serve, args=(theirs,), daemon=True).start()
        return ours

    def handle_timeout(self) -> None:
        raise AssertionError("it answers")

    def _serve(self, theirs: socket.socket) -> None:
        # The tracker may close its end before it has read the last answer.
        with theirs, theirs.makefile("rb") as lines, suppress(ConnectionError):
            for line in lines:
                request = json.loads(line)
                self.requests.append(request["verb"])
                if self.is_slow.is_set():
                    self.unanswered += 1
                    continue
                if request["verb"] == "release":
                    self.owners.remove(request["owner"])
                leases = [{"owner": owner, "releasing": False} for owner in self.owners]
                answer = {"state": "ready", "warning": "", "bounds": {}, "leases": leases}
                theirs.sendall(json.dumps({"result": answer}).encode() + b"\n")


@contextmanager
def running_tracker(
    power_controller: PowerControllerWithLeases, owners: Authenticator, heartbeat_seconds: float
) -> Iterator[LeaseTracker]:
    callers, heartbeats = (PowerControllerLink(power_controller, DEADLINE_SECONDS) for _ in range(2))
    tracker = LeaseTracker(callers, heartbeats, owners, heartbeat_seconds)
    tracker.start()
    try:
        yield tracker
    finally:
        tracker.stop()
        assert not tracker._thread.is_alive(), "it ends at once"


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(WAITS, stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def named(pid: int) -> str:
    return owner_name(pid, start_ticks(pid))


def test_the_end_of_an_owner_is_noticed_long_before_the_next_heartbeat(process: subprocess.Popen[bytes]) -> None:
    mine, other = named(os.getpid()), named(process.pid)
    power_controller = PowerControllerWithLeases(mine, other)
    with running_tracker(power_controller, ProcessAuthenticator(), heartbeat_seconds=10 * DEADLINE_SECONDS) as tracker:
        until(lambda: tracker.watched == {mine, other}, "both are watched")
        process.kill()
        until(lambda: power_controller.owners == [mine], "its lease is released")
        assert power_controller.requests == ["heartbeat", "heartbeat", "release"]


def test_owners_of_unknown_liveness_keep_their_leases() -> None:
    power_controller = PowerControllerWithLeases("pod:somebody")
    with running_tracker(power_controller, ProcessAuthenticator(), heartbeat_seconds=0.001) as tracker:
        until(lambda: len(power_controller.requests) > 3, "it is checked repeatedly")
        assert tracker.watched == {"pod:somebody"}
    assert set(power_controller.requests) == {"heartbeat"}


def test_it_reconnects_to_a_restarted_power_controller(process: subprocess.Popen[bytes]) -> None:
    power_controller = PowerControllerWithLeases(named(process.pid))
    power_controller.is_gone = True
    with running_tracker(power_controller, ProcessAuthenticator(), 0.001) as tracker:
        until(lambda: power_controller.opened > 2, "it tries again")
        assert "the power controller, which alone may change GPUs, is unavailable" in tracker.status.state
        process.kill()
        power_controller.is_gone = False
        until(lambda: power_controller.owners == [], "an owner that ended meanwhile is noticed")


class ManyProcesses:
    """The owners of a node whose processes take longer to scan than a heartbeat interval."""

    def __init__(self, power_controller: PowerControllerWithLeases) -> None:
        self._power_controller = power_controller

    def alive(self, owner: str, step: Callable[[], None] = no_step) -> bool:
        return True

    def process_of(self, owner: str, step: Callable[[], None] = no_step) -> WatchedProcess | None:
        before = len(self._power_controller.requests)
        deadline = time.monotonic() + DEADLINE_SECONDS
        while len(self._power_controller.requests) < before + 3 and time.monotonic() < deadline:
            step()
        return None


def test_heartbeats_continue_during_a_long_scan_of_processes() -> None:
    power_controller = PowerControllerWithLeases("pod:somebody")
    with running_tracker(power_controller, ManyProcesses(power_controller), heartbeat_seconds=0.01) as tracker:
        until(lambda: bool(tracker.watched), "the look has ended")
    assert power_controller.requests[:4] == ["heartbeat"] * 4


def test_owners_that_hold_and_release_in_a_loop_do_not_cause_a_check_each() -> None:
    power_controller = PowerControllerWithLeases()
    with running_tracker(power_controller, ProcessAuthenticator(), heartbeat_seconds=DEADLINE_SECONDS) as tracker:
        begin = time.monotonic()
        for _ in range(10_000):
            tracker.check_now()
        until(lambda: len(power_controller.requests) > 1, "it checks")
        assert len(power_controller.requests) <= 2 + (time.monotonic() - begin) / 0.02


def test_a_tracker_stopped_during_a_request_opens_no_further_connection() -> None:
    power_controller = PowerControllerWithLeases()
    with running_tracker(power_controller, ProcessAuthenticator(), heartbeat_seconds=0.001):
        until(lambda: len(power_controller.requests) > 1, "heartbeats are sent")
        power_controller.is_slow.set()
        until(lambda: power_controller.unanswered > 0, "one is in progress")
    assert power_controller.opened == 1
