"""Writes a file atomically and durably, and reads one with a bound on its size.

A process that is killed at any instruction, or a power cut, leaves the old or the new file intact.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def write_durably(path: Path, folder: int, data: bytes) -> None:
    """Replace the content of a file; durable on return.

    It writes to a temporary file, syncs it, renames it, and syncs the folder.

    Args:
        path: The file; there may be one writer at a time.
        folder: An open descriptor of its folder.
        data: The content.

    Raises:
        OSError: The disk is full, the folder is read-only, …; the temporary file is removed if
            possible.
    """
    temporary = path.with_name(f".{path.name}.aside")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(descriptor)
        temporary.rename(path)
        os.fsync(folder)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def read_bounded(path: Path, limit_bytes: int) -> bytes:
    """The content of a file, at most one byte more than the limit.

    Of a pipe or another special file, it is the content that is available at once.

    Raises:
        OSError: It does not exist or can't be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    data = b""
    try:
        with contextlib.suppress(BlockingIOError):
            while len(data) <= limit_bytes and (part := os.read(descriptor, limit_bytes + 1 - len(data))):
                data += part
    finally:
        os.close(descriptor)
    return data
