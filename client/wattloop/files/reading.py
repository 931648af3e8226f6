"""Reads files that a user names: a bounded number of bytes, no file that could block forever.

JSON is parsed in bounded memory.
"""

import errno
import json
import os
import stat
from pathlib import Path

from wattloop.errors import InputError
from wattloop.files.atomic_write import OPEN_FILES
from wattloop.wire.message_fields import json_problem

KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def read_bounded(path: str | Path, max_bytes: int) -> bytes:
    """The first bytes of a file: up to one more than allowed, so that the caller detects a file that is too large.

    Args:
        path: A regular file, or any file that is open already (``/dev/stdin``, ``/dev/fd/63``).
        max_bytes: The maximum size of the file.

    Raises:
        OSError: The file does not exist, is not readable, or is a folder, a named pipe, a socket or a
            device; ``strerror`` says which, and what to do instead.

    Example:
        >>> read_bounded("/dev/zero", 10)
        Traceback (most recent call last):
        OSError: [Errno 22] it is a device; name a file, or pass the content as /dev/stdin: '/dev/zero'
    """
    name = os.fspath(path)
    try:
        # Without O_NONBLOCK, opening a named pipe waits for a writer.
        descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise _wrong_kind(stat.S_IFSOCK, name) from error
        raise
    with os.fdopen(descriptor, "rb") as stream:
        kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
        if kind in KINDS:
            if not _is_open_already(path):
                raise _wrong_kind(kind, name)
            # A pipe that is open already has a writer, as in `wattloop validate <(helm template …)`.
            # Wait for its end.
            os.set_blocking(descriptor, True)
        # None: a kernel file without data at this time.
        return stream.read(max_bytes + 1) or b""


def special_file_kind(path: str | Path) -> str | None:
    """The kind of a special file that a library should not open, such as "a named pipe"; None for any other file."""
    if _is_open_already(path):
        return None
    try:
        return KINDS.get(stat.S_IFMT(Path(path).stat().st_mode))
    except OSError:
        return None


def _is_open_already(path: str | Path) -> bool:
    return str(Path(path).absolute()).startswith(OPEN_FILES)


def _wrong_kind(kind: int, name: str) -> OSError:
    message = f"it is {KINDS[kind]}; name a file, or pass the content as /dev/stdin"
    return OSError(errno.EINVAL, message, name)


def read_text(path: str | Path, max_bytes: int, expected: str, *, encoding: str = "utf-8") -> str:
    """The text of a file that a user names.

    Raises:
        InputError: The file is not readable, is too large, or is not UTF-8.
    """
    source = str(path)
    try:
        data = read_bounded(path, max_bytes)
    except OSError as error:
        raise InputError(source, f"no readable file ({error.strerror})", expected) from error
    except ValueError as error:
        raise InputError(source, f"no readable file ({error})", expected) from error
    if len(data) > max_bytes:
        raise InputError(source, f"more than {max_bytes} bytes", f"{expected} of at most {max_bytes} bytes")
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        before = error.object[: error.start]
        line, column = before.count(b"\n") + 1, error.start - before.rfind(b"\n")
        raise InputError(source, "bytes that are not UTF-8", f"{expected} in UTF-8", line, column) from error


# What Python's values take at most: a list or an object with its first entries, a text, a number of three digits or
# more, and the place of a value in its list. A text of 16 MiB can take 0.9 GiB.
LIST_BYTES, OBJECT_BYTES, TEXT_BYTES, NUMBER_BYTES, PLACE_BYTES = 88, 232, 64, 32, 8
# Of a file of 64 MiB.
MAX_JSON_BYTES = 512 * 1024 * 1024
DIGITS = bytes.maketrans(b"123456789", b"000000000")
MEBIBYTE = 1024 * 1024


def parse_json(text: str | bytes, source: str, expected: str, max_memory_bytes: int) -> object:
    """The value that a JSON text has.

    Args:
        text: The text.
        source: Its origin, for errors.
        expected: Description of the expected document, for errors.
        max_memory_bytes: How much memory the values may take, by an estimate that is not too low.

    Raises:
        InputError: The text is no JSON, or its values take too much memory.

    Example:
        >>> parse_json("[" * 100_000, "runs", "runs", MEBIBYTE)
        Traceback (most recent call last):
        wattloop.errors.InputError: runs: found JSON whose values take 8.4 MiB of memory, expected runs in at most 1.0
    """
    memory = memory_bytes(text if isinstance(text, bytes) else text.encode())
    if memory > max_memory_bytes:
        raise InputError(
            source,
            f"JSON whose values take {memory / MEBIBYTE:.1f} MiB of memory",
            f"{expected} in at most {max_memory_bytes / MEBIBYTE:.1f}",
        )
    try:
        value: object = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(source, f"invalid JSON ({error.msg})", expected, error.lineno, error.colno) from error
    except (ValueError, RecursionError) as error:
        raise InputError(source, f"invalid JSON ({json_problem(error)})", expected) from error
    return value


def memory_bytes(text: bytes) -> int:
    """How many bytes of memory the values of a JSON text take, estimated from its characters.

    Example:
        >>> memory_bytes(b"[1410, 1395]"), memory_bytes(b'{"a": []}')
        (160, 392)
    """
    # Of a long number, each three digits count.
    numbers = text.translate(DIGITS).count(b"000")
    return (
        LIST_BYTES * text.count(b"[")
        + OBJECT_BYTES * text.count(b"{")
        + TEXT_BYTES * (text.count(b'"') // 2)
        + NUMBER_BYTES * numbers
        + PLACE_BYTES * (text.count(b",") + text.count(b":"))
    )
