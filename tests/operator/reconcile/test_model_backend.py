"""The model of the tests behaves as every backend must."""

import pytest

from support.backends.backend_contract import BackendContract, BackendHarness
from support.backends.model_backend import KEY, ModelBackend, job


class TestModelBackend(BackendContract):
    @pytest.fixture
    def harness(self) -> BackendHarness:
        backend = ModelBackend(job())
        return BackendHarness(
            backend,
            KEY,
            write_progress=lambda name, epoch: backend.report(name, epoch=epoch, sequence=epoch, metric=0.5),
            starts=lambda name: backend.started[name],
        )
