"""Ends what a killed run leaves behind: a process that outlives `wattloop run` by as long as that takes.

The kernel ends a training process with the run that started it, but not what the training process started in turn.
The run names every group of processes to the guardian, and the node agent. When the run is gone, however it went, its
pipe closes. The guardian then ends the groups that are left, waits until the agent has given every GPU back, and
removes the run's folder for temporary files. It makes that folder itself, so that no moment exists at which nobody
removes it.
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
from pathlib import Path
from types import TracebackType
from typing import IO, Self

logger = logging.getLogger(__name__)

GOING = "going"
# An agent gives every GPU back within 10 s, or is killed by its own watchdog.
AGENT_END_SECONDS = 15.0
PREFIX = "wattloop-"


class Watchdog:
    """The run's end of the guardian: runs as long as the block.

    Raises:
        OperationError: The system's folder for temporary files cannot be written.
    """

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(  # noqa: S603  this very file, as a list
            # Without site packages: it starts at once and holds little memory.
            [sys.executable, "-I", "-S", __file__, tempfile.gettempdir()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        with self._process.stdout as answers:
            self._folder = Path(os.fsdecode(answers.readline().removesuffix(b"\n")))
        if not self._folder.name:
            self.__exit__(None, None, None)
            # The guardian's own process runs this file too, and has no packages.
            from wattloop.errors import OperationError  # noqa: PLC0415

            raise OperationError(
                f"{tempfile.gettempdir()}: no folder can be made there; set TMPDIR to a writable folder"
            )
        return self

    @property
    def folder(self) -> Path:
        """The run's folder for temporary files, which this user alone may read; it is gone with the guardian."""
        return self._folder

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._say(GOING)
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        self._process.wait()
        if self._folder.name:
            # Where the guardian itself was killed.
            shutil.rmtree(self._folder, ignore_errors=True)

    def await_agent(self, process: int) -> None:
        """Where the run ends before it says otherwise, leave this process to end by itself."""
        self._say(f"={process}")

    def watch(self, group: int) -> None:
        """End this group of processes where the run ends before it says otherwise."""
        self._say(f"+{group}")

    def forget(self, group: int) -> None:
        """This group is gone."""
        self._say(f"-{group}")

    def _say(self, text: str) -> None:
        if self._process.stdin is None:
            return
        try:
            self._process.stdin.write(f"{text}\n".encode())
            self._process.stdin.flush()
        except BrokenPipeError:
            logger.warning("the guardian is gone: what training processes started may outlive a run that is killed")


def watch_run(told: IO[bytes], folder: Path) -> None:
    """Listen until the run is gone; where it did not say that it goes, end the groups that it left."""
    groups: set[int] = set()
    agent: int | None = None
    for line in told:
        text = line.decode().strip()
        if text == GOING:
            break
        if text.startswith("="):
            agent = int(text[1:])
        else:
            (groups.add if text.startswith("+") else groups.discard)(int(text[1:]))
    else:
        for group in groups:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        if agent is not None:
            _wait_for_end(agent)
    shutil.rmtree(folder, ignore_errors=True)


def _wait_for_end(process: int) -> None:
    # OSError: it is gone, or the kernel has no such descriptors.
    with contextlib.suppress(OSError):
        poll = select.poll()
        poll.register(os.pidfd_open(process), select.POLLIN)
        poll.poll(AGENT_END_SECONDS * 1000)


def _made_folder(parent: str) -> Path:
    folder = Path(parent) / f"{PREFIX}{os.urandom(8).hex()}"
    folder.mkdir(mode=0o700)
    return folder


def main() -> int:
    """Make the run's folder in the one that is named, print its path, and watch the run."""
    try:
        made = _made_folder(sys.argv[1])
    except OSError:
        return 1
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.buffer.write(os.fsencode(made) + b"\n")
        sys.stdout.buffer.flush()
    watch_run(sys.stdin.buffer, made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
