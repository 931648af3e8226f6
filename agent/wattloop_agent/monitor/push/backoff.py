"""When to push again: at the interval, and after failures ever later, each agent a little differently."""

from __future__ import annotations

MAX_WAIT_SECONDS = 60.0


def wait_seconds(interval_seconds: float, failures: int, chance: float) -> float:
    """How long to wait for the next push.

    Args:
        interval_seconds: The interval where all is well.
        failures: How many pushes have failed in a row.
        chance: From 0 to 1, drawn anew each time: agents that lost the operator at one moment don't come back at one.

    Example:
        >>> [wait_seconds(5.0, failures, 0.5) for failures in range(5)]
        [5.0, 7.5, 15.0, 30.0, 45.0]
    """
    if not failures:
        return interval_seconds * (0.9 + 0.2 * chance)
    longest = max(MAX_WAIT_SECONDS, interval_seconds)
    return min(interval_seconds * 2.0 ** min(failures, 30), longest) * (0.5 + 0.5 * chance)
