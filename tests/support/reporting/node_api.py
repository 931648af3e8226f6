"""The reporting API for agents over HTTP, on a real store and a fake API server."""

import contextlib
import http
import http.client
import json
import time
import urllib.parse
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from support.reporting.json_web_token import json_web_token
from wattloop.commands.settings import Address
from wattloop.errors import OperationError
from wattloop.wire.node_energy import GpuBounds, NodeGpu, NodeReport, PodGpuUsage
from wattloop_operator.cluster.api import ClusterApi
from wattloop_operator.cluster.api_transport import Request, StatusError
from wattloop_operator.cluster.auth.authorizers import ClusterNodeAuthorizer
from wattloop_operator.cluster.auth.token_review import TokenReviews
from wattloop_operator.cluster.reported_objects import ClusterNodePods
from wattloop_operator.domain.names import JobKey
from wattloop_operator.http.certificates import ServingCertificate
from wattloop_operator.http.http_service import HttpService
from wattloop_operator.reporting.app import create_app
from wattloop_operator.reporting.interfaces import BearerToken, OrderLimit
from wattloop_operator.reporting.nodes import NodeService
from wattloop_operator.reporting.pipeline_commits import PipelineCommits
from wattloop_operator.reporting.pipeline_service import PipelineService
from wattloop_operator.reporting.report_limits import ReportLimits
from wattloop_operator.reporting.service import ReportService
from wattloop_operator.store import Store, open_store
from wattloop_operator.workloads.injection import AUDIENCE

NODE, AGENTS = "node-1", "wattloop-agent/wattloop-agent"
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
USAGE = PodGpuUsage("uid-1", "team", "digits-0-abc", "train", "GPU-0", False, 5_000, 10, 1.0, 6.0, False)
GPU = NodeGpu("GPU-0", 9_000, 10, 6.0, "counter", "NVIDIA H200")


def report(*usages: PodGpuUsage, sequence: int = 1, node: str = NODE, ledger: str = "ledger") -> dict[str, Any]:
    return NodeReport(node, ledger, sequence, (GPU,), usages).to_json()


class ApiServer:
    """A fake API server with tokens and one training pod of the job team/digits."""

    def __init__(self) -> None:
        self.tokens: dict[str, dict[str, Any]] = {
            "agent": token_of("system:serviceaccount:wattloop-agent:wattloop-agent", node=NODE)
        }
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "digits-0", "uid": "workload-uid", "controller": True}
        made = {"creationTimestamp": "2026-11-20T11:00:00Z"}
        self.objects: dict[str, dict[str, Any]] = {
            "pods/digits-0-abc": {
                "metadata": {
                    "name": "digits-0-abc",
                    "namespace": "team",
                    "uid": "uid-1",
                    "labels": {
                        "wattloop.dev/recurrence": "digits-0",
                        "batch.kubernetes.io/controller-uid": "workload-uid",
                    },
                    "ownerReferences": [owner],
                    **made,
                },
                "spec": {"nodeName": NODE},
            },
            "pods/web": {
                "metadata": {"name": "web", "namespace": "team", "uid": "uid-web"},
                "spec": {"nodeName": NODE},
            },
            "jobs/digits-0": {
                "metadata": {"name": "digits-0", "namespace": "team", "uid": "workload-uid", **made},
                "spec": {"template": {"spec": {}}},
            },
            "trainingrecurrences/digits-0": {
                "metadata": {"name": "digits-0", "namespace": "team", "uid": "recurrence-uid"},
                "spec": {"jobRef": {"name": "digits", "uid": "job-uid"}, "index": 0, "attempt": 0},
                "status": {"workloadRef": {"uid": "workload-uid"}},
            },
        }
        self.asked: Counter[str] = Counter()
        self.away = False

    def __call__(self, request: Request) -> dict[str, Any]:
        if self.away:
            raise OperationError("the API server cannot be reached")
        if request.path.endswith("tokenreviews"):
            self.asked["tokenreviews"] += 1
            sent = request.body["spec"]["token"]
            known = {json_web_token(name): review for name, review in self.tokens.items()}
            return {"status": known.get(sent, {"authenticated": False})}
        what = "/".join(request.path.rsplit("/", 2)[1:])
        self.asked[what] += 1
        if what not in self.objects:
            raise StatusError(request, 404, "NotFound", f"{what} not found")
        return self.objects[what]


