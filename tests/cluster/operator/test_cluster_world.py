"""A cluster does what every world of the engine does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from world_contract import WorldBench, WorldContract

from harness.in_process_operator import InProcessOperator, TestClock
from wattloop_operator.api.progress import Progress
from wattloop_operator.cluster.api import ClusterApi
from wattloop_operator.cluster.book import ClusterBook
from wattloop_operator.cluster.transport import HttpTransport, Request
from wattloop_operator.loop.world import JobKey
from wattloop_operator.store import Store
from wattloop_operator.telemetry.serving import HttpService


class TestClusterWorld(WorldContract):
    """The contract on a real API server."""

    @pytest.fixture
    def bench(
        self,
        transport: HttpTransport,
        store: Store,
        reporting: HttpService,
        clock: TestClock,
        make_job: Callable[..., JobKey],
    ) -> WorldBench:
        started: Counter[str] = Counter()

        def counting(request: Request) -> dict[str, Any]:
            answer = transport(request)
            if request.method == "POST" and request.path.endswith("/jobs") and "dryRun" not in request.query:
                started[answer["metadata"]["name"]] += 1
            return answer

        operator = InProcessOperator(counting, store, reporting.url, clock)
        key = make_job()
        operator.see(key)
        book = ClusterBook(ClusterApi(transport))

        def progress_arrives(name: str) -> None:
            recurrence = book.read(key.namespace, name)
            assert recurrence is not None
            book.write(recurrence, Progress(sequence=1, epoch=Decimal(1), metric=Decimal("0.5"), evaluations=1))
            operator.see(key)

        return WorldBench(operator.world, key, progress_arrives, lambda name: started[name])
