"""This machine as a world: the store's objects and real processes hold what the model holds."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from model_world import KEY, job, report
from world_contract import WorldBench, WorldContract

from wattloop_operator.local.book import LocalBook
from wattloop_operator.local.guardian import Guardian
from wattloop_operator.local.tokens import Tokens
from wattloop_operator.local.world import LocalWorld
from wattloop_operator.reporting.service import ReportService
from wattloop_operator.store import open_store
from wattloop_operator.workloads.run_environment import Surroundings

SLEEPER = {"name": "train", "image": "none", "command": ["sleep", "60"]}


def processes_of(name: str) -> int:
    """Processes of this test's that were told to run this recurrence."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    said = f"WATTLOOP_RECURRENCE={name}".encode()
    return sum(said in Path(f"/proc/{child}/environ").read_bytes().split(b"\0") for child in children)


class TestLocalWorld(WorldContract):
    @pytest.fixture
    def bench(self, tmp_path: Path) -> Iterator[WorldBench]:
        with open_store(tmp_path / "wattloop.db") as store, Guardian() as guardian:
            tokens = Tokens(tmp_path)
            world = LocalWorld(
                store,
                source=tmp_path / "job.yaml",
                logs=tmp_path,
                surroundings=Surroundings(),
                tokens=tokens,
                gpu_environment={},
                devices=1,
                guardian=guardian,
                wake=threading.Event().set,
            )
            world.ensure_job(job(template={"job": {"template": {"spec": {"containers": [SLEEPER]}}}}))
            service = ReportService(LocalBook(store.objects, lambda: None), tokens)

            def progress_arrives(name: str) -> None:
                service.take(KEY.namespace, name, report(metric=0.5))

            try:
                yield WorldBench(world, KEY, progress_arrives, processes_of)
            finally:
                world.end_all()
