"""The streams to which every command writes: what a text of others has in it controls no terminal.

`wattloop.commands.main` puts them in the place of standard output and error. Tables and live views, whose colours and
movements are control sequences, are written by a `console`, which escapes the texts in them.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator
from typing import IO, TYPE_CHECKING, Any, TextIO, cast

from wattloop.printable import without_controls

if TYPE_CHECKING:
    from rich.console import Console


class PrintableStream:
    """A text stream that escapes the control characters of what is written, except line ends and tabs."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text."""
        self._stream.write(without_controls(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write texts."""
        for line in lines:
            self.write(line)

    @property
    def rich_proxied_file(self) -> IO[str]:
        """The stream itself, to which rich writes: only a `console` does, and that escapes what it writes."""
        return self._stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def printable_streams() -> Iterator[None]:
    """Put printable streams in the place of standard output and error within a block."""
    stdout, stderr = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (cast("TextIO", PrintableStream(each)) for each in (stdout, stderr))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = stdout, stderr


def console(
    stream: IO[str] | None = None, *, stderr: bool = False, width: int | None = None, soft_wrap: bool = False
) -> Console:
    """A console for tables and live views, which takes no text for markup and escapes what would control a terminal."""
    from rich.console import Console  # noqa: PLC0415 - no part of the client's dependencies
    from rich.segment import Segment  # noqa: PLC0415

    class PrintableConsole(Console):
        def render(self, *arguments: Any, **options: Any) -> Iterable[Segment]:
            for segment in super().render(*arguments, **options):
                yield segment if segment.control else Segment(without_controls(segment.text), segment.style)

    return PrintableConsole(
        file=stream, stderr=stderr, width=width, soft_wrap=soft_wrap, markup=False, emoji=False, highlight=False
    )
