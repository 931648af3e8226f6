"""Output of a local run besides its table: JSON lines, messages about failed attempts, warnings.

Each training of a run opens the same GPUs, so what is wrong with them is logged with every one; a run shows it once.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable, Iterator
from typing import IO

from wattloop_operator.api.attempt_state import SCRIPT_FAILURES, Result
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.history.job_history import JobHistory
from wattloop_operator.history.rows import measured_json_object, rows_of

# The live table shows these. The other results need a message, which the table has no room for.
EXPECTED_RESULTS = frozenset({Result.REACHED, Result.STOPPED, Result.DIVERGED, Result.PLATEAUED})
INFORMATIVE_RESULTS = EXPECTED_RESULTS | {Result.EXHAUSTED, Result.DEADLINE_EXCEEDED}

# Mistakes of a user repeat, with a message of many lines.
MISTAKES = SCRIPT_FAILURES | {Result.CRASHED, Result.MISSING_METRIC}


class EndedSince:
    """The attempts that have ended since the last call, by their names. The first call has none."""

    def __init__(self) -> None:
        self._known: set[str] | None = None

    def __call__(self, snapshot: Snapshot) -> list[TrainingAttempt]:
        """Those that have ended since the last call."""
        ended = {each.metadata.name: each for each in snapshot.recurrences if each.status.result is not None}
        known = ended.keys() if self._known is None else self._known
        self._known = known | ended.keys()
        return [ended[name] for name in sorted(ended.keys() - known)]


class JsonLinesWriter:
    """Writes one JSON object, on a line of its own, for each attempt that has ended."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._written: set[tuple[int, int]] = set()

    def show(self, snapshot: Snapshot) -> None:
        """Write the attempts that have ended since the last call."""
        for row in rows_of(JobHistory.of_snapshot(snapshot)):
            if (row.recurrence, row.attempt) not in self._written:
                self._written.add((row.recurrence, row.attempt))
                self._stream.write(json.dumps(measured_json_object(row)) + "\n")
                self._stream.flush()


class AttemptReporter:
    """Reports the attempts of a run as they end: why they failed, and what to do.

    Args:
        table: Whether a live table shows the expected results. Without one they are printed, too.

    Attributes:
        results: The results of the attempts that ended in this run, unordered. Those of earlier
            runs are not included.
    """

    def __init__(self, print_line: Callable[[str], None], *, table: bool = True) -> None:
        self._print_line = print_line
        self._table = table
        self._ended_since = EndedSince()
        self.results: list[Result] = []
        self._last_message = ""
        self._informative = False

    def show(self, snapshot: Snapshot) -> None:
        """Report the attempts that have ended since the last call. The first call reports none."""
        for each in self._ended_since(snapshot):
            spec, status, name = each.spec, each.status, each.metadata.name
            if status.result is None:
                continue
            self.results.append(status.result)
            self._informative |= status.result in INFORMATIVE_RESULTS and each.progress.metric is not None
            if status.result in EXPECTED_RESULTS and self._table:
                continue
            # Messages of a mistake differ in the names of their logs alone.
            before, self._last_message = self._last_message, status.message.replace(name, "")
            text = "as before" if status.result in MISTAKES and self._last_message == before else status.message
            self._print_line(f"run {spec.index}, try {spec.attempt} ({name}): {status.result}: {text}")

    @property
    def is_informative(self) -> bool:
        """Whether an attempt of this run gave information about its batch size.

        True if there was no attempt.
        """
        return not self.results or self._informative


@contextlib.contextmanager
def each_warning_once(logger: logging.Logger) -> Iterator[None]:
    """Drop what the logger has already said within the block.

    Args:
        logger: The logger of one module, whose messages are few.
    """
    seen: set[str] = set()

    def is_new(record: logging.LogRecord) -> bool:
        known = len(seen)
        seen.add(record.getMessage())
        return len(seen) > known

    logger.addFilter(is_new)
    try:
        yield
    finally:
        logger.removeFilter(is_new)
