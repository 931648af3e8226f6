"""Prepares the standard streams, which the parent process may have closed or given a limited encoding."""

from __future__ import annotations

import io
import os
import sys

STANDARD_INPUT, STANDARD_OUTPUT, STANDARD_ERROR = range(3)


def open_closed_streams() -> None:
    """Open closed descriptors 0 to 2, which the next opened file, such as a database, would otherwise get.

    Input is empty, writes to standard output fail, because the output was requested, and standard error
    is discarded.
    """
    # In this order, because an opened file gets the lowest free number.
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
    r"""Let standard output escape characters outside its encoding, as ``\xf6``, instead of failing."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
