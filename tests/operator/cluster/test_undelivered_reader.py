"""Reports in termination messages: merged once, from pods of the recurrence alone, and never in the way of an end."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from support.recurrence_objects import recurrence_object
from wattloop.errors import OperationError
from wattloop.wire.training_messages import Report
from wattloop.wire.undelivered_reports import TOO_MANY, packed
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.cluster.api import ClusterApi
from wattloop_operator.cluster.api_transport import Request, StatusError
from wattloop_operator.cluster.undelivered_reader import UndeliveredReportsReader
from wattloop_operator.domain.snapshot import UndeliveredReports, WorkloadState
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.driver import StaleSnapshotError
from wattloop_operator.reporting.interfaces import ProgressTooLargeError, UnknownRecurrenceError

NAME = "digits-0"
REPORT = Report(process="p", sequence=9, epoch=3.0, finished=True)
OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": NAME, "uid": "workload-uid", "controller": True}
LABELS = {"batch.kubernetes.io/controller-uid": "workload-uid"}
STATUS = {"workloadRef": {"apiVersion": "batch/v1", "kind": "Job", "uid": "workload-uid"}}


@dataclass
class Cluster:
    """The API server with an attempt and its pods, and what was received."""

    received: list[tuple[str, str, Sequence[Report], str]] = field(default_factory=list)
    error: Exception | None = None

    def __post_init__(self) -> None:
        self.objects = {
            f"trainingrecurrences/{NAME}": recurrence_object(NAME, "uid", "1", STATUS),
            f"jobs/{NAME}": {"metadata": {"name": NAME, "namespace": "team", "uid": "workload-uid"}, "spec": {}},
        } | {f"pods/{NAME}-{each}": pod(each) for each in ("a", "b")}
        self.reader = UndeliveredReportsReader(ClusterApi(self._respond), self._receive)
        recurrence = TrainingRecurrence.from_wire(self.objects[f"trainingrecurrences/{NAME}"])
        self.attempt = TrainingAttempt.of(recurrence, None)

    def read(self, *texts: UndeliveredReports) -> tuple[UndeliveredReports, ...]:
        """Read texts as one reconciliation does; returns those that the next one has to read."""
        unread = self._unread(texts)
        if unread:
            self.reader.read(self.attempt, unread)
        return self._unread(texts)

    def _unread(self, texts: tuple[UndeliveredReports, ...]) -> tuple[UndeliveredReports, ...]:
        uid = self.attempt.spec.job_ref.uid
        return self.reader.unread(uid, {NAME: WorkloadState(NAME, undelivered=texts)})[NAME].undelivered

    def _respond(self, request: Request) -> dict[str, Any]:
        found = self.objects.get("/".join(request.path.split("/")[-2:]))
        if found is None:
            raise StatusError(request, 404, "NotFound", "not found")
        return found

    def _receive(self, namespace: str, name: str, reports: Sequence[Report], pod_uid: str, *, superseded: bool) -> None:
        assert not superseded
        if self.error is not None:
            raise self.error
        self.received.append((namespace, name, reports, pod_uid))


def pod(letter: str, owner: str = "workload-uid") -> dict[str, Any]:
    metadata = {"name": f"{NAME}-{letter}", "namespace": "team", "uid": f"uid-{letter}", "labels": LABELS}
    token = {"serviceAccountToken": {"audience": "wattloop.dev/report", "path": "token"}}
    spec = {"volumes": [{"name": "reports", "projected": {"sources": [token]}}]}
    return {"metadata": metadata | {"ownerReferences": [OWNER | {"uid": owner}]}, "spec": spec}


def text_of(letter: str, *reports: Report) -> UndeliveredReports:
    return UndeliveredReports(f"{NAME}-{letter}", f"uid-{letter}", packed(reports or (REPORT,)))


def test_each_text_is_merged_once_and_what_is_gone_from_the_pods_is_forgotten() -> None:
    cluster = Cluster()
    first, second = text_of("a"), text_of("b")
    assert cluster.read(first) == ()
    assert cluster.read(first, second) == ()
    assert cluster.received == [("team", NAME, (REPORT,), "uid-a"), ("team", NAME, (REPORT,), "uid-b")]
    assert cluster.read() == ()
    cluster.read(first)
    assert len(cluster.received) == 3


@pytest.mark.parametrize(
    "change", ["another owner", "another pod of the name", "no token", "no pod", "cut off", "too many", "large"]
)
def test_what_is_not_the_attempts_or_cannot_be_merged_is_ignored_with_one_line_that_names_attempt_and_pod(
    change: str, caplog: pytest.LogCaptureFixture
) -> None:
    cluster, text = Cluster(), text_of("a")
    match change:
        case "another owner":
            cluster.objects[f"pods/{NAME}-a"] = pod("a", "another-uid")
        case "another pod of the name":
            cluster.objects[f"pods/{NAME}-a"]["metadata"]["uid"] = "another-uid"
        case "no token":
            cluster.objects[f"pods/{NAME}-a"]["spec"] = {}
        case "no pod":
            del cluster.objects[f"pods/{NAME}-a"]
        case "cut off":
            text = UndeliveredReports(text.pod, text.pod_uid, text.packed[:-5])
        case "too many":
            text = UndeliveredReports(text.pod, text.pod_uid, TOO_MANY)
        case "large":
            cluster.error = ProgressTooLargeError("the progress would have 700 KiB")
    for _ in range(3):
        assert cluster.read(text, text_of("b")) == ()
    (line,) = [each for each in caplog.messages if "ignored" in each and f"{NAME}-a" in each]
    assert line.startswith(f"team/{NAME}: the reports that pod {NAME}-a left are ignored: ")
    assert [each[3] for each in cluster.received] == ([] if change == "large" else ["uid-b"])


def test_what_cannot_be_merged_now_is_merged_later() -> None:
    cluster, text = Cluster(), text_of("a")
    cluster.error = OperationError("the database is away")
    with pytest.raises(OperationError):
        cluster.read(text)
    cluster.error = UnknownRecurrenceError("it was deleted")
    with pytest.raises(StaleSnapshotError):
        cluster.read(text)
    cluster.error = None
    assert cluster.read(text) == ()
    assert len(cluster.received) == 1
