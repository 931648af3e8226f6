"""A YAML scanner whose work is bounded: the time of the library's own grows with the square of the nesting."""

from __future__ import annotations

from typing import Any

from ruamel.yaml.scanner import RoundTripScanner

# A manifest is some 20 levels deep and has a few thousand tokens.
MAX_DEPTH = 100
MAX_TOKENS = 300_000


class TooComplexError(Exception):
    """A text that is nested too deeply or has too many tokens.

    Attributes:
        line: 1-based line where the bound is passed.
        column: 1-based column.
    """

    def __init__(self, found: str, line: int, column: int) -> None:
        super().__init__(found)
        self.line = line
        self.column = column


class BoundedScanner(RoundTripScanner):
    """Scans as the library does, and refuses a text beyond `MAX_DEPTH` or `MAX_TOKENS`."""

    def __init__(self, loader: Any = None) -> None:
        super().__init__(loader=loader)
        self._scanned = 0

    def fetch_more_tokens(self) -> Any:
        """Scan the next token.

        Raises:
            TooComplexError: The text is beyond a bound.
        """
        self._scanned += 1
        if len(self.flow_context) + len(self.indents) > MAX_DEPTH:
            raise self._error("values nested too deeply")
        if self._scanned > MAX_TOKENS:
            raise self._error("too many values")
        return super().fetch_more_tokens()

    def _error(self, found: str) -> TooComplexError:
        return TooComplexError(found, self.reader.line + 1, self.reader.column + 1)
