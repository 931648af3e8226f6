"""Confines the monitor as far as the kernel supports it, and logs the rest.

A seccomp filter (seccomp(2)) denies signals, tracing, memory and limits of other processes: the monitor runs as user 0
in the host's PID namespace, and the kernel lets a user signal all of its processes without any capability. A Landlock
rule set (landlock(7), Linux 5.13) denies reading files below a folder: the monitor needs the names of the folders of
pods' logs, not their contents. A process under any rule set also can't trace processes outside of it, or read their
memory, environment or open files through ``/proc``.
"""

import ctypes
import errno
import itertools
import logging
import os
import platform
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

logger = logging.getLogger(__name__)


def confine(pod_logs: Path | None) -> None:
    """Deny this process access to other processes and to pods' logs.

    Call it before starting threads. A kernel that supports only one of the two must not leave a node's GPUs without an
    agent, so a failure is logged.

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


_PR_SET_SECCOMP = 22
_PR_SET_NO_NEW_PRIVS = 38
_MODE_FILTER = 2
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050000 | errno.EPERM, 0x80000000
# Classic BPF: load a word of struct seccomp_data; jump on equal, on greater or equal; return.
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
# x86-64 counts the calls of its x32 variant from here.
_X32 = 0x40000000


@dataclass(frozen=True)
class _Architecture:
    audit: int
    calls: dict[str, int]


# Calls that are refused with any arguments: each acts on a process given by id.
_REFUSED = (
    *("kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_send_signal"),
    *("ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "kcmp", "perf_event_open"),
    *("process_madvise", "process_mrelease", "migrate_pages", "move_pages", "setpriority", "ioprio_set"),
)
# Calls that act on the process in their first argument; 0 is the calling process.
_SELF_ONLY = ("prlimit64", "sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr")
# Second arguments of calls that change the owner of a descriptor. The kernel then sends any signal
# to that owner: F_SETOWN, F_SETSIG, F_SETOWN_EX; FIOSETOWN, SIOCSPGRP.
_REFUSED_COMMANDS = {"fcntl": (8, 10, 15), "ioctl": (0x8901, 0x8902)}
# Since Linux 5.1, new calls have the same number on every architecture.
_NEW = {"pidfd_send_signal": 424, "pidfd_getfd": 438, "process_madvise": 440, "process_mrelease": 448}
_ARCHITECTURES = {
    "x86_64": _Architecture(
        0xC000003E,
        _NEW
        | {"ioctl": 16, "kill": 62, "fcntl": 72, "ptrace": 101, "rt_sigqueueinfo": 129, "setpriority": 141}
        | {"sched_setparam": 142, "sched_setscheduler": 144, "tkill": 200, "sched_setaffinity": 203, "tgkill": 234}
        | {"ioprio_set": 251, "migrate_pages": 256, "move_pages": 279, "rt_tgsigqueueinfo": 297}
        | {"perf_event_open": 298, "prlimit64": 302, "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312}
        | {"sched_setattr": 314},
    ),
    "aarch64": _Architecture(
        0xC00000B7,
        _NEW
        | {"fcntl": 25, "ioctl": 29, "ioprio_set": 30, "ptrace": 117, "sched_setparam": 118, "sched_setscheduler": 119}
        | {"sched_setaffinity": 122, "kill": 129, "tkill": 130, "tgkill": 131, "rt_sigqueueinfo": 138}
        | {"setpriority": 140, "migrate_pages": 238, "move_pages": 239, "rt_tgsigqueueinfo": 240}
        | {"perf_event_open": 241, "prlimit64": 261, "process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272}
        | {"sched_setattr": 274},
    ),
}


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def deny_other_processes() -> None:
    """Install the filter on this process and all its future threads and children, irrevocably.

    Call it before starting threads: running ones are not filtered.

    Raises:
        OSError: The kernel has no seccomp filters, or there is no table of system calls for the machine's architecture.
    """
    architecture = _ARCHITECTURES.get(platform.machine())
    if architecture is None:
        raise OSError(errno.ENOSYS, f"no table of system calls for {platform.machine()}")
    program = b"".join(_instructions(architecture))
    libc = ctypes.CDLL(None, use_errno=True)
    compiled = _Program(len(program) // 8, program)
    _control(libc, _PR_SET_NO_NEW_PRIVS, 1)
    _control(libc, _PR_SET_SECCOMP, _MODE_FILTER, ctypes.addressof(compiled))


def _control(libc: ctypes.CDLL, option: int, *arguments: int) -> None:
    """Call prctl(2); missing arguments are 0."""
    longs = [ctypes.c_ulong(each) for each in (*arguments, 0, 0, 0, 0)[:4]]
    if libc.prctl(option, *longs):
        number = ctypes.get_errno()
        raise OSError(number, f"prctl {option}: {os.strerror(number)}")


def _instructions(architecture: _Architecture) -> Iterator[bytes]:
    calls = architecture.calls
    yield _instruction(_LOAD, _ARCHITECTURE)
    yield _instruction(_EQUAL, architecture.audit, 1, 0)
    yield _instruction(_RETURN, _KILL)
    yield _instruction(_LOAD, _NUMBER)
    yield _instruction(_AT_LEAST, _X32, 0, 1)
    yield _instruction(_RETURN, _REFUSE)
    for name in _REFUSED:
        yield _instruction(_EQUAL, calls[name], 0, 1)
        yield _instruction(_RETURN, _REFUSE)
    for name in _SELF_ONLY:
        yield _instruction(_EQUAL, calls[name], 0, 4)
        yield _instruction(_LOAD, _ARGUMENTS)
        yield _instruction(_EQUAL, 0, 1, 0)
        yield _instruction(_RETURN, _REFUSE)
        yield _instruction(_RETURN, _ALLOW)
    for name, commands in _REFUSED_COMMANDS.items():
        yield _instruction(_EQUAL, calls[name], 0, 2 + 2 * len(commands))
        yield _instruction(_LOAD, _ARGUMENTS + 8)
        for command in commands:
            yield _instruction(_EQUAL, command, 0, 1)
            yield _instruction(_RETURN, _REFUSE)
        yield _instruction(_RETURN, _ALLOW)
    yield _instruction(_RETURN, _ALLOW)


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


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
        _control(libc, _PR_SET_NO_NEW_PRIVS, 1)
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
