"""An owner keeps its limit while the agent has no descriptor left to check it."""

import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from support.agents.agent_fixture import AgentFixture, until
from support.agents.processes import holding_process, raw_answer
from support.free_ports import free_port

pytestmark = pytest.mark.processes

SPARE_DESCRIPTORS = 4


def descriptors_of(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208 - a number is all that is asked


@contextmanager
def no_descriptor_left(pid: int, address: tuple[str, int]) -> Iterator[None]:
    """Connections of a hostile neighbour take all descriptors that a process may have."""
    limit = descriptors_of(pid) + SPARE_DESCRIPTORS
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]))
    connections = [socket.create_connection(address) for _ in range(SPARE_DESCRIPTORS + 2)]
    try:
        yield
    finally:
        for connection in connections:
            connection.close()


def test_a_living_owner_keeps_its_limit_while_the_agent_has_no_descriptor_left(agent_fixture: AgentFixture) -> None:
    port = free_port()
    with agent_fixture.running(metrics_bind=f"127.0.0.1:{port}") as agent:
        owner = holding_process(agent_fixture.socket, 200, agent_fixture.uuids[:2])
        other = holding_process(agent_fixture.socket, 300, agent_fixture.uuids[2:])
        with no_descriptor_left(agent.pid, ("127.0.0.1", port)):
            other.kill()
            other.communicate()
            until(lambda: agent_fixture.limits[2] == 400, "the dead owner's lease is released")
            assert agent_fixture.limits == [200, 200, 400], "the looks go on, and the living owner keeps its limit"
        until(lambda: "result" in raw_answer(agent_fixture.socket, b'{"verb": "gpus"}\n'), "it serves again")
        owner.kill()
        owner.communicate()
        until(lambda: agent_fixture.limits == [400, 400, 400], "the other owner's lease is released")


RENAMED = """
import ctypes, sys
from wattloop.gpus.agent import AgentConnection
connection = AgentConnection(sys.argv[1])
connection.hold_limit(sys.argv[2:], 200)
PR_SET_NAME = 15
assert ctypes.CDLL(None).prctl(PR_SET_NAME, b"\\xff\\xfe", 0, 0, 0) == 0
print("held", flush=True)
sys.stdin.read()
"""


def test_an_owner_with_an_undecodable_name_delays_no_other_owners_release(agent_fixture: AgentFixture) -> None:
    script = [sys.executable, "-c", RENAMED, str(agent_fixture.socket), agent_fixture.uuids[0]]
    with agent_fixture.running():
        hostile = subprocess.Popen(script, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert hostile.stdout.readline() == b"held\n"
        owner = holding_process(agent_fixture.socket, 300, agent_fixture.uuids[1:])
        assert agent_fixture.limits == [200, 300, 300]
        owner.kill()
        owner.communicate()
        until(lambda: agent_fixture.limits == [200, 400, 400], "the other owner's lease is released")
        hostile.kill()
        hostile.communicate()
        until(lambda: agent_fixture.limits == [400, 400, 400], "its own lease is released")
