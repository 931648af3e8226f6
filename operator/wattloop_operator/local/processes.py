"""Training processes: they never outlive this process, and end together with all processes that they started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import IO

from wattloop.errors import OperationError
from wattloop.files.atomic_write import private_opener
from wattloop.threads import TaskThread, WatchedThread
from wattloop_operator.local.command import python_of
from wattloop_operator.local.run_clock import now
from wattloop_operator.local.watchdog import TRAINING_VARIABLE, Watchdog, kill_processes_of, wait_for_group
from wattloop_operator.parent_process import kill_with_parent

# As Kubernetes' terminationGracePeriodSeconds.
GRACE_SECONDS = 30.0


class ProcessStartError(OperationError):
    """A program cannot be started because of the manifest's command."""


class TrainingProcess:
    """One running training process and its group.

    Args:
        environment: Its environment; `TRAINING_VARIABLE` is added.
        log: File that its output is appended to.
        watchdog: Ends its process group if this program is killed.
        on_end: Called, from another thread, when it has ended.

    Attributes:
        python: The Python that it runs with; empty if there is none.
        interrupted: Whether it was asked to end because the run ends.
        grace_end: Until when it may save what it has after it was asked to end, on the monotonic clock; 0 before.

    Raises:
        ProcessStartError: The program does not exist or is not executable.
        OperationError: Its log cannot be written.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str],
        folder: Path,
        log: Path,
        watchdog: Watchdog,
        on_end: Callable[[], None],
    ) -> None:
        self.python = python_of(arguments[0], environment)
        self.started_at = now()
        self.ended_at: datetime | None = None
        self.ended_by_run = False
        self.interrupted = False
        self.terminating = False
        self.grace_end = 0.0
        self._watchdog = watchdog
        # Of a fixed length, so that none begins another one.
        self._name = f"{watchdog.folder}/{os.urandom(8).hex()}"
        # Held while it is signalled or waited for.
        self._lock = threading.Lock()
        self._has_ended = threading.Event()
        with _open_log(log) as output:
            try:
                self._process = subprocess.Popen(  # noqa: S603  the user's own command, as a list, without a shell
                    list(arguments),
                    env={**environment, TRAINING_VARIABLE: self._name},
                    cwd=folder,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    # The main thread starts it, so it ends with the run.
                    preexec_fn=kill_with_parent,  # noqa: PLW1509  only async-signal-safe calls are made there
                )
            except OSError as error:
                raise ProcessStartError(f"{arguments[0]}: cannot be started: {error.strerror or error}") from error
        watchdog.watch(self._process.pid)
        self._watcher = WatchedThread(lambda: self._watch(on_end), f"process-{self._process.pid}", may_return=True)
        self._watcher.start()

    @property
    def pid(self) -> int:
        """Its id."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """Its exit code; negative for a signal; None while it runs."""
        return None if self.ended_at is None else self._process.returncode

    def end(self) -> None:
        """End it and all its children, and wait until it has ended."""
        self.ended_by_run = True
        self._signal(signal.SIGKILL)
        self._watcher.join()

    def interrupt(self, number: int, grace_seconds: float) -> None:
        """Send it and its children the signal by which the run was asked to end. They may save what they have."""
        self.grace_end = time.monotonic() + grace_seconds
        self.interrupted = self.ended_by_run = True
        if not self.terminating:
            self._signal(number)

    def wait_until(self, deadline: float) -> None:
        """Wait until it and its children have ended, or for the deadline of the monotonic clock."""
        self._has_ended.wait(deadline - time.monotonic())

    def terminate(self) -> None:
        """Ask it and its children to end (SIGTERM); what still runs after the grace period is killed."""
        if self.terminating:
            return
        self.grace_end = time.monotonic() + GRACE_SECONDS
        self.terminating = self.ended_by_run = True
        self._signal(signal.SIGTERM)

        def kill_later() -> None:
            if not self._has_ended.wait(GRACE_SECONDS):
                self._signal(signal.SIGKILL)

        TaskThread(kill_later, f"kill-{self._process.pid}").start()

    def _signal(self, number: int) -> None:
        # Once it was waited for, its group id may belong to another process.
        with self._lock, contextlib.suppress(ProcessLookupError):
            if self.ended_at is None:
                os.killpg(self._process.pid, number)

    def _watch(self, on_end: Callable[[], None]) -> None:
        # Its pid is not reused before it is waited for, so its group id is still valid here.
        os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        # A shell dies of the signal while the program that it runs still saves.
        wait_for_group(self._process.pid, self.grace_end)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        kill_processes_of(self._name)
        self._watchdog.unwatch(self._process.pid)
        with self._lock:
            self._process.wait()
            self.ended_at = now()
        self._has_ended.set()
        on_end()


def last_output(log: Path, max_bytes: int) -> str:
    """The end of what was written to a log; empty if it cannot be read."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(stream.seek(0, os.SEEK_END) - max_bytes, 0))
            return stream.read(max_bytes).decode(errors="replace")
    except OSError:
        return ""


def _open_log(log: Path) -> IO[bytes]:
    try:
        return open(log, "ab", opener=private_opener)
    except OSError as error:
        raise OperationError(f"{log}: cannot write: {error.strerror}; free some space and run it again") from error
