"""The product's log while it is fuzzed: an error in it is a defect, since no caller may cause one."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Self

from support.fuzzing.target import DefectError

FORMATTER = logging.Formatter("%(name)s: %(message)s")


class DefectLog(logging.Handler):
    """Collects what these loggers say at this level or above, in place of showing it."""

    def __init__(self, *names: str, level: int) -> None:
        super().__init__(level)
        self._loggers = [logging.getLogger(name) for name in names]
        self._propagated = [logger.propagate for logger in self._loggers]
        self._said: list[str] = []
        self.setFormatter(FORMATTER)

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler`."""
        self._said.append(self.format(record))

    def forget(self) -> None:
        """Forget what was said: it was of another input."""
        self._said.clear()

    def check(self) -> None:
        """Forget what was said.

        Raises:
            DefectError: Something was.
        """
        said, self._said = self._said, []
        if said:
            raise DefectError("the log has errors:\n" + "\n".join(said))

    def __enter__(self) -> Self:
        """Listen."""
        for logger in self._loggers:
            logger.addHandler(self)
            logger.propagate = False
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Listen no more."""
        for logger, propagate in zip(self._loggers, self._propagated, strict=True):
            logger.removeHandler(self)
            logger.propagate = propagate
