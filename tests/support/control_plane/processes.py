"""Child processes that never outlive the process that started them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_DIE_WITH_PARENT = Path(__file__).with_name("die_with_parent.py")
_LINES_OF_LOG_IN_AN_ERROR = 25


class ProcessEndedError(Exception):
    """A process that should be serving has ended; the message ends with the last lines of its log."""


class ServerProcess:
    """A long-running program with its output in a log file.

    The kernel kills it when the thread that started it ends, so start it from a thread that lives as long as it should.
    """

    def __init__(self, name: str, command: Sequence[str | Path], folder: Path) -> None:
        self.name = name
        self.command = command
        self.log = folder / f"{name}.log"
        with self.log.open("ab") as log:
            # A session of its own: Ctrl-C must reach the tests first, which then stop the servers in order.
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_DIE_WITH_PARENT), str(os.getpid()), *map(str, command)],
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether it runs no more."""
        return self._process.poll() is not None

    def check_alive(self) -> None:
        """Raises ProcessEndedError when the program has ended."""
        if self._process.poll() is not None:
            raise ProcessEndedError(
                f"{self.name} ended with {self._process.returncode}; the end of {self.log}:\n{self.log_tail()}"
            )

    def log_tail(self) -> str:
        """The last lines that the program wrote."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-_LINES_OF_LOG_IN_AN_ERROR:])

    def stop(self, *, patience_seconds: float = 15.0) -> None:
        """Asks the program to end and waits for it; kills it when it does not within the patience."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(patience_seconds)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
