"""Replaces itself by a program that the kernel kills when its parent ends, for any reason.

    python die_with_parent.py PARENT_PID PROGRAM ARGUMENT…

A separate program, because code between fork and exec (`preexec_fn`) can deadlock if there are
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
