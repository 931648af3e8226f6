"""Random requests of 50 callers in an hour of simulated time, compared with a model."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.python_path import PYTHON_PATH
from support.test_sets.parameters import exhaustive_after

pytestmark = pytest.mark.processes

TESTS = Path(__file__).parents[2]
PROGRAM = TESTS / "support" / "agent_stress" / "random_hour.py"
FEW_REQUESTS, REQUESTS = 1_000, 10_000
SEED = 20261120
# Of memory the last quiet point may have so much more than the second: what the allocators keep, not what is lost.
BLOCKS_SHARE = 0.02
RESIDENT_KIBIBYTES = 2048
POOL_THREADS = min(32, (os.cpu_count() or 1) + 4)


@pytest.fixture
def quick_folder() -> Iterator[Path]:
    """A folder in memory where there is one: thousands of leases are written down."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="wattloop-", dir=memory if memory.is_dir() else "/tmp") as name:
        yield Path(name)


@pytest.mark.parametrize("requests", exhaustive_after([FEW_REQUESTS, REQUESTS]))
@pytest.mark.parametrize("identity", ["process", "pod"])
def test_only_owners_ever_change_a_gpu_and_nothing_leaks_in_an_hour(
    identity: str, requests: int, quick_folder: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(PROGRAM), str(quick_folder), identity, str(requests), str(SEED)],
        env={**os.environ, "PYTHONPATH": PYTHON_PATH},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    outcome: dict[str, Any] = json.loads(done.stdout)
    assert outcome["counts"]["requests"] >= requests
    # Random pauses: fewer of them add up to an hour less exactly.
    assert outcome["simulated_seconds"] >= (3600 if requests == REQUESTS else 1800)
    happened = {"deaths", "connections", "subscriptions", "power controllers", "actors", "faults", "expiries"}
    assert {name for name, count in outcome["counts"].items() if count > requests / 1_000} >= happened
    refused = {"BadRequest", "NotYours", "OutOfRange"}
    if requests == REQUESTS:
        refused |= {"NotSupported", "NotPermitted", "GpuLost", "DeviceFailed"}
    assert set(outcome["refusals"]) >= refused | {"Shared" if identity == "pod" else "UnknownGpu"}
    first, warm, *_, last = outcome["quiet"]
    assert {point["files"] for point in outcome["quiet"]} == {first["files"]}
    # asyncio's default pool starts a thread when two calls overlap, and keeps it.
    assert max(point["threads"] for point in outcome["quiet"]) <= first["threads"] + POOL_THREADS
    assert last["blocks"] <= warm["blocks"] * (1 + BLOCKS_SHARE)
    assert last["resident_kibibytes"] <= warm["resident_kibibytes"] + RESIDENT_KIBIBYTES
