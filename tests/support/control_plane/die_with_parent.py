"""Becomes the given program, which the kernel then kills as soon as its parent is gone, however the parent ended.

    python die_with_parent.py PARENT_PID PROGRAM ARGUMENT…

A program of its own because the alternative, code between fork and exec (`preexec_fn`), can deadlock where there are
threads. Standard library only.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Asks for the parent-death signal and replaces this process by the program."""
    parent, program, *arguments = sys.argv[1:]
    if ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        sys.exit("prctl(PR_SET_PDEATHSIG) was refused")
    if os.getppid() != int(parent):
        sys.exit("the parent was gone before the signal was asked for")
    os.execv(program, [program, *arguments])


if __name__ == "__main__":
    main()
