"""Writing a file so that it appears whole or not at all: aside, then renamed.

What is no file, such as ``/dev/null``, ``/dev/stdout`` or a pipe, is written as it stands: it would be gone if it were
renamed over.
"""

from __future__ import annotations

import contextlib
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
def open_atomic(path: str | Path) -> Iterator[IO[str]]:
    r"""Open a text file that takes its place only when the block ends without an exception.

    Args:
        path: Where the file shall appear; ``-`` writes to standard output instead.

    Yields:
        A text stream, UTF-8, with ``\n`` line ends.

    Raises:
        OperationError: The folder is missing or read-only, or the disk is full; an older file at ``path`` stays.
    """
    if str(path) == "-":
        yield sys.stdout
        sys.stdout.flush()
        return
    with open_atomic_bytes(path) as binary:
        stream = io.TextIOWrapper(binary, encoding="utf-8", newline="\n", write_through=True)
        try:
            yield stream
        finally:
            stream.detach()


@contextlib.contextmanager
def open_atomic_bytes(path: str | Path) -> Iterator[IO[bytes]]:
    """The same for a file of bytes, such as a picture; ``-`` is a file name here."""
    target = Path(path)
    with _written_as_it_stands(target) if _is_no_file(target) else _written_aside(target) as stream:
        yield stream


# What is open already, whatever it leads to.
OPEN_FILES = ("/dev/fd/", "/dev/std", "/proc/")


def _is_no_file(target: Path) -> bool:
    try:
        mode = target.stat().st_mode
    except OSError:
        return False
    is_file = stat.S_ISREG(mode) or stat.S_ISDIR(mode)
    return not is_file or str(target.absolute()).startswith(OPEN_FILES)


@contextlib.contextmanager
def _written_as_it_stands(target: Path) -> Iterator[IO[bytes]]:
    try:
        with target.open("wb") as stream:
            yield stream
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OperationError(f"{target}: cannot write: {error.strerror}") from error


@contextlib.contextmanager
def _written_aside(link: Path) -> Iterator[IO[bytes]]:
    # A link stays one: what it leads to is written.
    target = Path(os.path.realpath(link))
    aside = target.with_name(f".{target.name}.{secrets.token_hex(8)}.part")
    # An end at once removes it too: see `interruption`.
    with interruption.cleanup_on_exit(functools.partial(aside.unlink, missing_ok=True)):
        try:
            descriptor = os.open(aside, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise OperationError(
                f"{target}: cannot write: {error.strerror}; name a file in an existing, writable folder"
            ) from error
        try:
            with os.fdopen(descriptor, "wb") as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            aside.chmod(_mode_of(target))
            aside.replace(target)
        except OSError as error:
            raise OperationError(f"{target}: cannot write: {error.strerror}; the file is as it was before") from error
        finally:
            aside.unlink(missing_ok=True)


def _mode_of(target: Path) -> int:
    """Who may read and write it: as of the file before, else everybody may read."""
    try:
        return stat.S_IMODE(target.stat().st_mode)
    except FileNotFoundError:
        return 0o644
