"""The cluster back end satisfies the contract of every back end."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from support.backends.backend_contract import BackendContract, BackendHarness
from support.backends.sample_reports import report
from support.control_plane.fixtures import MakeJob
from support.control_plane.in_process_operator import InProcessOperator, TestClock
from wattloop_operator.cluster.api import ClusterApi
from wattloop_operator.cluster.api_transport import HttpTransport, Request
from wattloop_operator.cluster.reported_objects import ReportedObjects
from wattloop_operator.http.http_service import HttpService
from wattloop_operator.local.report_server import LocalTokens
from wattloop_operator.reporting.progress_writer import StoredProgress
from wattloop_operator.reporting.service import ReportService
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
        tmp_path: Path,
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
        find = ReportedObjects(ClusterApi(transport)).recurrence
        service = ReportService(StoredProgress(find, store.attempt_progress, clock), LocalTokens(tmp_path))

        def write_progress(name: str, epoch: int) -> None:
            service.receive(key.namespace, name, report(epoch=epoch, sequence=epoch, metric=0.5))

        return BackendHarness(operator.backend, key, write_progress, lambda name: started[name])
