"""Leaves what the operator has not received in the termination message of this process's container.

Nothing here ends or delays the training; docs/internals/undelivered-reports.md has the rest.
"""

import atexit
import fcntl
import logging
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from wattloop.wire.message_fields import MessageError
from wattloop.wire.training_messages import Report
from wattloop.wire.undelivered_reports import TOO_MANY, joined_message, packed, split_message, unpacked

logger = logging.getLogger("wattloop")

# A larger file is another program's.
MAX_FILE_BYTES = 64 * 1024
# As much as the kubelet takes from a log.
MAX_ERROR_CHARACTERS = 2048


class TerminationMessage:
    """The undelivered report of this process in the termination message of its container."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._left: Report | None = None
        self._has_failed = self._watches_exit = False

    def leave(self, report: Report) -> None:
        """Leave a report that was not delivered, in place of the one before."""
        # It asks for nothing any more when it is read.
        report = replace(report, verdict_epoch=None, epochs_ahead=0, limit_schedule=None)
        if report == self._left:
            return
        self._left = report
        if not self._watches_exit:
            self._watches_exit = True
            atexit.register(self._add_error)

        def add(output: str, reports: str) -> tuple[str, str]:
            if reports == TOO_MANY:
                return output, reports
            return output, packed([*_others(reports, report.process), report])

        self._change(add)

    def withdraw(self) -> None:
        """Take the report back, because a later one was delivered."""
        if self._left is None:
            return
        process, self._left = self._left.process, None

        def remove(output: str, reports: str) -> tuple[str, str]:
            # The operator is back, so the other processes deliver theirs, or leave them again.
            others = [] if reports == TOO_MANY else _others(reports, process)
            return output, packed(others) if others else ""

        self._change(remove)

    def _add_error(self) -> None:
        """Add the traceback of the error that ends this process.

        The kubelet takes the end of the log as the message only if the file is empty, and the operator tells a mistake
        in the script from it.
        """
        error = getattr(sys, "last_value", None)
        if self._left is not None and isinstance(error, BaseException):
            printed = "".join(traceback.format_exception(error))[-MAX_ERROR_CHARACTERS:]
            self._change(lambda output, reports: (output or printed, reports))

    def _change(self, change: Callable[[str, str], tuple[str, str]]) -> None:
        try:
            _rewrite(self._path, change)
        except (OSError, ValueError) as error:
            if not self._has_failed:
                self._has_failed = True
                logger.warning("an undelivered report cannot be left in %s (%s); training continues", self._path, error)


def _rewrite(path: Path, change: Callable[[str, str], tuple[str, str]]) -> None:
    """Change the text and the packed reports of a file, which no other process does meanwhile."""
    with path.open("r+b", buffering=0) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        before = file.read(MAX_FILE_BYTES + 1)
        if len(before) > MAX_FILE_BYTES:
            raise ValueError(f"another program has written more than {MAX_FILE_BYTES} bytes into it")
        # The text of another program stays as it is.
        message = joined_message(*change(*split_message(before.decode(errors="surrogateescape"))))
        after = message.encode(errors="surrogateescape")
        if after != before:
            file.seek(0)
            # A process that is killed between these leaves nothing of the message before.
            file.write(after.ljust(len(before), b"\n"))
            file.truncate(len(after))


def _others(reports: str, process: str) -> list[Report]:
    try:
        return [each for each in unpacked(reports) if each.process != process] if reports else []
    except MessageError:  # a process was killed while it wrote
        return []
