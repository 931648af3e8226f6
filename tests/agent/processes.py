"""Processes that call the agent, that are killed, that are waited for."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

HOLDER = """
import sys
from wattloop.agent import AgentConnection
connection = AgentConnection(sys.argv[1])
connection.hold_limit(sys.argv[3:], float(sys.argv[2]))
print("held", flush=True)
sys.stdin.read()
"""


def holding_process(socket: Path, watts: float, uuids: Sequence[str]) -> subprocess.Popen[str]:
    """Another process that holds these GPUs until it is killed, or its standard input closes."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(socket), str(watts), *uuids],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def children_of(pid: int) -> list[int]:
    """The processes that this one started."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def wait_for_end(pid: int, seconds: float = 10.0) -> None:
    """Wait until a process that is not a child of ours is gone."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    ended = poll.poll(seconds * 1000)
    os.close(pidfd)
    assert ended, f"process {pid} still there after {seconds:g} s"
