"""Whether an attempt failed by a mistake of its user, which no batch size is to blame for.

A missing program, package or file, a mistake in the script's text and an unknown flag end a training at every batch
size. A lack of memory is the fault of its batch size, whatever else the output shows.
"""

import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from wattloop.printable import printable
from wattloop.run.training_progress import PEER_ERRORS
from wattloop_operator.domain.progress import Progress
from wattloop_operator.domain.snapshot import Failure, WorkloadState

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


# An import from a network file system takes minutes. What fails later has trained, even if it reported nothing.
START_SECONDS = 600
IMPORT_ERRORS = frozenset({"ImportError", "ModuleNotFoundError"})
FILE_ERRORS = frozenset({"FileNotFoundError", "NotADirectoryError", "IsADirectoryError", "PermissionError"})
SCRIPT_ERRORS = frozenset({"SyntaxError", "IndentationError", "TabError", "NameError"})
START_ERRORS = IMPORT_ERRORS | FILE_ERRORS | SCRIPT_ERRORS
LATE_ERRORS = IMPORT_ERRORS | SCRIPT_ERRORS
# After an epoch, these are mistakes of the script or of its data. Others may come of a divergence (ValueError for a
# NaN), of another machine (RuntimeError), or of batches that are larger than a set of data (ZeroDivisionError).
LATE_PLACE_ERRORS = frozenset({"KeyError", "TypeError", "AttributeError"})
MODULE_WITHOUT_ATTRIBUTE = "AttributeError: module '"
# Of a shell and of Python's argparse: wrong arguments, a program without permission, a program that does not exist.
START_EXIT_CODES = {2: "wrong arguments", 126: "not executable", 127: "command not found"}
# Above, the exit code stands for a signal.
MAX_EXIT_CODE = 127
# Signals that a program's own error raises, by number. SIGKILL and SIGBUS may be a lack of memory, which a smaller
# batch size may have too; others come from outside.
CRASH_SIGNALS = {
    each.value: each.name
    for each in (signal.SIGSEGV, signal.SIGABRT, signal.SIGILL, signal.SIGFPE, signal.SIGTRAP, signal.SIGSYS)
}

COMMAND_REMEDY = "check the command in spec.template: its program, its arguments, and what is installed"
CLIENT_REMEDY = "install the client wattloop in the Python that runs the script, or run it with a Python that has it"
INIT_REMEDY = "fix this init container of spec.template; it runs before the training"
IMPORT_REMEDY = "install the package in the Python that runs the script"
FILE_REMEDY = (
    "check the path: a relative one begins at the manifest's folder on this machine, and at workingDir in a container"
)
SCRIPT_REMEDY = "fix the script"
SIGNAL_REMEDY = (
    "a compiled library crashed: check that it fits the GPU, the driver and the other packages; "
    "PYTHONFAULTHANDLER=1 in the environment prints where"
)
BLAMES_NONE = "no batch size is blamed"


def start_failure(progress: Progress, workload: WorkloadState, started: datetime | None, ended: datetime) -> str:
    """The mistake that ended an attempt at its start, and its remedy; empty if there is none.

    `started`: when its first process started; None if that is not known.
    """
    if workload.failure is Failure.NOT_STARTED:
        return COMMAND_REMEDY
    if workload.failure is Failure.INIT_FAILED:
        return INIT_REMEDY
    if not _crashed_at_start(progress, workload, started, ended):
        return ""
    error, code = printed_error(workload.output), workload.exit_code
    if not _is_exit_code(code):
        return _reported_mistake(error, progress, START_ERRORS)
    printed = _printed_mistake(error, START_ERRORS)
    if not printed and code in START_EXIT_CODES:
        printed = f"{START_EXIT_CODES[code] if error is None else error.text}; {COMMAND_REMEDY}"
    return printed or _reported_mistake(error, progress, START_ERRORS)


def script_error(progress: Progress, workload: WorkloadState) -> str:
    """The error that ended an attempt after its start and that no batch size causes, with its remedy; empty for none.

    A missing file is none: a process that loads data misses one if another was killed for its memory.
    """
    if not _crashed(workload) or not _is_exit_code(workload.exit_code):
        return ""
    error = printed_error(workload.output)
    return _printed_mistake(error, LATE_ERRORS) or _reported_mistake(error, progress, LATE_ERRORS)


def failure_place(progress: Progress, workload: WorkloadState, started: datetime | None, ended: datetime) -> str:
    """Where an attempt failed; empty if it failed by a lack of memory, or if that is not known.

    Of a program that crashed by a signal, it is the name of the signal. After an epoch, only a mistake of the script
    has a place.

    `started`: when its first process started; None if that is not known.
    """
    error, code = printed_error(workload.output), workload.exit_code
    if has_trained(progress):
        is_mistake = _crashed(workload) and _is_exit_code(code)
        return error.place if is_mistake and error is not None and error.name in LATE_PLACE_ERRORS else ""
    if not _crashed_at_start(progress, workload, started, ended):
        return ""
    if code is None or 0 <= code <= MAX_EXIT_CODE:
        return error.place if error is not None and code else ""
    # The kernel's number is negative; a shell and Kubernetes add 128.
    return CRASH_SIGNALS.get(-code if code < 0 else code - 128, "")


def repeated_failure(place: str) -> str:
    """The mistake that two failures at the same place show, and its remedy.

    Example:
        >>> repeated_failure("/app/train.py:3 KeyError")
        'KeyError at the same place as before; fix the script'
    """
    if place in CRASH_SIGNALS.values():
        return f"{place} before the first epoch, as before; {SIGNAL_REMEDY}"
    return f"{place.rpartition(' ')[2]} at the same place as before; {SCRIPT_REMEDY}"


def has_trained(progress: Progress) -> bool:
    """Whether an attempt reported an epoch or a metric."""
    return bool(progress.epoch) or progress.metric is not None


def _crashed_at_start(progress: Progress, workload: WorkloadState, started: datetime | None, ended: datetime) -> bool:
    if has_trained(progress) or (started is not None and ended - started > timedelta(seconds=START_SECONDS)):
        return False
    return _crashed(workload)


def _crashed(workload: WorkloadState) -> bool:
    """Whether a training crashed, and neither is a lack of memory named, nor was a rank killed, as the kernel does."""
    return workload.failure is Failure.CRASHED and not _may_lack_memory(workload)


def _may_lack_memory(workload: WorkloadState) -> bool:
    lacks_memory = is_out_of_memory(workload.message) or is_out_of_memory(workload.output)
    return bool(workload.killed_ranks) or lacks_memory


def _is_exit_code(code: int | None) -> bool:
    return code is not None and 0 < code <= MAX_EXIT_CODE


def _printed_mistake(error: PrintedError | None, errors: frozenset[str]) -> str:
    if error is None or not (error.name in errors or error.text.startswith(MODULE_WITHOUT_ATTRIBUTE)):
        return ""
    return f"{error.text}; {_remedy(error.name, error.text)}"


def _reported_mistake(error: PrintedError | None, progress: Progress, errors: frozenset[str]) -> str:
    first = progress.first_failure
    if (error is not None and error.name) or first is None or first.consequence or first.failure not in errors:
        return ""
    return f"{first.failure}; {_remedy(first.failure, '')}"


def _remedy(name: str, text: str) -> str:
    if "'wattloop'" in text:
        return CLIENT_REMEDY
    if name in IMPORT_ERRORS:
        return IMPORT_REMEDY
    return FILE_REMEDY if name in FILE_ERRORS else SCRIPT_REMEDY
