"""A process that the kernel ends with the one that started it, however that one ends."""

from __future__ import annotations

import ctypes
import os
import signal

PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None, use_errno=True)


def kill_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it ends; safe between fork and exec."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def end_with_parent(parent: int) -> None:
    """As `kill_with_parent`, in a process that has started already.

    Args:
        parent: Id of the process that started this one, which may have ended meanwhile.

    Raises:
        SystemExit: It has ended.
    """
    kill_with_parent()
    if os.getppid() != parent:
        raise SystemExit(f"process {parent}, which started this one, has ended")
