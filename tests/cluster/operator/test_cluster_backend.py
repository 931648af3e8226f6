"""The cluster back end satisfies the contract of every back end."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import Any

import pytest

from support.backends.backend_contract import BackendContract, BackendHarness
from support.control_plane.fixtures import MakeJob
from support.control_plane.in_process_operator import InProcessOperator, TestClock
from wattloop_operator.api.attempt_state import Progress
from wattloop_operator.cluster.api import ClusterApi
from wattloop_operator.cluster.api_transport import HttpTransport, Request
from wattloop_operator.cluster.progress_store import ClusterProgressStore
from wattloop_operator.http.http_service import HttpService
from wattloop_operator.store import Store


class TestClusterBackend(BackendContract):
    """The contract on a real API server."""

    @pytest.fixture
    def harness(
        self,
        transport: HttpTransport,
        store: Store,
        reporting: HttpService,
        clock: TestClock,
        make_job: MakeJob,
    ) -> BackendHarness:
        started: Counter[str] = Counter()

        def counting(request: Request) -> dict[str, Any]:
            answer = transport(request)
            if request.method == "POST" and request.path.endswith("/jobs") and "dryRun" not in request.query:
                started[answer["metadata"]["name"]] += 1
            return answer

        operator = InProcessOperator(counting, store, reporting.url, clock)
        key = make_job()
        operator.sync_cache(key)
        progress_store = ClusterProgressStore(ClusterApi(transport))

        def write_progress(name: str) -> None:
            recurrence = progress_store.read(key.namespace, name)
            assert recurrence is not None
            progress_store.write(recurrence, Progress(epoch=Decimal(1), metric=Decimal("0.5")))
            operator.sync_cache(key)

        return BackendHarness(operator.backend, key, write_progress, lambda name: started[name])
