"""Confines the monitor as far as the kernel supports it, and logs the rest.

A seccomp filter (`seccomp`) denies access to other processes. A Landlock rule set (landlock(7), Linux 5.13) denies
reading files below a folder: the monitor needs the names of the folders of pods' logs, not their contents. A process
under any rule set also can't trace processes outside of it, or read their memory, environment or open files through
``/proc``.
"""

from __future__ import annotations

import ctypes
import itertools
import logging
import os
import struct
from collections.abc import Callable
from pathlib import Path

from wattloop_agent.monitor.seccomp import PR_SET_NO_NEW_PRIVS, control, deny_other_processes

logger = logging.getLogger(__name__)


def confine(pod_logs: Path | None) -> None:
    """Deny this process access to other processes and to pods' logs.

    Call it before starting threads.

    A kernel that supports only one of the two must not leave a node's GPUs without an agent, so a
    failure is logged.

    Args:
        pod_logs: The kubelet's folder of pod logs; None: the process does not use it.
    """
    reads_denied = pod_logs is None or _try("contents of pods' logs", lambda: deny_reads_below(pod_logs))
    if _try("signals, memory and limits of other processes", deny_other_processes) and reads_denied:
        logger.info("the monitor is confined")


def _try(access: str, restrict: Callable[[], None]) -> bool:
    try:
        restrict()
    except OSError as error:
        logger.warning("the kernel does not confine the monitor", extra={"access": access, "error": str(error)})
        return False
    return True


_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_PATH_BENEATH = 1
_READ_FILE = 1 << 2


def deny_reads_below(folder: Path) -> None:
    """Deny this process reading files below a folder; listing folders stays allowed.

    Landlock rules only allow access, so every entry beside the path to the folder is allowed, and
    the path itself is not. Entries created beside the path later can't be read.

    Raises:
        OSError: The kernel has no Landlock, or it is disabled.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    handled = struct.pack("=Q", _READ_FILE)
    rules = _call(libc, _CREATE_RULESET, handled, len(handled), 0)
    try:
        denied = folder.resolve()
        path = [*reversed(denied.parents), denied]
        for parent, on_path in itertools.pairwise(path):
            for entry in parent.iterdir():
                if entry != on_path and not entry.is_symlink():
                    _allow(libc, rules, entry)
        control(libc, PR_SET_NO_NEW_PRIVS, 1)
        _call(libc, _RESTRICT_SELF, rules, 0)
    finally:
        os.close(rules)


def _allow(libc: ctypes.CDLL, rules: int, path: Path) -> None:
    try:
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return
    try:
        _call(libc, _ADD_RULE, rules, _PATH_BENEATH, struct.pack("=Qi", _READ_FILE, opened), 0)
    finally:
        os.close(opened)


def _call(libc: ctypes.CDLL, number: int, *arguments: int | bytes) -> int:
    # As longs, since ctypes passes plain integers as 32 bits.
    result: int = libc.syscall(
        ctypes.c_long(number), *(ctypes.c_long(each) if isinstance(each, int) else each for each in arguments)
    )
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"system call {number}: {os.strerror(code)}")
    return result
