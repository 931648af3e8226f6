"""Writing a file so that whatever dies, at any instruction, leaves the older or the newer one whole; and reading it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def write_durably(path: Path, folder: int, data: bytes) -> None:
    """Make this the content of a file; durable when it returns: written aside, fsync, renamed, fsync of the folder.

    Args:
        path: The file; one writer at a time.
        folder: A descriptor of its folder.
        data: The content.

    Raises:
        OSError: A full disk, a read-only folder, …; what was written aside is removed where it can
            be.
    """
    aside = path.with_name(f".{path.name}.aside")
    try:
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(descriptor)
        aside.rename(path)
        os.fsync(folder)
    except OSError:
        with contextlib.suppress(OSError):
            aside.unlink(missing_ok=True)
        raise


def read_bounded(path: Path, limit_bytes: int) -> bytes:
    """The content of a file, a byte more than the limit at most; of what is no file, a pipe say, whatever is there now.

    Raises:
        OSError: It can't be read, or there is none.
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
