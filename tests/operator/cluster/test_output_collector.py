"""Which logs are read when, as the cached objects change."""

import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest

from support.backends.model_backend import job
from support.recurrence_objects import recurrence_object
from wattloop_operator.cluster import output_collector
from wattloop_operator.cluster.api import ClusterApi, NotFoundError, RejectedError
from wattloop_operator.cluster.api_transport import Request, StatusError
from wattloop_operator.cluster.informer.object_cache import ObjectCache
from wattloop_operator.cluster.output_collector import METRIC_NOT_READ, OutputCollector
from wattloop_operator.cluster.pod_logs import GAP, ContainerLog
from wattloop_operator.domain.progress import Progress, ReportingProcess
from wattloop_operator.reconcile.actions import EmitEvent
from wattloop_operator.reconcile.attempt.report_effect import OutputReport

NAME, POD = "digits-0", "digits-0-abcde"
PROCESS = f"uid-of-{POD}/0"
OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": NAME, "uid": "workload-uid", "controller": True}
LABELS = {
    "wattloop.dev/job": "digits",
    "wattloop.dev/recurrence": NAME,
    "batch.kubernetes.io/controller-uid": "workload-uid",
}
LINES = b"1970-01-01T00:00:01Z epoch=1 accuracy=0.1\n1970-01-01T00:00:02Z epoch=2 accuracy=0.2\n"


class Cluster:
    """The objects of one attempt, the logs of its pods, and what was reported."""

    def __init__(self, source: str = "Logs", *, reads_logs: bool = True, pattern: str | None = None) -> None:
        self.reporting = {"source": source} | ({} if pattern is None else {"pattern": pattern})
        self.version = 10
        self.cache = ObjectCache()
        self.progress = Progress()
        self.observed: list[OutputReport] = []
        self.opened: list[tuple[str, str, int, bool]] = []
        self.announced: list[tuple[str, EmitEvent]] = []
        self.logs: dict[str, bytes | Exception] = {POD: LINES}
        self.now = 0.0
        self.pods: dict[str, dict[str, Any]] = {}
        self.collector = OutputCollector(
            self.cache,
            ClusterApi(self._respond),
            self._open if reads_logs else None,
            lambda _, __, seen: self._observe(seen),
            lambda _: self.progress,
            announce=lambda about, event: self.announced.append((about.metadata.name, event)),
            monotonic=lambda: self.now,
            start=_run_at_once,
        )
        self.write_job()
        self.write_recurrence()
        self.workload()

    def collect(self, seconds: float = 1.0) -> list[tuple[str, str, int, bool]]:
        """One pass; returns the logs opened by it."""
        before = len(self.opened)
        self.collector.collect()
        self.now += seconds
        return self.opened[before:]

    def write_job(self, *further: str, **spec: Any) -> None:
        containers = [{"name": name, "image": "digits"} for name in (*further, "train")]
        template = {"spec": {"template": {"spec": {"containers": containers}}}}
        body = job(reporting={"source": "Logs"}, template=template, **spec).to_wire()
        metadata = {"name": "digits", "namespace": "team", "uid": "job-uid", "resourceVersion": self._version()}
        self.cache.put_job(body | {"metadata": metadata})

    def write_recurrence(self, **status: Any) -> None:
        workload = {"apiVersion": "batch/v1", "kind": "Job", "uid": "workload-uid"}
        self.recurrence = recurrence_object(
            NAME, "uid", self._version(), {"workloadRef": workload, **status}, reporting=self.reporting
        )
        self.cache.put_recurrence(self.recurrence)

    def workload(self, *conditions: str) -> None:
        metadata = {"name": NAME, "namespace": "team", "uid": "workload-uid", "labels": LABELS}
        self.body = {
            "metadata": {**metadata, "resourceVersion": self._version()},
            "spec": {"template": {"spec": {}}},
            "status": {"conditions": [{"type": each, "status": "True"} for each in conditions]},
        }
        self.cache.put_workload(self.body)

    def pod(
        self,
        phase: str,
        *,
        name: str = POD,
        labels: dict[str, str] | None = None,
        owner: str = "",
        message: str = "",
        container: str = "train",
        restarts: int = 0,
    ) -> None:
        state = {"Pending": {}, "Running": {"running": {"startedAt": "2026-03-01T12:00:00Z"}}}.get(
            phase, {"terminated": {"exitCode": 0, "message": message}}
        )
        body = {
            "metadata": {
                "name": name,
                "namespace": "team",
                "uid": f"uid-of-{name}",
                "resourceVersion": self._version(),
                "labels": LABELS | (labels or {}),
                "ownerReferences": [OWNER | ({"uid": owner} if owner else {})],
            },
            "spec": {},
            "status": {
                "phase": phase,
                "containerStatuses": [{"name": container, "state": state, "restartCount": restarts}],
            },
        }
        self.pods[name] = body
        self.cache.put_pod(body)

    def _version(self) -> str:
        self.version += 1
        return str(self.version)

    def _respond(self, request: Request) -> dict[str, Any]:
        kind, name = request.path.split("/")[-2:]
        found = {"trainingrecurrences": self.recurrence, "jobs": self.body, "pods": self.pods.get(name)}.get(kind)
        if found is None:
            raise StatusError(request, 404, "NotFound", "not found")
        return found

    def _open(self, log: ContainerLog, since: int, follow: bool) -> Iterator[bytes]:
        self.opened.append((log.pod, log.container, since, follow))
        found = self.logs[log.pod]
        if isinstance(found, Exception):
            raise found
        return iter([found])

    def _observe(self, seen: OutputReport) -> None:
        self.observed.append(seen)
        process = ReportingProcess(id=seen.process, sequence=seen.position)
        self.progress = Progress(processes=(process,), finished=seen.finished)


