"""A Landlock rule set (landlock(7), Linux 5.13) under which a process lists a folder and reads no file in it.

The monitor needs the names of the folders of pods' logs, and nothing of what is in them. A process
under any rule set also traces none outside of it, and reads no memory, environment or open files of
one through ``/proc``.
"""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path

from wattloop_agent.monitor.confinement.seccomp import PR_SET_NO_NEW_PRIVS, control

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_PATH_BENEATH = 1
_READ_FILE = 1 << 2


def deny_reads_below(folder: Path) -> None:
    """Read files anywhere but below this folder, from now on; its folders can be listed.

    Rules only ever allow: so each folder beside the way to this one is allowed, and the way itself
    is not. What is made later beside the way can't be read.

    Raises:
        OSError: The kernel has no Landlock, or it is switched off.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    handled = struct.pack("=Q", _READ_FILE)
    rules = _call(libc, _CREATE_RULESET, handled, len(handled), 0)
    try:
        way = folder.resolve()
        for parent, next_on_way in zip(reversed(way.parents), [*reversed(way.parents), way][1:], strict=True):
            for beside in parent.iterdir():
                if beside != next_on_way and not beside.is_symlink():
                    _allow(libc, rules, beside)
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
    # As longs: what has no type is passed as an int of 32 bits.
    result: int = libc.syscall(
        ctypes.c_long(number), *(ctypes.c_long(each) if isinstance(each, int) else each for each in arguments)
    )
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"system call {number}: {os.strerror(code)}")
    return result
