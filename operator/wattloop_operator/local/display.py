"""Output of a local run besides its table: JSON lines, and messages about failed attempts."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import IO

from wattloop_operator.api.attempt_state import Result
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.history.job_history import JobHistory
from wattloop_operator.history.rows import json_object, rows_of

# The live table shows these. The other results need a message, which the table has no room for.
EXPECTED_RESULTS = frozenset({Result.REACHED, Result.STOPPED, Result.DIVERGED, Result.PLATEAUED})
INFORMATIVE_RESULTS = EXPECTED_RESULTS | {Result.EXHAUSTED, Result.DEADLINE_EXCEEDED}

# Mistakes of a user repeat, with a message of many lines.
MISTAKES = frozenset({Result.START_FAILED, Result.CRASHED, Result.MISSING_METRIC})


class JsonLinesWriter:
    """Writes one JSON object, on a line of its own, for each attempt that has ended.

    Args:
        stream: The output stream.
    """

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._written: set[tuple[int, int]] = set()

    def show(self, snapshot: Snapshot) -> None:
        """Write the attempts that have ended since the last call."""
        for row in rows_of(JobHistory.of_snapshot(snapshot)):
            if (row.recurrence, row.attempt) not in self._written:
                self._written.add((row.recurrence, row.attempt))
                self._stream.write(json.dumps(json_object(row, exact=True)) + "\n")
                self._stream.flush()


class AttemptReporter:
    """Reports the attempts of a run as they end: why they failed, and what to do.

    Args:
        print_line: Prints one line.
        table: Whether a live table shows the expected results. Without one they are printed, too.

    Attributes:
        results: The results of the attempts that ended in this run, unordered. Those of earlier
            runs are not included.
    """

    def __init__(self, print_line: Callable[[str], None], *, table: bool = True) -> None:
        self._print_line = print_line
        self._table = table
        self._known: set[str] | None = None
        self.results: list[Result] = []
        self._last_message = ""
        self._informative = False

    def show(self, snapshot: Snapshot) -> None:
        """Report the attempts that have ended since the last call. The first call reports none."""
        ended = {each.metadata.name: each for each in snapshot.recurrences if each.status.result is not None}
        for name in sorted(ended.keys() - (ended.keys() if self._known is None else self._known)):
            spec, status = ended[name].spec, ended[name].status
            if status.result is None:
                continue
            self.results.append(status.result)
            has_metric = status.progress is not None and status.progress.metric is not None
            self._informative |= status.result in INFORMATIVE_RESULTS and has_metric
            if status.result not in EXPECTED_RESULTS or not self._table:
                self._print_line(f"run {spec.index}, try {spec.attempt} ({name}): {self._described(ended[name])}")
        self._known = (self._known or set()) | ended.keys()

    def _described(self, recurrence: TrainingRecurrence) -> str:
        """The result and its message, without the message if it is that of the attempt before."""
        status = recurrence.status
        # Only the names of their logs differ.
        message = status.message.replace(recurrence.metadata.name, "")
        repeated = status.result in MISTAKES and message == self._last_message
        self._last_message = message
        return f"{status.result}: {'as before' if repeated else status.message}"

    @property
    def is_informative(self) -> bool:
        """Whether an attempt of this run gave information about its batch size.

        True if there was no attempt.
        """
        return not self.results or self._informative
