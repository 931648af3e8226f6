"""A watchdog process that cleans up after a local run that was killed.

The kernel kills a training process together with the run that started it, but not the children of
the training process. The run registers every process group, and the node agent, with the watchdog.
When the run ends for any reason, its pipe to the watchdog closes. The watchdog then kills the
remaining groups and the trainings' other processes, waits until the agent has released every GPU, and
removes the run's temporary folder. The watchdog creates that folder itself, so that it is always removed.

A launcher such as torchrun starts each of its ranks in a session and process group of its own, and dies
without ending them when it is killed. All processes of a training inherit its environment, so they are
recognised by a variable in it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Self

logger = logging.getLogger(__name__)

DONE = "done"
# An agent releases every GPU within 10 s, or is killed by its own watchdog.
AGENT_END_SECONDS = 15.0
PREFIX, NAME_BYTES = "wattloop-", 8
# A socket's path has at most 107 bytes; the name of one in the run's folder has at most 16 with its slash.
MAX_PARENT_BYTES = 107 - len(f"/{PREFIX}") - 2 * NAME_BYTES - 16
SHORT_FOLDER = Path("/tmp")  # noqa: S108  the run's folder has a random name, and is created for this user alone
# In the environment of a training: the run's folder, and after a slash the training's own name. As in
# `wattloop.gpus.gpu_processes`; this program imports no package.
TRAINING_VARIABLE = "WATTLOOP_LOCAL_TRAINING"
KILL_SECONDS = 10.0
# In /proc: it has ended, but its parent has not waited for it.
ENDED_STATES = (b"Z", b"X")


class Watchdog:
    """The watchdog process, as seen from the run. It runs until the block ends.

    Raises:
        OperationError: The system's temporary folder cannot be written.
    """

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(  # noqa: S603  this very file, as a list
            # Without site packages it starts fast and uses little memory.
            [sys.executable, "-I", "-S", __file__, str(_parent_folder())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        with self._process.stdout as output:
            self._folder = Path(os.fsdecode(output.readline().removesuffix(b"\n")))
        if not self._folder.name:
            self.__exit__(None, None, None)
            # The watchdog process runs this file too, and has no packages.
            from wattloop.errors import OperationError  # noqa: PLC0415

            raise OperationError(f"{_parent_folder()}: cannot create a folder there; set TMPDIR to a writable folder")
        return self

    @property
    def folder(self) -> Path:
        """The run's temporary folder. Only this user may read it. The watchdog removes it."""
        return self._folder

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._send(DONE)
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        self._process.wait()
        if self._folder.name:
            # In case the watchdog itself was killed.
            shutil.rmtree(self._folder, ignore_errors=True)

    def await_agent(self, process: int) -> None:
        """Register the node agent.

        If the run is killed, wait until this process has ended by itself.
        """
        self._send(f"={process}")

    def watch(self, group: int) -> None:
        """Register a process group: if the run is killed, kill it."""
        self._send(f"+{group}")

    def unwatch(self, group: int) -> None:
        """Unregister a process group that has ended."""
        self._send(f"-{group}")

    def _send(self, text: str) -> None:
        if self._process.stdin is None:
            return
        try:
            self._process.stdin.write(f"{text}\n".encode())
            self._process.stdin.flush()
        except BrokenPipeError:
            logger.warning("the watchdog was killed: children of training processes may outlive a run that is killed")


def watch_run(messages: IO[bytes], folder: Path) -> None:
    """Read messages until the run ends. If it was killed, kill the process groups that remain."""
    groups: set[int] = set()
    agent: int | None = None
    for line in messages:
        text = line.decode().strip()
        if text == DONE:
            break
        if text.startswith("="):
            agent = int(text[1:])
        else:
            (groups.add if text.startswith("+") else groups.discard)(int(text[1:]))
    else:
        for group in groups:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        kill_processes_of(f"{folder}/")
        # OSError: it has ended, or the kernel has no such descriptors.
        with contextlib.suppress(OSError):
            if agent is not None:
                poll = select.poll()
                poll.register(os.pidfd_open(agent), select.POLLIN)
                poll.poll(AGENT_END_SECONDS * 1000)
    shutil.rmtree(folder, ignore_errors=True)


def kill_processes_of(training: str) -> None:
    """Kill the processes with this value of `TRAINING_VARIABLE`, or one that it begins, and wait for their end.

    Processes that they start meanwhile are killed, too. It stops after `KILL_SECONDS`: the kernel ends a process only
    when its driver's call returns.
    """
    entry = os.fsencode(f"{TRAINING_VARIABLE}={training}")

    def is_of_training(folder: Path) -> bool:
        return b"\0" + entry in b"\0" + (folder / "environ").read_bytes()

    _wait_for_processes(is_of_training, time.monotonic() + KILL_SECONDS, number=signal.SIGKILL)


def wait_for_group(group: int, deadline: float) -> None:
    """Wait until every process of a group has ended, or for the deadline of the monotonic clock."""

    def runs_in_group(folder: Path) -> bool:
        # The name in parentheses may contain any character.
        state, _, its_group = (folder / "stat").read_bytes().rpartition(b")")[2].split()[:3]
        return int(its_group) == group and state not in ENDED_STATES

    _wait_for_processes(runs_in_group, deadline)


def _wait_for_processes(is_wanted: Callable[[Path], bool], deadline: float, *, number: int | None = None) -> None:
    """Wait until there is no such process, or for the deadline; each gets the signal, if there is one, first."""
    while time.monotonic() < deadline:
        with contextlib.ExitStack() as opened:
            found = [opened.enter_context(process) for process in _processes(is_wanted)]
            if not found:
                return
            if number is not None:
                for process in found:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        signal.pidfd_send_signal(process.fileno(), number)
            for process in found:
                poll = select.poll()
                poll.register(process, select.POLLIN)
                poll.poll(max(deadline - time.monotonic(), 0) * 1000)


def _processes(is_wanted: Callable[[Path], bool]) -> Iterator[IO[bytes]]:
    """Descriptors, which the caller closes, of the processes whose folder in /proc is wanted."""
    for folder in Path("/proc").glob("[1-9]*"):
        # OSError: it has ended, or belongs to another user.
        with contextlib.suppress(OSError), contextlib.ExitStack() as unless_yielded:
            # Opened first: if it ends and another one gets its number, the signal reaches neither.
            descriptor = os.pidfd_open(int(folder.name))
            process = unless_yielded.enter_context(os.fdopen(descriptor, "rb", buffering=0))
            if is_wanted(folder):
                unless_yielded.pop_all()
                yield process


def _parent_folder() -> Path:
    """Where the run's folder is created: the first of the usual places in which the paths of its sockets fit."""
    temporary = Path(tempfile.gettempdir())
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    places = [temporary, *([Path(runtime)] if os.access(runtime, os.W_OK) else []), SHORT_FOLDER]
    return next((place for place in places if len(os.fsencode(place)) <= MAX_PARENT_BYTES), temporary)


def main() -> int:
    """Create the run's folder in the one given as argument, print its path, and watch the run."""
    folder = Path(sys.argv[1]) / f"{PREFIX}{os.urandom(NAME_BYTES).hex()}"
    try:
        folder.mkdir(mode=0o700)
    except OSError:
        return 1
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.buffer.write(os.fsencode(folder) + b"\n")
        sys.stdout.buffer.flush()
    watch_run(sys.stdin.buffer, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
