"""Which tests of the exhaustive set a commit runs: a tenth of them, another tenth for each commit.

The draw depends on the commit's hash and the tests' names alone, so the command that is printed repeats it.
"""

import hashlib
from collections.abc import Mapping

FRACTION = 0.1
# Of all parts together, in seconds of a worker.
BOUND_SECONDS = 480.0


def share_of(
    seconds: Mapping[str, float], commit: str, *, fraction: float = FRACTION, bound_seconds: float = BOUND_SECONDS
) -> list[str]:
    """The groups of tests that a commit runs, in the order in which they were drawn.

    Each group is drawn with the same probability. Of those drawn, the ones that exceed the bound are left to other
    commits; the first one always runs, so that none is too long for every share.

    Args:
        seconds: The recorded time of each group of tests.
        commit: The commit's hash, or any other text.
        bound_seconds: The most that all groups may take together.

    >>> share_of(dict.fromkeys("abcdefgh", 10.0), "4f2a", fraction=0.7)
    ['h', 'd']
    >>> share_of(dict.fromkeys("abcdefgh", 10.0), "4f2a", fraction=0.7, bound_seconds=15.0)
    ['h']
    """
    places = {group: _place(group, commit) for group in seconds}
    drawn: list[str] = []
    left_seconds = bound_seconds
    for group in sorted(places, key=places.__getitem__):
        if places[group] >= fraction:
            break
        if not drawn or seconds[group] <= left_seconds:
            drawn.append(group)
            left_seconds -= seconds[group]
    return drawn


def _place(group: str, commit: str) -> float:
    """A number from 0 to 1 that a commit and a group's name determine."""
    return int.from_bytes(hashlib.sha256(f"{commit} {group}".encode()).digest()[:8]) / 2**64
