"""A file that the ranks of a job write together: each reads it, replaces its own part, and writes it whole."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from wattloop.errors import OperationError


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Exclude the other ranks while a file is read and replaced.

    The lock is a file beside it, ``.NAME.lock``, which stays. Its end is that of the process too.

    Raises:
        OperationError: The folder cannot be written.
    """
    lock = path.with_name(f".{path.name}.lock")
    try:
        descriptor = os.open(lock, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise OperationError(f"{path}: cannot write: {error.strerror}; name a file in a writable folder") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
