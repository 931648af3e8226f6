"""Writes a file atomically: to a temporary file, which then replaces the target.

Special files such as ``/dev/null``, ``/dev/stdout`` or a pipe are written in place, because a rename
would replace them. What several processes write together is locked meanwhile.
"""

import contextlib
import fcntl
import functools
import io
import os
import secrets
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from wattloop import interruption
from wattloop.errors import OperationError


@contextlib.contextmanager
def open_atomic(path: str | Path, *, is_private: bool = False) -> Iterator[IO[str]]:
    r"""Open a text file that replaces the target when the block ends without an exception.

    Args:
        path: The target; ``-`` writes to standard output instead.
        is_private: Whether a new file is readable by its owner alone; one that exists keeps its permissions.

    Yields:
        A text stream, UTF-8, with ``\n`` line ends.

    Raises:
        OperationError: The folder is missing or read-only, or the disk is full. The target is unchanged.
    """
    if str(path) == "-":
        yield sys.stdout
        sys.stdout.flush()
        return
    with open_atomic_bytes(path, is_private=is_private) as binary:
        stream = io.TextIOWrapper(binary, encoding="utf-8", newline="\n", write_through=True)
        try:
            yield stream
        finally:
            stream.detach()


@contextlib.contextmanager
def open_atomic_bytes(path: str | Path, *, is_private: bool = False) -> Iterator[IO[bytes]]:
    """Open a binary file, such as an image, in the same way; ``-`` is a file name here."""
    target = Path(path)
    with _open_in_place(target) if _is_special(target) else _open_temporary(target, is_private) as stream:
        yield stream


# Permissions of a new file: readable by its owner alone, or by all.
PRIVATE_MODE, PUBLIC_MODE = 0o600, 0o644
# Paths that lead to files that are open already.
OPEN_FILES = ("/dev/fd/", "/dev/std", "/proc/")


def _is_special(target: Path) -> bool:
    try:
        mode = target.stat().st_mode
    except OSError:
        return False
    is_file = stat.S_ISREG(mode) or stat.S_ISDIR(mode)
    return not is_file or str(target.absolute()).startswith(OPEN_FILES)


@contextlib.contextmanager
def _open_in_place(target: Path) -> Iterator[IO[bytes]]:
    try:
        with target.open("wb") as stream:
            yield stream
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OperationError(f"{target}: cannot write: {error.strerror}") from error


@contextlib.contextmanager
def _open_temporary(link: Path, is_private: bool) -> Iterator[IO[bytes]]:
    # Replaces the target of a symbolic link, not the link.
    target = Path(os.path.realpath(link))
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.part")
    # Also removed if a signal ends the process at once; see `interruption`.
    with interruption.cleanup_on_exit(functools.partial(temporary.unlink, missing_ok=True)):
        try:
            descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise OperationError(
                f"{target}: cannot write: {error.strerror}; name a file in an existing, writable folder"
            ) from error
        try:
            with os.fdopen(descriptor, "wb") as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            try:
                mode = stat.S_IMODE(target.stat().st_mode)
            except FileNotFoundError:
                mode = PRIVATE_MODE if is_private else PUBLIC_MODE
            temporary.chmod(mode)
            temporary.replace(target)
        except OSError as error:
            raise OperationError(f"{target}: cannot write: {error.strerror}; the file is unchanged") from error
        finally:
            temporary.unlink(missing_ok=True)


def private_opener(path: str, flags: int) -> int:
    """Opens a file for `open`, so that a new one is readable by its owner alone."""
    return os.open(path, flags | os.O_CLOEXEC, PRIVATE_MODE)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Exclude the other processes, such as the ranks of a job, while a file is read and replaced.

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
