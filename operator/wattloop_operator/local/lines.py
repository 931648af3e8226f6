"""The machine-readable progress of a local run: one JSON object a line for each attempt, when it has ended."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import IO

from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.plots.job_history import JobHistory
from wattloop_operator.plots.rows import rows_of


class LineWriter:
    """Writes each attempt once.

    Args:
        stream: Where the lines go.
    """

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._written: set[tuple[int, int]] = set()

    def show(self, snapshot: Snapshot) -> None:
        """Write the attempts that have ended since the last call."""
        for row in rows_of(JobHistory.of_snapshot(snapshot)):
            if (row.recurrence, row.attempt) not in self._written:
                self._written.add((row.recurrence, row.attempt))
                self._stream.write(json.dumps(asdict(row)) + "\n")
                self._stream.flush()
