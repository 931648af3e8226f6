"""A lock that admits one power controller per node, whatever its state folder is.

Each of two power controllers on the same GPUs would take the value that the other holds for the one
to restore.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from wattloop_agent import refusals

NAME = "power-controller.lock"
MAX_NOTE_BYTES = 4096


class NodeLock:
    """The node's lock, held until `close` or the end of the process, however it ends.

    Args:
        folder: The folder that all power controllers of the node use; created, for root alone, if
            missing.
        note: A description of this process, for the error message of a second one.

    Raises:
        RequestError: `Reason.ANOTHER_AGENT`: another power controller holds the lock;
            `Reason.STATE_NOT_DURABLE`: the lock can't be used.
    """

    def __init__(self, folder: Path, note: str) -> None:
        path = folder / NAME
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise refusals.node_not_locked(path, error) from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = self._read_note()
            self.close()
            raise refusals.node_in_use(path, holder) from error
        except OSError as error:
            self.close()
            raise refusals.node_not_locked(path, error) from error
        # On a full disk the note is missing; the lock is held all the same.
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, note.encode()[:MAX_NOTE_BYTES], 0)

    def close(self) -> None:
        """Release the lock."""
        os.close(self._descriptor)

    def _read_note(self) -> str:
        with contextlib.suppress(OSError):
            return os.pread(self._descriptor, MAX_NOTE_BYTES, 0).decode(errors="replace").strip()
        return ""
