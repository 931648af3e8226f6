"""A function called in a process forked from this one, which has imported what the function needs."""

import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

FAILED = 70


def forked(call: Callable[[], int], stdout: Path, stderr: Path) -> int:
    """Call a function in a forked process, without an input; returns the id of the process.

    Args:
        call: Its result is the exit code; after an exception the exit code is 70.
        stdout: The new file of the standard output.
        stderr: The file of the standard error, likewise; both may be the same.
    """
    pid = os.fork()
    if pid:
        return pid
    code = FAILED
    try:
        for stream, path in ((0, Path(os.devnull)), (1, stdout), (2, stderr)):
            os.dup2(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600), stream)
        sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
        code = call()
        sys.stdout.flush()
    except BaseException:  # noqa: BLE001 - nothing of pytest may run in this process
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def exit_codes(pids: Sequence[int]) -> list[int]:
    """Wait until all of these have ended; returns their exit codes. None outlives a test that is ended."""
    codes: list[int] = []
    try:
        codes.extend(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids)
    finally:
        for pid in pids[len(codes) :]:
            os.kill(pid, signal.SIGKILL)
    return codes
