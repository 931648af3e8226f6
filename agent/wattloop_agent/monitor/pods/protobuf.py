"""Decodes the protobuf wire format, as far as the kubelet's answers need it.

https://protobuf.dev/programming-guides/encoding describes the format.
"""

from __future__ import annotations

from collections.abc import Iterator

_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5


def fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """The (number, content) of each length-delimited field of a message; others are skipped.

    Raises:
        ValueError: It is not a protobuf message.

    Example:
        >>> list(fields(bytes([0x0A, 2]) + b"ab" + bytes([0x10, 7])))
        [(1, b'ab')]
    """
    position = 0
    while position < len(message):
        tag, position = _varint(message, position)
        kind = tag & 7
        if kind == _VARINT:
            _, position = _varint(message, position)
            continue
        if kind == _LENGTH:
            size, position = _varint(message, position)
        elif kind in {_EIGHT_BYTES, _FOUR_BYTES}:
            size = 8 if kind == _EIGHT_BYTES else 4
        else:
            raise ValueError(f"unknown wire type {kind}")
        if position + size > len(message):
            raise ValueError("a field is longer than its message")
        if kind == _LENGTH:
            yield tag >> 3, message[position : position + size]
        position += size


def _varint(message: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(message):
            raise ValueError("a number is truncated")
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise ValueError("a number has more than ten bytes")
