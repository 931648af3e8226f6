"""The process's own streams, as whoever started it left them: closed, or of an encoding that knows few characters."""

from __future__ import annotations

import io
import os
import sys

STANDARD_INPUT, STANDARD_OUTPUT, STANDARD_ERROR = range(3)


def open_closed_streams() -> None:
    """Put something at the numbers 0 to 2 where nothing is: else the next file to be opened, a database say, is there.

    An output that was closed refuses what is written to it, since it was asked for; input is empty, and errors go
    nowhere.
    """
    # In this order: what is opened gets the lowest number that is free.
    for number in (STANDARD_INPUT, STANDARD_OUTPUT, STANDARD_ERROR):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_WRONLY if number == STANDARD_ERROR else os.O_RDONLY)
            os.set_inheritable(number, True)
    if sys.stdin is None:
        sys.stdin = open(STANDARD_INPUT, encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = open(STANDARD_OUTPUT, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(STANDARD_ERROR, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def write_every_character() -> None:
    r"""Have standard output show what its encoding does not know as ``\xf6``, as standard error does; else it fails."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
