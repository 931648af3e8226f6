"""How an attempt ended."""

from __future__ import annotations

from enum import StrEnum


class Result(StrEnum):
    """How an attempt ended.

    REACHED: the target was reached.
    STOPPED: given up for being too dear.
    EXHAUSTED: all epochs run, target not reached.
    CRASHED: the process died by its own doing (an exception, out of memory).
    DEADLINE_EXCEEDED: still running at the active deadline, and ended.
    MISSING_METRIC: ended well without reporting the metric; teaches nothing.
    DISRUPTED: ended by the cluster (eviction, node gone); teaches nothing.
    CANCELLED: ended by a user or by concurrency policy Replace; teaches nothing.
    REFUSED: the API server refused the workload.
    """

    REACHED = "Reached"
    STOPPED = "Stopped"
    EXHAUSTED = "Exhausted"
    CRASHED = "Crashed"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    MISSING_METRIC = "MissingMetric"
    DISRUPTED = "Disrupted"
    CANCELLED = "Cancelled"
    REFUSED = "Refused"
