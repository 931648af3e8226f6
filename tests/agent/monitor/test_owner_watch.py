"""The thread that checks owners: nothing in the event loop delays its checks."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from support.agents.agent_fixture import DEADLINE_SECONDS, until
from wattloop_agent.monitor.identity import OwnerLiveness, no_step
from wattloop_agent.monitor.owner_watch import OwnerWatch
from wattloop_agent.monitor.power_controller_link import HeartbeatLink
from wattloop_agent.monitor.process_authenticator import ProcessAuthenticator, owner_name
from wattloop_agent.monitor.watched_process import WatchedProcess, start_ticks
from wattloop_agent.refusals import RequestError

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
        # The watch may close its end before it has read the last answer.
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
                theirs.sendall(json.dumps({"result": {"leases": leases}}).encode() + b"\n")


@contextmanager
def running_watch(
    power_controller: PowerControllerWithLeases,
    owners: OwnerLiveness,
    heartbeat_seconds: float,
    failures: list[RequestError] | None = None,
) -> Iterator[OwnerWatch]:
    def on_answer(answer: Mapping[str, Any]) -> None:
        assert "leases" in answer

    failures = [] if failures is None else failures
    link = HeartbeatLink(power_controller, DEADLINE_SECONDS)
    watch = OwnerWatch(link, owners, heartbeat_seconds, on_answer=on_answer, on_failure=failures.append)
    watch.start()
    try:
        yield watch
    finally:
        watch.stop()
        assert not watch._thread.is_alive(), "it ends at once"


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
    with running_watch(power_controller, ProcessAuthenticator(), heartbeat_seconds=10 * DEADLINE_SECONDS) as watch:
        until(lambda: watch.watched == {mine, other}, "both are watched")
        process.kill()
        until(lambda: power_controller.owners == [mine], "its lease is released")
        assert power_controller.requests == ["heartbeat", "heartbeat", "release"]


def test_owners_of_unknown_liveness_keep_their_leases() -> None:
    power_controller = PowerControllerWithLeases("pod:somebody")
    with running_watch(power_controller, ProcessAuthenticator(), heartbeat_seconds=0.001) as watch:
        until(lambda: len(power_controller.requests) > 3, "it is checked repeatedly")
        assert watch.watched == {"pod:somebody"}
    assert set(power_controller.requests) == {"heartbeat"}


def test_the_watch_reconnects_to_a_restarted_power_controller(process: subprocess.Popen[bytes]) -> None:
    power_controller = PowerControllerWithLeases(named(process.pid))
    power_controller.is_gone = True
    failures: list[RequestError] = []
    with running_watch(power_controller, ProcessAuthenticator(), 0.001, failures):
        until(lambda: len(failures) > 2, "it is reported")
        assert "the power controller, which alone may change GPUs, is unavailable" in failures[0].message
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
    with running_watch(power_controller, ManyProcesses(power_controller), heartbeat_seconds=0.01) as watch:
        until(lambda: bool(watch.watched), "the look has ended")
    assert power_controller.requests[:4] == ["heartbeat"] * 4


def test_owners_that_hold_and_release_in_a_loop_do_not_cause_a_check_each() -> None:
    power_controller = PowerControllerWithLeases()
    with running_watch(power_controller, ProcessAuthenticator(), heartbeat_seconds=DEADLINE_SECONDS) as watch:
        begin = time.monotonic()
        for _ in range(10_000):
            watch.check_now()
        until(lambda: len(power_controller.requests) > 1, "it checks")
        assert len(power_controller.requests) <= 2 + (time.monotonic() - begin) / 0.02


def test_a_watch_stopped_during_a_request_opens_no_further_connection() -> None:
    power_controller = PowerControllerWithLeases()
    with running_watch(power_controller, ProcessAuthenticator(), heartbeat_seconds=0.001):
        until(lambda: len(power_controller.requests) > 1, "heartbeats are sent")
        power_controller.is_slow.set()
        until(lambda: power_controller.unanswered > 0, "one is in progress")
    assert power_controller.opened == 1