def _run_at_once(run: Callable[[], None], _: str) -> Callable[[], bool]:
    run()
    return lambda: False


def test_a_log_is_followed_while_its_pod_runs_and_then_read_to_its_end() -> None:
    cluster = Cluster()
    assert cluster.collect() == []
    cluster.pod("Pending")
    assert cluster.collect() == []
    cluster.pod("Running")
    assert cluster.collect() == [(POD, "train", 0, True)]
    assert [seen.metric for seen in cluster.observed] == [0.1, 0.2]
    cluster.pod("Succeeded")
    assert cluster.collect() == [(POD, "train", 2_000_000_000, False)]
    assert cluster.collect() == []
    assert not cluster.observed[-1].finished
    cluster.workload("Complete")
    cluster.collect()
    assert cluster.observed[-1] == OutputReport(2_000_000_001, finished=True, process=PROCESS)
    assert cluster.collect() == []
    assert len(cluster.observed) == 3


def test_another_operator_reads_the_log_again_and_reports_what_follows_the_position_of_the_progress() -> None:
    cluster = Cluster()
    cluster.progress = Progress(processes=(ReportingProcess(id=PROCESS, sequence=1_000_000_000),))
    cluster.pod("Running")
    assert cluster.collect() == [(POD, "train", 0, True)]
    assert [seen.metric for seen in cluster.observed] == [0.2]


def test_another_operator_counts_epochs_from_0_as_before_although_epoch_0_was_rotated_away() -> None:
    cluster = Cluster()
    known = ReportingProcess(id=PROCESS, sequence=1_000_000_000, counts_from_0=True)
    cluster.progress = Progress(processes=(known,))
    cluster.logs[POD] = LINES.splitlines(keepends=True)[1]
    cluster.pod("Running")
    cluster.collect()
    assert [(seen.epoch, seen.counts_from_0) for seen in cluster.observed] == [(3, True)]


def test_a_gap_in_a_log_without_epochs_is_announced_once() -> None:
    cluster = Cluster()
    cluster.progress = Progress(
        processes=(ReportingProcess(id=PROCESS, sequence=1_000_000_000),), metric=Decimal("0.1")
    )
    cluster.logs[POD] = b"1970-01-01T00:00:02Z accuracy=0.2\n"
    cluster.pod("Running")
    for _ in range(3):
        cluster.collect()
    assert [(name, event.reason, event.message) for name, event in cluster.announced] == [(NAME, METRIC_NOT_READ, GAP)]


def test_the_log_of_a_pod_that_has_ended_already_is_read_once() -> None:
    cluster = Cluster()
    cluster.pod("Failed")
    cluster.workload("Failed")
    assert cluster.collect() == [(POD, "train", 0, False)]
    cluster.collect()
    assert cluster.observed[-1].finished


def test_only_the_first_rank_and_only_a_pod_of_the_workload_is_read() -> None:
    cluster = Cluster()
    cluster.pod("Running", name=f"{NAME}-1-b", labels={"batch.kubernetes.io/job-completion-index": "1"})
    cluster.pod("Running", name=f"{NAME}-x", owner="another-uid")
    assert cluster.collect() == []


def test_the_first_job_of_a_job_set_that_trains_is_read() -> None:
    cluster = Cluster()
    cluster.write_job(trainingContainers=["train"])
    index = "jobset.sigs.k8s.io/job-global-index"
    cluster.logs |= {f"{NAME}-{each}": LINES for each in ("data-0", "node-0", "node-1")}
    cluster.pod("Running", name=f"{NAME}-data-0", labels={index: "0"}, container="data")
    cluster.pod("Running", name=f"{NAME}-node-1", labels={index: "10"})
    cluster.pod("Running", name=f"{NAME}-node-0", labels={index: "2"})
    assert cluster.collect() == [(f"{NAME}-node-0", "train", 0, True)]


