"""The parts of the operator and their shares of its container's memory, in bytes.

Each part takes its bound from its share. All shares fit the limit that the chart gives the container;
`tests/operator/test_memory_shares.py` adds them up and fills several at a time.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

MEBIBYTE = 1024**2

# Interpreter, modules, threads, clients: an operator without a job takes 130 MB. The models of policies have 24 MB.
BASE = 148 * MEBIBYTE
# The objects of a namespace in the cache of the API server's objects.
OBJECTS = 76 * MEBIBYTE
# What is remembered of jobs' stored records.
RECORDS = 32 * MEBIBYTE
# Of the reporting API. A connection with TLS takes 145 kB.
CONNECTIONS, BYTES_OF_CONNECTION = 192 * MEBIBYTE, 145_000
# Messages of ranks that wait for a slow database.
WAITING_MESSAGES = 32 * MEBIBYTE
# What recurrences and users' plans say of pipelines.
PIPELINE_SETTINGS = 8 * MEBIBYTE
# What is remembered of pipelines between messages.
REMEMBERED_PIPELINES = 48 * MEBIBYTE
# The largest pipeline while it is read from the store, with its plans.
READ_PIPELINE = 116 * MEBIBYTE
# The largest pipeline that is planned, read likewise, with the plans that the planner returns.
PLANNED_PIPELINE = 116 * MEBIBYTE

OPERATOR = (
    BASE
    + OBJECTS
    + RECORDS
    + CONNECTIONS
    + WAITING_MESSAGES
    + PIPELINE_SETTINGS
    + REMEMBERED_PIPELINES
    + READ_PIPELINE
    + PLANNED_PIPELINE
)

LIMIT_FILES = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def container_bytes(limit_files: Sequence[Path] = LIMIT_FILES) -> int | None:
    """The memory limit of this process's container; None if there is none."""
    for file in limit_files:
        try:
            text = file.read_text(encoding="ascii").strip()
        except OSError:
            continue
        return int(text) if text.isdecimal() else None
    return None


def objects_bytes(container_bytes: int | None) -> int:
    """The share of a namespace's objects: all that the other parts leave, at least `OBJECTS`.

    Args:
        container_bytes: The container's memory; None: it has no limit, and the share has none.

    Example:
        >>> [objects_bytes(each * MEBIBYTE) // MEBIBYTE for each in (512, 1024, 2048)]
        [76, 76, 844]
    """
    if container_bytes is None:
        return sys.maxsize
    return max(OBJECTS, container_bytes - (OPERATOR - OBJECTS) - planner_bytes(container_bytes))


def planner_bytes(container_bytes: int) -> int:
    """The share of the planner's process: a quarter, or what the operator leaves if that is less, at least an eighth.

    Example:
        >>> [planner_bytes(each * MEBIBYTE) // MEBIBYTE for each in (512, 900, 1024, 4096)]
        [64, 132, 256, 1024]
    """
    return min(container_bytes // 4, max(container_bytes - OPERATOR, container_bytes // 8))
