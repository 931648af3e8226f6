"""Runs a node's processes: starts them, restarts those that end, and cleans up in any case.

    python -m support.kubernetes_node.supervisor [--gpus N] [--end-with-stdin] [--wait SECONDS]

It prints the node's folder when the node is ready, and ends on SIGTERM or at the end of its standard input.
"""

import argparse
import os
import select
import signal
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType

from support.binaries.build import NODE, ensure
from support.kubernetes_node.clean_up import clean_up, pods_run_here
from support.kubernetes_node.network import kernel_settings
from support.kubernetes_node.node import Node
from support.kubernetes_node.record import NodeAlreadyRunsError, Record, locked_machine
from support.kubernetes_node.requirements import missing_requirement

_LOOKS_EVERY_SECONDS = 0.5
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main() -> int:
    """The command line; 0 when the node has ended as asked and left nothing, 1 when it could not be started."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpus", type=int, default=4)
    parser.add_argument("--end-with-stdin", action="store_true")
    parser.add_argument("--wait", type=float, default=0.0, help="for another node of this machine to end")
    arguments = parser.parse_args()
    missing = missing_requirement()
    if missing:
        sys.stderr.write(f"{missing}\n")
        return 1
    programs = ensure(NODE)
    try:
        with locked_machine(wait_seconds=arguments.wait):
            _remove_left_overs()
            _run(programs, gpus=arguments.gpus, end_with_stdin=arguments.end_with_stdin)
    except NodeAlreadyRunsError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _remove_left_overs() -> None:
    left = Record.read()
    if left is not None:
        clean_up(left)
    elif pods_run_here():
        raise NodeAlreadyRunsError(
            "this machine is a node of a Kubernetes cluster already; the tests need one that is not"
        )


def _run(programs: dict[str, Path], *, gpus: int, end_with_stdin: bool) -> None:
    for each in _SIGNALS:
        signal.signal(each, _end)
    folder = Path(tempfile.mkdtemp(prefix="wattloop-node-"))
    record = Record(folder, os.getpid(), kernel_settings())
    record.write()
    node = Node(programs, folder, gpus=gpus)
    try:
        node.start()
        print(folder, flush=True)
        while not (_waited_for_end_of_stdin() if end_with_stdin else _waited()):
            node.look_after()
    except _EndRequested:
        pass
    finally:
        # Cleaning up is not to be broken off.
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        clean_up(record)


class _EndRequested(BaseException):
    """A signal arrived at an arbitrary moment."""


def _end(_number: int, _frame: FrameType | None) -> None:
    raise _EndRequested


def _waited() -> bool:
    time.sleep(_LOOKS_EVERY_SECONDS)
    return False


def _waited_for_end_of_stdin() -> bool:
    readable, _, _ = select.select([sys.stdin], [], [], _LOOKS_EVERY_SECONDS)
    return bool(readable) and not os.read(sys.stdin.fileno(), 1)


if __name__ == "__main__":
    sys.exit(main())
