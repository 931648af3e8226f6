"""Starts, kills and waits for processes that call the agent."""

import json
import os
import select
import socket as sockets
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from support.agents.agent_fixture import DEADLINE_SECONDS

HOLD_PROGRAM = """
import sys
from wattloop.gpus.agent import AgentConnection
connection = AgentConnection(sys.argv[1])
connection.hold_limit(sys.argv[3:], float(sys.argv[2]))
print("held", flush=True)
sys.stdin.read()
"""


def holding_process(socket: Path, watts: float, uuids: Sequence[str]) -> subprocess.Popen[str]:
    """Start a process that holds these GPUs until it is killed or its standard input closes."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD_PROGRAM, str(socket), str(watts), *uuids],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "held\n"
    return process


def raw_answer(path: Path, line: bytes) -> dict[str, dict[str, str]]:
    """The agent's answer to a raw line."""
    with sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM) as connection:
        connection.settimeout(DEADLINE_SECONDS)
        connection.connect(str(path))
        connection.sendall(line)
        answer: dict[str, dict[str, str]] = json.loads(connection.makefile("rb").readline())
        return answer


def children_of(pid: int) -> list[int]:
    """The child processes of a process."""
    return sorted(int(path.name) for path in Path("/proc").glob("[0-9]*") if _parent_of(path) == pid)


def _parent_of(process: Path) -> int | None:
    """The parent of a process in /proc; None if the process has ended since.

    The lists of children in /proc belong to threads: they move when the thread that forked ends.
    """
    try:
        status = (process / "stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # Of "pid (name) state parent …"; a name can contain anything, also bytes that are no text.
    return int(status.rpartition(b")")[2].split()[1])


def program_of(pid: int) -> str:
    """The command line of a process; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def wait_for_end(pid: int, seconds: float = DEADLINE_SECONDS) -> None:
    """Wait for the end of a process that is not a child of this one."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    ended = poll.poll(seconds * 1000)
    os.close(pidfd)
    assert ended, f"process {pid} still there after {seconds:g} s: {program_of(pid)}"
