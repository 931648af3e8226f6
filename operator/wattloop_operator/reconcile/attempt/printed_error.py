"""The error that ended a program, from the end of what it printed. The text is untrusted.

Python prints a traceback and, in a line that is not indented, the exception. Launchers print their own exception
after that of the rank that failed, and Python's shutdown prints exceptions that it ignores; neither is the cause.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from wattloop.printable import printable
from wattloop.run.training_progress import PEER_ERRORS

MAX_LINE_CHARACTERS = 500
# A place has printable characters alone, and at most as many as a status allows.
MAX_PLACE_CHARACTERS = 500
MAX_QUOTED_LINES = 10
MAX_QUOTED_CHARACTERS = 200
# What torchrun and other launchers raise because a rank failed.
LAUNCHER_ERRORS = PEER_ERRORS | {"ChildFailedError", "CalledProcessError", "SystemExit"}
# torchrun and torch.distributed put the rank before each line.
_RANK = re.compile(r"^\[(?:rank|default)?\d{1,7}\]: ?")
_EXCEPTION = re.compile(r"^(?:[A-Za-z_]\w{0,63}\.){0,16}([A-Za-z_]\w{0,63})(?::(?: (.*))?)?$")
_FRAME = re.compile(r'^ +File "(.{1,400}?)", line (\d{1,7})')
_IGNORED = "Exception ignored in"
# How an interpreter, a shell or a parser of arguments names a mistake without a traceback.
_INTERPRETER_ERROR = re.compile(r"python[\d.]{0,8}: (?:can't|(No module named|Error while finding module))")
_PLAIN_ERROR = re.compile(
    r": command not found|: error: |: No such file or directory|: Permission denied|: not found$|^Error: |"
    r"^FATAL Flags parsing error|cannot execute"
)
_OUT_OF_MEMORY = re.compile(
    r"out of (?:shared )?memory|OutOfMemory|MemoryError|can't allocate memory|RESOURCE_EXHAUSTED|STATUS_ALLOC_FAILED|"
    r"bad_alloc|Unable to allocate|OOMKilled",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class PrintedError:
    """An error in the output of a program.

    Attributes:
        name: Type of the exception, or the one that it would be; empty if no type is known.
        text: The line that names it, without unprintable characters.
        place: File, line and type of the exception, the same for each failure at this place; empty if not known.
    """

    name: str
    text: str
    place: str = ""


def printed_error(output: str) -> PrintedError | None:
    r"""The error that ended a program; None if its output shows none.

    Example:
        >>> printed_error('Traceback (most recent call last):\n  File "a.py", line 1, in <module>\nImportError: no b')
        PrintedError(name='ImportError', text='ImportError: no b', place='a.py:1 ImportError')
        >>> printed_error("usage: a.py [--epochs N]\na.py: error: unrecognized arguments: --epoch")
        PrintedError(name='', text='a.py: error: unrecognized arguments: --epoch', place='')
    """
    lines = _lines(output)
    raised = [each for each in _exceptions(lines) if each.name not in LAUNCHER_ERRORS]
    if raised:
        return raised[-1]
    for line in reversed(lines):
        refused = _INTERPRETER_ERROR.search(line)
        if refused is not None:
            return PrintedError("ModuleNotFoundError" if refused[1] else "FileNotFoundError", _shown(line))
        if _PLAIN_ERROR.search(line):
            return PrintedError("", _shown(line))
    return None


def is_out_of_memory(text: str) -> bool:
    """Whether a text names a lack of memory of the GPU or the machine. The source lines of tracebacks do not count."""
    return any(_OUT_OF_MEMORY.search(line) for line in _lines(text) if not line.startswith(" "))


def quoted_output(output: str) -> str:
    r"""The last lines of an output for a message: few, short and printable; empty if there are none.

    Example:
        >>> quoted_output("a\n\nb\x1b[2J\n")
        '\n  a\n  b\\x1b[2J'
    """
    lines = [line.rstrip() for line in output.splitlines() if line.strip()]
    return "".join(f"\n  {printable(line, MAX_QUOTED_CHARACTERS)}" for line in lines[-MAX_QUOTED_LINES:])


def _lines(output: str) -> list[str]:
    return [_RANK.sub("", line[:MAX_LINE_CHARACTERS]) for line in output.splitlines() if line.strip()]


def _exceptions(lines: list[str]) -> Iterator[PrintedError]:
    place, ignored, indented = "", False, False
    for line in lines:
        frame = _FRAME.match(line)
        if frame is not None:
            place = f"{frame[1]}:{frame[2]}"
        elif line.startswith(_IGNORED):
            ignored = True
        elif indented and not line.startswith(" ") and (found := _EXCEPTION.match(line)) is not None:
            if not ignored and place:
                yield PrintedError(
                    found[1], _shown(line), printable(f"{place[-400:]} {found[1]}", MAX_PLACE_CHARACTERS)
                )
            place, ignored = "", False
        indented = line.startswith(" ")


def _shown(line: str) -> str:
    return printable(line.strip(), MAX_QUOTED_CHARACTERS)
