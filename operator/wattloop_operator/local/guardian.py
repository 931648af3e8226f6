"""Ends what a killed run leaves behind: a process that outlives `wattloop run` by as long as that takes.

The kernel ends a training process with the run that started it, but not what the training process started in turn.
The guardian is told of every group of processes; when the run is gone, however it went, its pipe closes, and the
guardian ends the groups that are left and removes the run's folder for temporary files.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import IO, Self

logger = logging.getLogger(__name__)

GOING = "going"


class Guardian:
    """The run's end of the guardian: runs as long as the block.

    Args:
        folder: The run's folder for temporary files, which the guardian removes where the run cannot.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(  # noqa: S603  this very file, as a list
            # Without site packages: it starts at once and holds little memory.
            [sys.executable, "-I", "-S", __file__, str(self._folder)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._say(GOING)
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        self._process.wait()

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


def watch_run(told: IO[bytes], folder: str) -> None:
    """Listen until the run is gone; where it did not say that it goes, end the groups that it left."""
    groups: set[int] = set()
    for line in told:
        text = line.decode().strip()
        if text == GOING:
            return
        (groups.add if text.startswith("+") else groups.discard)(int(text[1:]))
    for group in groups:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    watch_run(sys.stdin.buffer, sys.argv[1])
