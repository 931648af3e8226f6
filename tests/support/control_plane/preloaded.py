"""Operators forked from a process that has imported all of their modules: a start saves a second of processor time.

    python -m support.control_plane.preloaded    # the parent; `PreloadedOperator` starts and asks it

The parent has one thread and no connection, so an operator differs from one that the program `wattloop`
starts only in what its interpreter has imported. Each ends with the parent, and that with the tests.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from support.python_path import PYTHON_PATH

_DIE_WITH_PARENT = Path(__file__).with_name("die_with_parent.py")


class PreloadedOperator:
    """A process of `wattloop operator`, with the attributes and methods of `subprocess.Popen` that tests use.

    Args:
        log: File that its output is appended to.

    Attributes:
        pid: Its process id. It belongs to this process until `poll` or `wait` has returned its exit code.
        returncode: Its exit code; negative: the signal that ended it; None while it runs.
    """

    def __init__(self, arguments: Sequence[str], log: Path) -> None:
        self._parent = _Parent.running()
        answer = self._parent.ask({"arguments": list(arguments), "log": str(log), "environment": dict(os.environ)})
        self.pid: int = answer["pid"]
        self.returncode: int | None = None
        self._ended = os.pidfd_open(self.pid)

    def poll(self) -> int | None:
        """Its exit code if it has ended."""
        return self._code_within(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended; returns its exit code."""
        code = self._code_within(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("wattloop operator", timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def _code_within(self, seconds: float | None) -> int | None:
        if self.returncode is None and select.select([self._ended], [], [], seconds)[0]:
            self.returncode = self._parent.ask({"reap": self.pid})["code"]
            os.close(self._ended)
        return self.returncode


class _Parent:
    """The process that operators are forked from; one for all tests of this process."""

    _running: _Parent | None = None

    def __init__(self) -> None:
        self._lock = threading.Lock()
        program = [sys.executable, "-m", "support.control_plane.preloaded"]
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_DIE_WITH_PARENT), str(os.getpid()), *program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": PYTHON_PATH},
            start_new_session=True,
        )
        atexit.register(self._stop)

    @classmethod
    def running(cls) -> _Parent:
        """The parent, started at the first call."""
        if cls._running is None:
            cls._running = cls()
        return cls._running

    def ask(self, request: dict[str, Any]) -> Any:
        """Its answer to a request."""
        with self._lock:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            return json.loads(self._process.stdout.readline())

    def _stop(self) -> None:
        self._process.communicate()


def main() -> None:
    """Import what an operator imports, then fork one for each request on standard input."""
    # As the operator does for its imports. The modules are never freed, and a collection would copy their pages.
    gc.disable()
    import wattloop_operator.command_line.operator  # noqa: PLC0415 - only in the parent
    import wattloop_operator.factory  # noqa: PLC0415
    import wattloop_operator.operator_main  # noqa: PLC0415
    import wattloop_operator.start_up_wait  # noqa: PLC0415
    import wattloop_operator.telemetry.operator_logs  # noqa: F401, PLC0415
    from wattloop.commands.entry import main as wattloop  # noqa: PLC0415
    from wattloop_operator.parent_process import end_with_parent  # noqa: PLC0415

    gc.freeze()
    gc.enable()
    parent = os.getpid()
    for line in sys.stdin:
        request = json.loads(line)
        if "reap" in request:
            _, status = os.waitpid(request["reap"], 0)
            answer = {"code": os.waitstatus_to_exitcode(status)}
        else:
            pid = os.fork()
            if pid == 0:
                end_with_parent(parent)
                _become(request)
                sys.exit(wattloop(request["arguments"]))
            answer = {"pid": pid}
        print(json.dumps(answer), flush=True)


def _become(request: dict[str, Any]) -> None:
    """Take over session, streams and environment of the operator's own."""
    os.setsid()
    for path, flags, descriptors in (
        (os.devnull, os.O_RDONLY, (0,)),
        (request["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, (1, 2)),
    ):
        opened = os.open(path, flags, 0o644)
        for descriptor in descriptors:
            os.dup2(opened, descriptor)
        os.close(opened)
    os.environ.clear()
    os.environ.update(request["environment"])


if __name__ == "__main__":
    main()
