"""Processes by pidfd: a name that no other process ever gets."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct

# Linux 6.5 and newer: a pidfd of the process that connected, made when it did. Not in the socket module yet.
_SO_PEERPIDFD = 77


def peer_process(connection: socket.socket) -> tuple[int, int]:
    """The process that opened this connection, as (pid in our PID namespace, pidfd); pid 0: in none that we see.

    Raises:
        OSError: It has ended.
    """
    pid = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
    with contextlib.suppress(OSError):
        return pid, connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    return pid, os.pidfd_open(pid)


def has_ended(pidfd: int) -> bool:
    """Whether the process has ended."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))
