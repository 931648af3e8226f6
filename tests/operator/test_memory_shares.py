"""The bounds of all parts of the operator fit the memory of its container together."""

import contextlib
import json
import os
import resource
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.control_plane.certificates import CertificateAuthority
from support.control_plane.memory_cgroup import MemoryCgroup, memory_cgroup, missing_requirement, operator_limit_bytes
from support.python_path import PYTHON_PATH
from support.test_sets.parameters import exhaustive_after
from wattloop_operator import memory_shares as shares
from wattloop_operator.domain.snapshot import MAX_CELLS
from wattloop_operator.http.http_service import MAX_CONCURRENCY
from wattloop_operator.reconcile.pipeline.held_bytes import (
    BYTES_OF_CLOCK,
    BYTES_OF_INSTRUCTION,
    BYTES_OF_KNOB,
    BYTES_OF_MEASUREMENT,
)
from wattloop_operator.reconcile.pipeline.pipeline_state import (
    MAX_PIPELINE_INSTRUCTIONS,
    MAX_PLANNED_CLOCKS,
    MAX_PROFILE_MEASUREMENTS,
)
from wattloop_operator.reporting.plan_worker import planner_memory_bytes

FILLED = [sys.executable, "-m", "support.pipelines.filled_operator"]
# A measurement while it is read takes its row beside its object.
READ_MEASUREMENT = 1.4 * BYTES_OF_MEASUREMENT
PLANS = (BYTES_OF_CLOCK + BYTES_OF_KNOB) * MAX_PLANNED_CLOCKS
INSTRUCTIONS = BYTES_OF_INSTRUCTION * MAX_PIPELINE_INSTRUCTIONS


def test_the_shares_of_all_parts_fit_the_limit_of_the_chart(tmp_path: Path) -> None:
    limit, file = operator_limit_bytes(), tmp_path / "memory.max"
    file.write_text(f"{limit}\n")
    not_shares = {"MEBIBYTE", "BYTES_OF_CONNECTION", "OPERATOR", "LIMIT_FILES"}
    parts = {name: value for name, value in vars(shares).items() if name.isupper() and name not in not_shares}
    assert sum(parts.values()) == shares.OPERATOR
    assert shares.OPERATOR + planner_memory_bytes([file]) <= limit


def test_no_part_is_larger_than_its_share() -> None:
    assert 2 * MAX_CONCURRENCY * shares.BYTES_OF_CONNECTION <= shares.CONNECTIONS
    largest_pipeline = READ_MEASUREMENT * MAX_PROFILE_MEASUREMENTS + PLANS + INSTRUCTIONS
    assert largest_pipeline <= min(shares.READ_PIPELINE, shares.PLANNED_PIPELINE)
    # An operator without a job takes 130 MB, and a model has about six matrices of numbers of 8 bytes.
    assert 130_000_000 + 6 * 8 * MAX_CELLS <= shares.BASE


@pytest.fixture
def container() -> Iterator[MemoryCgroup]:
    missing = missing_requirement()
    if missing is not None:
        pytest.skip(missing)
    with memory_cgroup(operator_limit_bytes()) as made:
        yield made


# The short form has few connections, and its planner begins alone.
@pytest.mark.parametrize("form", exhaustive_after(["short", "long"]))
@pytest.mark.processes
@pytest.mark.long
@pytest.mark.timeout(600)
def test_an_operator_whose_parts_are_all_full_stays_within_the_memory_of_the_chart(
    container: MemoryCgroup, tmp_path: Path, form: str
) -> None:
    authority = CertificateAuthority()
    pair = authority.server(["127.0.0.1"], ["reports.example"])
    pair.write(tmp_path)
    tls = ssl.create_default_context(cadata=authority.certificate.decode())
    environment = {**os.environ, "PYTHONPATH": PYTHON_PATH}
    subprocess.run([*FILLED, "prepare", str(tmp_path), form], check=True, env=environment)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    command = container.command([*FILLED, "fill", str(tmp_path), form])
    with contextlib.ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        operator = stack.enter_context(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        )
        stack.callback(operator.kill)
        assert operator.stdin is not None
        port, count = map(int, operator.stdout.readline().split())
        for _ in range(count):
            plain = socket.create_connection(("127.0.0.1", port))
            connection = stack.enter_context(tls.wrap_socket(plain, server_hostname="127.0.0.1"))
            connection.sendall(b"POST / HTTP/1.1\r\nHost: wattloop\r\nContent-Le")
        print("filling", file=operator.stdin, flush=True)
        held = json.loads(operator.stdout.readline())
        print(f"{count} connections and {held} took {container.peak_bytes} bytes")
        assert container.kills == 0
        # The rest is for the objects of a cluster.
        assert container.peak_bytes < container.limit_bytes * 2 / 3
        assert held["remembered"] > 0.8 * shares.REMEMBERED_PIPELINES
        assert held["waiting"] > 0.9 * shares.WAITING_MESSAGES
        assert held["planned"] > 0.9 * BYTES_OF_MEASUREMENT * MAX_PROFILE_MEASUREMENTS
        print("end", file=operator.stdin, flush=True)
        assert operator.wait(60) == 0
