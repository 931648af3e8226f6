"""The local mode's backend, with real processes, behaves as every backend must."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.backends.backend_contract import BackendContract, BackendHarness
from support.backends.model_backend import KEY, job, report
from wattloop_operator.local.backend import LocalBackend
from wattloop_operator.local.recurrence_store import LocalProgressStore
from wattloop_operator.local.report_server import LocalTokens
from wattloop_operator.local.watchdog import Watchdog
from wattloop_operator.reporting.service import ReportService
from wattloop_operator.store import open_store
from wattloop_operator.workloads.injection import RunAddresses

SLEEPER = {"name": "train", "image": "none", "command": ["sleep", "60"]}


def processes_of(name: str) -> int:
    """Number of child processes that run this recurrence."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    variable = f"WATTLOOP_RECURRENCE={name}".encode()
    return sum(variable in Path(f"/proc/{child}/environ").read_bytes().split(b"\0") for child in children)


class TestLocalBackend(BackendContract):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> Iterator[BackendHarness]:
        with open_store(tmp_path / "wattloop.db") as store, Watchdog() as watchdog:
            tokens = LocalTokens(tmp_path)
            backend = LocalBackend(
                store,
                source=tmp_path / "job.yaml",
                logs=tmp_path,
                addresses=RunAddresses(),
                tokens=tokens,
                gpu_environment={},
                devices=1,
                watchdog=watchdog,
                wake=threading.Event().set,
            )
            backend.ensure_job(job(template={"job": {"template": {"spec": {"containers": [SLEEPER]}}}}))
            service = ReportService(LocalProgressStore(store.objects, lambda: None), tokens)

            def write_progress(name: str) -> None:
                service.receive(KEY.namespace, name, report(metric=0.5))

            try:
                yield BackendHarness(backend, KEY, write_progress, processes_of)
            finally:
                backend.end_all()