def test_the_master_of_a_pytorch_job_is_read_and_without_one_the_first_worker() -> None:
    role, index = "training.kubeflow.org/job-role", "training.kubeflow.org/replica-index"
    cluster = Cluster()
    cluster.logs |= {f"{NAME}-master-0": LINES, f"{NAME}-worker-0": LINES}
    cluster.pod("Running", name=f"{NAME}-master-0", labels={role: "master", index: "0"})
    cluster.pod("Running", name=f"{NAME}-worker-0", labels={index: "0"})
    assert cluster.collect() == [(f"{NAME}-master-0", "train", 0, True)]
    cluster = Cluster()
    cluster.logs |= {f"{NAME}-worker-0": LINES}
    cluster.pod("Running", name=f"{NAME}-worker-0", labels={index: "0"})
    cluster.pod("Running", name=f"{NAME}-worker-1", labels={index: "1"})
    assert cluster.collect() == [(f"{NAME}-worker-0", "train", 0, True)]


def test_the_log_of_the_pod_that_replaces_a_failed_one_is_read() -> None:
    cluster = Cluster()
    cluster.pod("Running")
    cluster.collect()
    cluster.pod("Failed")
    cluster.logs[f"{NAME}-second"] = b"1970-01-01T00:00:09Z epoch=1 accuracy=0.3\n"
    cluster.pod("Running", name=f"{NAME}-second")
    cluster.pod("Failed")
    assert cluster.collect() == [(f"{NAME}-second", "train", 0, True)]
    assert cluster.observed[-1].metric == 0.3


def test_a_container_that_is_started_again_is_read_whatever_its_clock_shows() -> None:
    cluster = Cluster()
    cluster.logs[POD] = LINES.replace(b"1970", b"1971")
    cluster.pod("Running")
    cluster.collect()
    cluster.logs[POD] = LINES
    cluster.pod("Running", restarts=1)
    assert cluster.collect() == [(POD, "train", 0, True)]
    assert [seen.metric for seen in cluster.observed] == [0.1, 0.2, 0.1, 0.2]
    assert [seen.process[-2:] for seen in cluster.observed] == ["/0", "/0", "/1", "/1"]


@pytest.mark.parametrize(("phase", "metrics"), [("Failed", []), ("Succeeded", [0.95])])
def test_a_value_that_may_precede_a_training_counts_if_the_pod_ended_well(phase: str, metrics: list[float]) -> None:
    cluster = Cluster()
    cluster.logs = {POD: b"1970-01-01T00:00:01Z accuracy=0.95\n"}
    cluster.pod(phase)
    cluster.collect()
    assert [each.metric for each in cluster.observed if each.metric is not None] == metrics


def test_the_first_value_of_a_pod_that_replaces_another_one_may_precede_its_training() -> None:
    cluster = Cluster()
    cluster.logs["digits-0-second"] = b"1970-01-01T00:00:05Z current model: accuracy=0.95\n"
    cluster.pod("Failed")
    cluster.collect()
    cluster.pod("Running", name="digits-0-second")
    cluster.collect()
    assert [each.metric for each in cluster.observed if each.metric is not None] == [0.1, 0.2]


def test_a_log_that_is_missing_is_opened_again_after_growing_delays() -> None:
    cluster = Cluster()
    cluster.logs[POD] = NotFoundError("the container is not ready")
    cluster.pod("Running")
    opened = [bool(cluster.collect()) for _ in range(100)]
    assert 3 <= sum(opened) <= 10
    cluster.logs[POD] = LINES
    for _ in range(40):
        cluster.collect()
    assert [seen.metric for seen in cluster.observed] == [0.1, 0.2]


def test_the_log_of_a_deleted_pod_ends_the_wait_for_it() -> None:
    cluster = Cluster()
    cluster.logs[POD] = NotFoundError("pods not found")
    cluster.pod("Failed")
    cluster.workload("Failed")
    for _ in range(3):
        cluster.collect()
    assert cluster.observed == [OutputReport(1, finished=True, process=PROCESS)]


def test_a_missing_right_is_logged_and_tried_again(caplog: Any) -> None:
    cluster = Cluster()
    cluster.logs[POD] = RejectedError("pods/log is forbidden")
    cluster.pod("Running")
    for _ in range(5):
        cluster.collect()
    assert "may not read the log: pods/log is forbidden" in caplog.text
    assert len(cluster.opened) >= 2


