"""Output of a local run besides its table: JSON lines, messages about failed attempts and their pipelines, warnings.

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
from wattloop_operator.reconcile.pipeline.pipeline_state import PipelineKey
from wattloop_operator.reconcile.pipeline.saving import pipeline_summary
from wattloop_operator.store.pipeline_store import Pipelines

# The live table shows these. The other results need a message, which the table has no room for.
EXPECTED_RESULTS = frozenset({Result.REACHED, Result.STOPPED, Result.DIVERGED, Result.PLATEAUED})
INFORMATIVE_RESULTS = EXPECTED_RESULTS | {Result.EXHAUSTED, Result.DEADLINE_EXCEEDED}

# Mistakes of a user repeat, with a message of many lines.
MISTAKES = SCRIPT_FAILURES | {Result.CRASHED, Result.MISSING_METRIC}


class _EndedSince:
    """The attempts that have ended since the last call, by their names. The first call has none."""

    def __init__(self) -> None:
        self._known: set[str] | None = None

    def __call__(self, snapshot: Snapshot) -> list[TrainingAttempt]:
        ended = {each.metadata.name: each for each in snapshot.recurrences if each.status.result is not None}
        known = ended.keys() if self._known is None else self._known
        self._known = known | ended.keys()
        return [ended[name] for name in sorted(ended.keys() - known)]


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
                self._stream.write(json.dumps(measured_json_object(row)) + "\n")
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
        self._ended_since = _EndedSince()
        self.results: list[Result] = []
        self._last_message = ""
        self._informative = False

    def show(self, snapshot: Snapshot) -> None:
        """Report the attempts that have ended since the last call. The first call reports none."""
        for each in self._ended_since(snapshot):
            spec, status = each.spec, each.status
            if status.result is None:
                continue
            self.results.append(status.result)
            has_metric = each.progress.metric is not None
            self._informative |= status.result in INFORMATIVE_RESULTS and has_metric
            if status.result not in EXPECTED_RESULTS or not self._table:
                name = each.metadata.name
                self._print_line(f"run {spec.index}, try {spec.attempt} ({name}): {self._described(each)}")

    def _described(self, recurrence: TrainingAttempt) -> str:
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


class PipelineReporter:
    """Prints what the pipeline of each attempt that ends planned and realised.

    Args:
        pipelines: The stored pipelines.
        print_line: Prints one line.
    """

    def __init__(self, pipelines: Pipelines, print_line: Callable[[str], None]) -> None:
        self._pipelines = pipelines
        self._print_line = print_line
        self._ended_since = _EndedSince()

    def show(self, snapshot: Snapshot) -> None:
        """Print the lines of the attempts that have ended since the last call. The first call prints none.

        Raises:
            OperationError: The database failed.
        """
        for spec in (each.spec for each in self._ended_since(snapshot)):
            key = PipelineKey(snapshot.job.metadata.uid, spec.index, spec.attempt)
            state = self._pipelines.read_without_measurements(key)
            if state is not None:
                self._print_line(f"run {spec.index}, try {spec.attempt}: {pipeline_summary(state)}")


class _FirstOfEach(logging.Filter):
    """Passes a message that was not seen before."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the message is new."""
        text = record.getMessage()
        is_new = text not in self._seen
        self._seen.add(text)
        return is_new


@contextlib.contextmanager
def each_warning_once(logger: logging.Logger) -> Iterator[None]:
    """Drop what the logger has already said within the block.

    Args:
        logger: The logger of one module, whose messages are few.
    """
    first_of_each = _FirstOfEach()
    logger.addFilter(first_of_each)
    try:
        yield
    finally:
        logger.removeFilter(first_of_each)
