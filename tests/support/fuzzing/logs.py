"""Collects the product's log during fuzzing: an error is a defect, since no input may cause one."""

import logging
from types import TracebackType
from typing import Self

from support.fuzzing.target import DefectError

FORMATTER = logging.Formatter("%(name)s: %(message)s")


class DefectLog(logging.Handler):
    """Collects the messages of these loggers from this level up, instead of printing them."""

    def __init__(self, *names: str, level: int) -> None:
        super().__init__(level)
        self._loggers = [logging.getLogger(name) for name in names]
        self._propagated = [logger.propagate for logger in self._loggers]
        self._messages: list[tuple[int, str]] = []
        self.setFormatter(FORMATTER)

    def emit(self, record: logging.LogRecord) -> None:
        self._messages.append((record.levelno, self.format(record)))

    def clear(self) -> None:
        """Drop the messages of an earlier input."""
        self._messages.clear()

    def check(self) -> None:
        """Drop the messages."""
        messages = self.taken()
        if messages:
            raise DefectError("the log has errors:\n" + "\n".join(text for _, text in messages))

    def taken(self) -> list[tuple[int, str]]:
        """Take the messages, each with its level."""
        messages, self._messages = self._messages, []
        return messages

    def __enter__(self) -> Self:
        """Start to collect."""
        for logger in self._loggers:
            logger.addHandler(self)
            logger.propagate = False
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop collecting."""
        for logger, propagate in zip(self._loggers, self._propagated, strict=True):
            logger.removeHandler(self)
            logger.propagate = propagate
