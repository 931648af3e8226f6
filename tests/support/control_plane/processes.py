"""Child processes that never outlive the process that started them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from support.control_plane.preloaded import PreloadedOperator

_DIE_WITH_PARENT = Path(__file__).with_name("die_with_parent.py")
_LOG_LINES_IN_ERROR = 25
# The servers in Go collect garbage a quarter as often, which saves a sixth of their processor time.
_ENVIRONMENT = {"GOGC": "400"}


class ProcessEndedError(Exception):
    """A server process has ended; the message contains the last lines of its log."""


class ServerProcess:
    """A long-running program with its output in a log file.

    The kernel kills it when the thread that started it ends, so start it from a thread that lives long enough.
    """

    _not_stopped: ClassVar[list[ServerProcess]] = []

    def __init__(self, name: str, command: Sequence[str | Path], folder: Path) -> None:
        self.name = name
        self.command = command
        self.log = folder / f"{name}.log"
        self.log.touch()
        self._process = self._started()
        self._not_stopped.append(self)

    def _started(self) -> subprocess.Popen[bytes] | PreloadedOperator:
        with self.log.open("ab") as log:
            # A separate session: Ctrl-C must reach only the tests, which stop the servers in order.
            return subprocess.Popen(
                [sys.executable, "-I", "-S", str(_DIE_WITH_PARENT), str(os.getpid()), *map(str, self.command)],
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=os.environ | _ENVIRONMENT,
                start_new_session=True,
            )

    @classmethod
    def not_stopped(cls) -> Sequence[ServerProcess]:
        """The processes for which `stop` was not called, in order of their start; some may have ended."""
        return tuple(cls._not_stopped)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self._process.poll() is not None

    @property
    def exit_code(self) -> int | None:
        """Its exit code; negative: the signal that ended it; None while it runs."""
        return self._process.poll()

    def check_alive(self) -> None:
        """Raise ProcessEndedError if the program has ended."""
        if self._process.poll() is not None:
            raise ProcessEndedError(
                f"{self.name} ended with {self._process.returncode}; the end of {self.log}:\n{self.log_tail()}"
            )

    def log_tail(self, line_count: int = _LOG_LINES_IN_ERROR) -> str:
        """The last lines of its log."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-line_count:])

    def stop(self, *, timeout_seconds: float = 15.0) -> None:
        """Terminate the program and wait for it; kill it after the timeout."""
        if self in self._not_stopped:
            self._not_stopped.remove(self)
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(timeout_seconds)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