def test_an_attempt_with_a_result_is_read_no_further() -> None:
    cluster = Cluster()
    cluster.pod("Running")
    cluster.write_recurrence(result="Cancelled")
    assert cluster.collect() == []


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            "epoch=3 accuracy=0.71\nepoch=4 accuracy=0.99\n",
            [OutputReport(1, 0.99, 4.0, finished=True, process=PROCESS)],
        ),
        (
            "epoch=4 accuracy=0.51\n",
            [OutputReport(1, 0.51, 4.0, process=PROCESS), OutputReport(2, finished=True, process=PROCESS)],
        ),
        ("Killed", [OutputReport(2, finished=True, process=PROCESS)]),
        ("", [OutputReport(2, finished=True, process=PROCESS)]),
    ],
)
def test_the_final_metric_is_read_from_the_termination_message_with_the_end_if_it_meets_the_target(
    message: str, expected: list[OutputReport]
) -> None:
    cluster = Cluster("TerminationMessage", reads_logs=False)
    cluster.pod("Running")
    cluster.collect()
    cluster.pod("Succeeded", message=message)
    cluster.collect()
    assert cluster.observed == []
    cluster.workload("Complete")
    for _ in range(3):
        cluster.collect()
    assert cluster.observed == expected
    assert cluster.opened == []


def test_an_end_in_the_report_of_a_metric_would_hide_that_a_training_diverged() -> None:
    cluster = Cluster("TerminationMessage")
    cluster.workload("Complete")
    cluster.pod("Succeeded", message="epoch=4 accuracy=nan")
    cluster.collect()
    assert [(each.epoch, each.finished) for each in cluster.observed] == [(4.0, False), (None, True)]


def test_a_termination_message_waits_for_no_log_that_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_collector, "MAX_FOLLOWED", 0)
    cluster = Cluster("TerminationMessage")
    cluster.workload("Complete")
    cluster.pod("Succeeded", message="accuracy=1")
    cluster.collect()
    assert [each.finished for each in cluster.observed] == [True]


def test_the_termination_message_of_a_pod_that_another_owns_is_not_read() -> None:
    cluster = Cluster("TerminationMessage")
    cluster.workload("Complete")
    cluster.pod("Succeeded", message="accuracy=1", owner="another-uid")
    cluster.collect()
    assert cluster.observed == []


def test_without_the_right_no_log_is_opened() -> None:
    cluster = Cluster(reads_logs=False)
    cluster.pod("Running")
    assert cluster.collect() == []


def test_a_log_whose_pattern_is_slow_is_read_no_further_and_an_event_names_pattern_and_line() -> None:
    pattern = r"(?:.{0,900})(?P<metric>z)"
    cluster = Cluster(pattern=pattern)
    # 0.2 s of processor time for each line.
    lines = [f"1970-01-01T00:00:{second:02}Z {'x' * 16_000}\n".encode() for second in range(60)]
    cluster.logs[POD] = b"".join(lines)
    cluster.pod("Running")
    begin = time.thread_time()
    opened = [log for _ in range(3) for log in cluster.collect()]
    assert time.thread_time() - begin < 5
    assert len(opened) == 1
    [(about, event)] = cluster.announced
    assert (about, event.reason, event.warning) == (NAME, "SlowPattern", True)
    assert repr(pattern) in event.message
    assert "a line of 16000 bytes" in event.message
    cluster.pod("Succeeded")
    cluster.workload("Complete")
    cluster.collect()
    assert [seen.finished for seen in cluster.observed] == [True]


@pytest.mark.parametrize("read_before", [False, True])
def test_a_log_that_names_the_metric_in_no_form_that_counts_is_announced_once_while_it_runs(read_before: bool) -> None:
    cluster = Cluster()
    lines = ["Epoch 1", "Accuracy: 81/100", "Epoch 2", "Accuracy: 82/100", "Epoch 3"]
    cluster.logs[POD] = "".join(
        f"1970-01-01T00:00:{index + 1:02}Z {line}\n" for index, line in enumerate(lines)
    ).encode()
    cluster.pod("Running")
    if read_before:
        cluster.progress = Progress(metric=Decimal("0.8"))
    for _ in range(3):
        cluster.collect()
    if read_before:
        assert cluster.announced == []
        return
    [(about, event)] = cluster.announced
    assert (about, event.reason, event.warning) == (NAME, "MetricNotRead", True)
    assert "the line 'Accuracy: 82/100' names accuracy" in event.message


def test_a_line_that_several_ranks_print_is_announced_once_also_after_evaluations_have_counted() -> None:
    cluster = Cluster()
    cluster.logs[POD] = b"".join(b"1970-01-01T00:00:%02dZ accuracy=0.5\n" % second for second in range(1, 4))
    cluster.pod("Running")
    cluster.progress = Progress(metric=Decimal("0.4"))
    for _ in range(3):
        cluster.collect()
    [(about, event)] = cluster.announced
    assert (about, event.reason, event.warning) == (NAME, "MetricNotRead", True)
    assert "the line 'accuracy=0.5' was printed several times in a row and counts once" in event.message
