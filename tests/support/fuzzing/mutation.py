"""Random mutations of known inputs: the engine of the quick test, and where Atheris has no build."""

import random
import re
import time
from collections.abc import Callable, Iterator, Sequence

from support.fuzzing.target import SteppedTarget, Target

MAX_INPUT_BYTES = 64 * 1024
MAX_CHANGES = 6
# Of a target with steps, most mutations insert some: changes of bytes seldom give several valid ones.
STEPS_SHARE = 0.7
MAX_STEPS_TOGETHER = 8
NUMBERS = (b"0", b"-1", b"1", b"255", b"65536", b"2147483648", b"9223372036854775808", b"1e308", b"1e309", b"-0.0")
NUMBER = re.compile(rb"\d+")

Change = Callable[[random.Random, bytes, bytes], bytes]


def mutations(target: Target, seed: int) -> Iterator[bytes]:
    """The seeds of a target, then an infinite sequence of mutations, determined by the seed."""
    seeds = target.seeds()
    yield from seeds
    rng = random.Random(seed)
    stepped = target if isinstance(target, SteppedTarget) else None
    while True:
        data = rng.choice(seeds)
        if stepped is not None and rng.random() < STEPS_SHARE:
            yield with_steps(stepped, rng, data)
            continue
        for _ in range(rng.randint(1, MAX_CHANGES)):
            other = rng.choice(target.tokens) if rng.random() < 0.5 else rng.choice(seeds)
            data = rng.choice(CHANGES)(rng, data, other)
        yield data[:MAX_INPUT_BYTES]


def with_steps(target: SteppedTarget, rng: random.Random, data: bytes) -> bytes:
    """An input with random steps at one place between its lines, after or instead of others."""
    lines = data.splitlines(keepends=True)
    start = rng.randint(0, len(lines))
    end = start + rng.choice((0, 0, 0, 1, 4))
    steps = [target.random_step(rng) for _ in range(rng.randint(1, MAX_STEPS_TOGETHER))]
    return b"".join((*lines[:start], *steps, *lines[end:]))[:MAX_INPUT_BYTES]


def run_mutations(target: Target, seed: int, seconds: float, failed: Callable[[bytes], None]) -> int:
    """Check mutations for some seconds.

    Args:
        failed: Called with the input that causes a defect, before its exception is raised.

    Returns:
        The number of inputs that were checked.
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


def _place(rng: random.Random, data: bytes) -> int:
    return rng.randint(0, len(data))


def _part(rng: random.Random, data: bytes) -> tuple[int, int]:
    start = _place(rng, data)
    return start, min(len(data), start + rng.choice((1, 2, 8, 64, 1024)))


def _flip(rng: random.Random, data: bytes, _other: bytes) -> bytes:
    if not data:
        return bytes([rng.randrange(256)])
    place = rng.randrange(len(data))
    return data[:place] + bytes([data[place] ^ (1 << rng.randrange(8))]) + data[place + 1 :]


def _delete(rng: random.Random, data: bytes, _other: bytes) -> bytes:
    start, end = _part(rng, data)
    return data[:start] + data[end:]


def _repeat(rng: random.Random, data: bytes, _other: bytes) -> bytes:
    start, end = _part(rng, data)
    return data[:end] + data[start:end] * rng.choice((1, 2, 30)) + data[end:]


def _insert(rng: random.Random, data: bytes, other: bytes) -> bytes:
    place = _place(rng, data)
    return data[:place] + other + data[place:]


def _replace(rng: random.Random, data: bytes, other: bytes) -> bytes:
    start, end = _part(rng, data)
    return data[:start] + other + data[end:]


def _splice(rng: random.Random, data: bytes, other: bytes) -> bytes:
    return data[: _place(rng, data)] + other[_place(rng, other) :]


def _renumber(rng: random.Random, data: bytes, _other: bytes) -> bytes:
    found = list(NUMBER.finditer(data))
    if not found:
        return data
    number = rng.choice(found)
    return data[: number.start()] + rng.choice(NUMBERS) + data[number.end() :]


def _move_line(rng: random.Random, data: bytes, _other: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    if len(lines) < 2:
        return data
    line = lines.pop(rng.randrange(len(lines)))
    lines.insert(rng.randint(0, len(lines)), line)
    return b"".join(lines)


CHANGES: Sequence[Change] = (_flip, _delete, _repeat, _insert, _replace, _splice, _renumber, _move_line)
