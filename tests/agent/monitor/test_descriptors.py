"""The descriptor limit is raised, and the number of connections follows from it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from wattloop_agent.monitor.descriptors import (
    DESCRIPTORS_PER_CONNECTION,
    MAX_CONNECTIONS,
    RESERVED_DESCRIPTORS,
    WANTED_DESCRIPTORS,
    connections_allowed,
)

SCRIPT = """
import json, resource, sys
from wattloop_agent.monitor.descriptors import allowed_connections
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2])))
print(json.dumps([allowed_connections(), *resource.getrlimit(resource.RLIMIT_NOFILE)]))
"""


def limited(soft: int, hard: int) -> tuple[list[int], str]:
    """The connections allowed, the soft and the hard limit afterwards; what was logged."""
    command = [sys.executable, "-c", SCRIPT, str(soft), str(hard)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout), done.stderr


def test_the_default_soft_limit_is_raised_to_what_all_connections_need() -> None:
    assert limited(1024, 4096) == ([MAX_CONNECTIONS, WANTED_DESCRIPTORS, 4096], "")


def test_a_sufficient_limit_is_unchanged() -> None:
    assert limited(4096, 4096) == ([MAX_CONNECTIONS, 4096, 4096], "")


def test_a_low_hard_limit_means_fewer_connections_and_is_logged() -> None:
    (connections, soft, hard), logged = limited(256, 512)
    assert (connections, soft, hard) == (128, 512, 512)
    assert "RLIMIT_NOFILE" in logged


@pytest.mark.parametrize("limit", [0, 256, 300, 1024, 1280, 1_000_000])
def test_descriptors_are_reserved_for_the_agents_own_files(limit: int) -> None:
    connections = connections_allowed(limit)
    assert 16 <= connections <= MAX_CONNECTIONS
    if connections > 16:
        assert DESCRIPTORS_PER_CONNECTION * connections + RESERVED_DESCRIPTORS <= limit
