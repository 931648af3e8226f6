"""The model world of the engine's tests holds what the real worlds hold."""

from __future__ import annotations

import pytest

from support.backends.backend_contract import BackendBench, BackendContract
from support.backends.model_backend import KEY, ModelBackend, job


class TestModelWorld(BackendContract):
    @pytest.fixture
    def bench(self) -> BackendBench:
        backend = ModelBackend(job())
        return BackendBench(
            backend,
            KEY,
            progress_arrives=lambda name: backend.report(name, metric=0.5),
            starts=lambda name: backend.started[name],
        )
