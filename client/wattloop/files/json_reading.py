"""Parses JSON of a user's file in bounded memory."""

from __future__ import annotations

import json

from wattloop.errors import InputError
from wattloop.wire.message_fields import json_problem

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
