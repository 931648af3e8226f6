"""One power controller a node: a lock in a folder that all of them know, whatever their state folders are.

Two power controllers on the same GPUs would each take for found what the other holds, and give it
back at the wrong time.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from wattloop_agent.request_error import Reason, RequestError

NAME = "power-controller.lock"
MAX_NOTE_BYTES = 4096


class NodeLock:
    """The node's lock, held from now until `close` or the end of the process, however it ends.

    Args:
        folder: Where all power controllers of the node look; made, for root alone, where it is
            missing.
        note: Who this is, for the one that comes second.

    Raises:
        RequestError: `Reason.ANOTHER_AGENT`: another power controller holds it;
            `Reason.STATE_NOT_DURABLE`:
        it can't be used.
    """

    def __init__(self, folder: Path, note: str) -> None:
        path = folder / NAME
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise _unusable(path, error) from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = self._note()
            self.close()
            raise RequestError(
                Reason.ANOTHER_AGENT,
                f"another power controller holds this node's GPUs ({holder or 'it does not say who it is'}; {path}); "
                "one agent a node: this one changes nothing and takes over when the other ends",
            ) from error
        except OSError as error:
            self.close()
            raise _unusable(path, error) from error
        # A full disk leaves no note; the lock holds all the same.
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, note.encode()[:MAX_NOTE_BYTES], 0)

    def close(self) -> None:
        """Give it up."""
        os.close(self._descriptor)

    def _note(self) -> str:
        with contextlib.suppress(OSError):
            return os.pread(self._descriptor, MAX_NOTE_BYTES, 0).decode(errors="replace").strip()
        return ""


def _unusable(path: Path, error: OSError) -> RequestError:
    return RequestError(
        Reason.STATE_NOT_DURABLE,
        f"{path}: can't be locked ({error.strerror}), so another power controller might hold the same GPUs and none "
        "is changed; "
        "--lock-directory names another folder",
    )
