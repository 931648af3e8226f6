"""Writing a file so that it appears whole or not at all: aside, then renamed."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from wattloop.errors import CannotError


@contextlib.contextmanager
def written_whole(path: str | Path) -> Iterator[IO[str]]:
    r"""Open a text file that takes its place only when the block ends without an exception.

    Args:
        path: Where the file shall appear; ``-`` writes to standard output instead.

    Yields:
        A text stream, UTF-8, with ``\n`` line ends.

    Raises:
        CannotError: The folder is missing or read-only, or the disk is full; an older file at ``path`` stays.
    """
    if str(path) == "-":
        yield sys.stdout
        sys.stdout.flush()
        return
    with bytes_written_whole(path) as binary:
        stream = io.TextIOWrapper(binary, encoding="utf-8", newline="\n", write_through=True)
        try:
            yield stream
        finally:
            stream.detach()


@contextlib.contextmanager
def bytes_written_whole(path: str | Path) -> Iterator[IO[bytes]]:
    """The same for a file of bytes, such as a picture; ``-`` is a file name here."""
    target = Path(path)
    try:
        descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")
    except OSError as error:
        raise CannotError(
            f"{target}: cannot write: {error.strerror}; name a file in an existing, writable folder"
        ) from error
    aside = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        aside.chmod(0o644)
        aside.replace(target)
    except OSError as error:
        raise CannotError(f"{target}: cannot write: {error.strerror}; the file is as it was before") from error
    finally:
        aside.unlink(missing_ok=True)