def token_of(username: str, node: str = "") -> dict[str, Any]:
    """The status of a TokenReview for the token of a pod."""
    extra = {
        "authentication.kubernetes.io/pod-name": ["wattloop-agent-xyz"],
        "authentication.kubernetes.io/pod-uid": ["agent-uid"],
    }
    if node:
        extra["authentication.kubernetes.io/node-name"] = [node]
    return {"authenticated": True, "audiences": [AUDIENCE], "user": {"username": username, "extra": extra}}


@dataclass
class NodeApi:
    """The running API with its API server and store."""

    url: str
    server: ApiServer
    store: Store
    asked: list[JobKey] = field(default_factory=list)

    def post(self, body: object, token: str | None = "agent", node: str = NODE, bearer: str = "") -> tuple[int, Any]:
        """Send a report; bytes are sent unchanged. Returns the status code and the answer.

        Args:
            bearer: A token to send instead of the caller's.
        """
        headers = {"Content-Type": "application/json"} | (
            {} if token is None else {"Authorization": f"Bearer {bearer or json_web_token(token)}"}
        )
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        connection = http.client.HTTPConnection(urllib.parse.urlsplit(self.url).netloc, timeout=60)
        with contextlib.closing(connection):
            # The server answers and closes as soon as it rejects a request, perhaps before it has read the body.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.request("POST", f"/v1/nodes/{node}/energy", data, headers)
            response = connection.getresponse()
            content = json.loads(response.read())
        return response.status, content if response.status == http.HTTPStatus.OK else content["detail"]

    def stored(self) -> dict[str, int]:
        """Millijoules by pod uid, over containers, GPUs and ledgers."""
        energies: Counter[str] = Counter()
        for energy in self.store.pod_energies.of_job("job-uid", 0).get((0, 0), ()):
            energies[energy.pod_uid] += energy.energy_millijoules
        return dict(energies)


class _NoTraining:
    """Implements the interfaces for training processes, which are not used."""

    def is_authorized(self, token: BearerToken, namespace: str, name: str) -> bool:
        raise NotImplementedError

    def authorize(self, token: BearerToken, namespace: str, name: str, address: str = "") -> str:
        raise NotImplementedError

    def read(self, namespace: str, name: str) -> None:
        raise NotImplementedError

    def write(self, recurrence: object, progress: object) -> None:
        raise NotImplementedError


@contextlib.contextmanager
def running_node_api(
    folder: Path,
    *,
    service_account: str = AGENTS,
    bounds: tuple[GpuBounds, ...] | None = None,
    certificate: ServingCertificate | None = None,
    limits: ReportLimits | None = None,
    order_limit: OrderLimit = lambda _, __, ___: None,
) -> Iterator[NodeApi]:
    """Run the API during the block, with its store in this folder."""
    server = ApiServer()
    asked: list[JobKey] = []
    api = ClusterApi(server)
    limits = limits or ReportLimits(time.monotonic)
    reviews = TokenReviews(api, lambda: 0.0, limits.count_review)
    with open_store(folder / "wattloop.db") as store:
        nodes = NodeService(
            ClusterNodeAuthorizer(reviews, lambda: 0.0, service_account).authorize,
            ClusterNodePods(api, lambda: 0.0).attempts_of,
            store.pod_energies,
            lambda: NOW,
            bounds=lambda _: bounds,
            pods_ended=asked.append,
            order_limit=order_limit,
        )
        unused = _NoTraining()
        reports = ReportService(unused, unused, limits=limits)
        commits = PipelineCommits(store.pipelines, lambda: NOW)
        app = create_app(reports, nodes, PipelineService(unused, unused, commits, reports.limits))
        service = HttpService("nodes", app, Address("127.0.0.1", 0), certificate=certificate)
        service.start()
        try:
            yield NodeApi(service.url, server, store, asked)
        finally:
            service.stop()
