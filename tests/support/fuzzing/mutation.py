"""Mutations of known inputs by chance: the engine of the quick test, and of machines for which Atheris has no build."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator, Sequence

from support.fuzzing.target import Target

MAX_INPUT_BYTES = 64 * 1024
MAX_CHANGES = 6
NUMBERS = (b"0", b"-1", b"1", b"255", b"65536", b"2147483648", b"9223372036854775808", b"1e308", b"1e309", b"-0.0")
NUMBER = re.compile(rb"\d+")

Change = Callable[[random.Random, bytes, bytes], bytes]


def mutations(target: Target, seed: int) -> Iterator[bytes]:
    """The seeds of a target, then mutations of them without an end; the same for the same seed."""
    seeds = target.seeds()
    yield from seeds
    chance = random.Random(seed)
    while True:
        data = chance.choice(seeds)
        for _ in range(chance.randint(1, MAX_CHANGES)):
            other = chance.choice(target.tokens) if chance.random() < 0.5 else chance.choice(seeds)
            data = chance.choice(CHANGES)(chance, data, other)
        yield data[:MAX_INPUT_BYTES]


def run_mutations(target: Target, seed: int, seconds: float, failed: Callable[[bytes], None]) -> int:
    """Give mutations to a target for some seconds.

    Args:
        target: The target.
        seed: Changes all mutations.
        seconds: How long.
        failed: Called with the input that shows a defect, before its exception goes on.

    Returns:
        How many inputs the target took.
    """
    end = time.monotonic() + seconds
    count = 0
    for data in mutations(target, seed):
        if time.monotonic() >= end:
            break
        try:
            target.check(data)
        except BaseException:
            failed(data)
            raise
        count += 1
    return count


def _place(chance: random.Random, data: bytes) -> int:
    return chance.randint(0, len(data))


def _part(chance: random.Random, data: bytes) -> tuple[int, int]:
    start = _place(chance, data)
    return start, min(len(data), start + chance.choice((1, 2, 8, 64, 1024)))


def _flip(chance: random.Random, data: bytes, _other: bytes) -> bytes:
    if not data:
        return bytes([chance.randrange(256)])
    place = chance.randrange(len(data))
    return data[:place] + bytes([data[place] ^ (1 << chance.randrange(8))]) + data[place + 1 :]


def _delete(chance: random.Random, data: bytes, _other: bytes) -> bytes:
    start, end = _part(chance, data)
    return data[:start] + data[end:]


def _repeat(chance: random.Random, data: bytes, _other: bytes) -> bytes:
    start, end = _part(chance, data)
    return data[:end] + data[start:end] * chance.choice((1, 2, 30)) + data[end:]


def _insert(chance: random.Random, data: bytes, other: bytes) -> bytes:
    place = _place(chance, data)
    return data[:place] + other + data[place:]


def _replace(chance: random.Random, data: bytes, other: bytes) -> bytes:
    start, end = _part(chance, data)
    return data[:start] + other + data[end:]


def _splice(chance: random.Random, data: bytes, other: bytes) -> bytes:
    return data[: _place(chance, data)] + other[_place(chance, other) :]


def _renumber(chance: random.Random, data: bytes, _other: bytes) -> bytes:
    found = list(NUMBER.finditer(data))
    if not found:
        return data
    number = chance.choice(found)
    return data[: number.start()] + chance.choice(NUMBERS) + data[number.end() :]


def _move_line(chance: random.Random, data: bytes, _other: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    if len(lines) < 2:
        return data
    line = lines.pop(chance.randrange(len(lines)))
    lines.insert(chance.randint(0, len(lines)), line)
    return b"".join(lines)


CHANGES: Sequence[Change] = (_flip, _delete, _repeat, _insert, _replace, _splice, _renumber, _move_line)
