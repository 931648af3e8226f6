"""Random requests: most are valid for some caller, some are malformed."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

NO_REQUESTS = (
    b"hello",
    b"[]",
    b"{}",
    b'"hold_limit"',
    b'{"verb": 7}',
    b'{"verb": "restore"}',
    b'{"verb": "hold_limit", "gpus": [], "watts": 200}',
    b'{"verb": "hold_limit", "gpus": [0], "watts": 200}',
    b'{"verb": "hold_limit", "gpus": ["a", "a"], "watts": 200}',
    b'{"verb": "hold_clocks", "gpus": "all", "megahertz": 900}',
    b'{"verb": "release", "gpus": {}}',
    b'{"verb": "energy", "gpus": [null]}',
    b"\xff\xfe",
    b"[" * 20_000,
)
# Within the range, at its ends, outside of it.
WATTS = (100, 150.25, 200, 250.5, 333.333, 400, 99.999, 400.001, 0, -200, 1e12)
MEGAHERTZ = (210, 907.4, 1000, 1007, 1410, 1593, 209, 5000, -1)
SECONDS = (None, None, None, 0, 0.5, 20, 90, 600)


@dataclass(frozen=True)
class Line:
    """A line that a caller sends; ``request`` is None where it is no request at all."""

    request: dict[str, Any] | None
    data: bytes


def random_line(random: Random, gpus: Sequence[str], own: Sequence[str]) -> Line:
    """One line.

    Args:
        own: Those that the caller is more likely to ask for.
    """
    if random.random() < 0.05:
        return Line(None, random.choice(NO_REQUESTS))
    request = _request(random, gpus, own)
    return Line(request, json.dumps(request).encode())


def _request(random: Random, gpus: Sequence[str], own: Sequence[str]) -> dict[str, Any]:
    verb = random.choices(
        ("hold_limit", "hold_clocks", "release", "energy", "gpus", "list"), weights=(30, 25, 25, 8, 4, 8)
    )[0]
    request: dict[str, Any] = {"verb": verb}
    if verb in {"gpus", "list"}:
        return request
    if verb.startswith("hold") or random.random() < 0.5:
        request["gpus"] = _some(random, gpus, own)
    if verb == "hold_limit":
        request["watts"] = random.choice(WATTS)
    elif verb == "hold_clocks":
        request["megahertz"] = random.choice(MEGAHERTZ)
        request["domain"] = random.choices(("graphics", "memory", "video"), weights=(10, 3, 1))[0]
    if verb.startswith("hold") and (seconds := random.choice(SECONDS)) is not None:
        request["for_seconds"] = seconds
    return request


def _some(random: Random, gpus: Sequence[str], own: Sequence[str]) -> list[str]:
    pool = own if own and random.random() < 0.8 else gpus
    some = random.sample(pool, random.randint(1, min(3, len(pool))))
    if random.random() < 0.03:
        some.append("GPU-00000000-0000-0000-0000-000000000000")
    return some
