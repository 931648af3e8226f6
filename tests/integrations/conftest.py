"""What the tests of the training frameworks share. They are collected only where PyTorch is installed."""

import gc
import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.local_runs.local_runs import LocalJob
from support.reporting.report_server import ReportServer, running_report_server

# The other parts of the suite run in an environment without it. make test-integrations fails if this leaves no test.
if importlib.util.find_spec("torch") is None:
    collect_ignore_glob = ["test_*.py"]
else:
    # Before PyTorch is imported: the models are so small that threads only wait for each other.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    # Keras reads it when it is imported, and looks for TensorFlow without it.
    os.environ.setdefault("KERAS_BACKEND", "torch")
# Imports alone take half a minute where every core is busy.
TIMEOUT_SECONDS = 600.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.timeout(TIMEOUT_SECONDS))


def pytest_collection_finish() -> None:
    # Some frameworks collect garbage in each training, which would search half a million objects of imported modules.
    gc.collect()
    gc.freeze()


@pytest.fixture
def local_job(tmp_path: Path) -> LocalJob:
    job = LocalJob(tmp_path / "run")
    job.folder.mkdir()
    return job


@pytest.fixture
def report_server() -> Iterator[ReportServer]:
    """An HTTP server that records reports and answers them as the test configures it."""
    with running_report_server() as server:
        yield server
