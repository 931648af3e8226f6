"""An operator whose memory, processor time and requests are measured, for `many_jobs.py`."""

from __future__ import annotations

import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubernetes import client

from support.control_plane.commands import ClusterCommand
from support.control_plane.operator_process import OperatorProcess
from wattloop_operator.cluster.api import RECURRING_TRAINING_JOBS, ClusterApi
from wattloop_operator.cluster.api_transport import HttpTransport

GROUP, VERSION = "wattloop.dev", "v1alpha1"
POLL_SECONDS = 3.0
IDLE_SECONDS = 5.0
TIMEOUT_SECONDS = 600.0
LEASE = ("default", "benchmark")
# Resources that a recurrence is made of.
RESOURCES = {"recurringtrainingjobs", "trainingrecurrences", "jobs", "workloads", "events", "secrets", "pods"}
POD = {
    "restartPolicy": "Never",
    "containers": [{"name": "train", "image": "example.invalid/train:1", "command": ["train"]}],
}
METRIC, THRESHOLD = "accuracy", "0.9"
# What a training of kwok's leaves: its metric is beyond the threshold.
TERMINATION_MESSAGE = f"epoch=3 {METRIC}=0.95"


@dataclass(frozen=True)
class Cluster:
    """A running control plane.

    Attributes:
        api: A client with an administrator's rights.
        kubectl: The same user's.
        folder: For files of the run.
    """

    api: client.ApiClient
    kubectl: ClusterCommand
    folder: Path

    @property
    def objects(self) -> ClusterApi:
        """Reads objects, page by page."""
        return ClusterApi(HttpTransport(self.api))


def say(text: str) -> None:
    """Write a line of progress."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def training_job(
    namespace: str, name: str, starts: dict[str, Any], *, runs: bool, labels: dict[str, str] | None = None, **spec: Any
) -> dict[str, Any]:
    """A RecurringTrainingJob.

    Args:
        namespace: Its namespace.
        name: Its name.
        starts: When it starts: the fields of its spec.
        runs: Whether its Jobs have pods, which leave their metric when they end; otherwise they are suspended.
        labels: Labels of its workloads.
        spec: Further fields of its spec.
    """
    job = {"template": {"spec": POD}}
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "RecurringTrainingJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            **starts,
            "objective": {"target": {"metric": METRIC, "threshold": THRESHOLD}},
            "batchSize": {"default": 64, "candidates": [32, 64, 128]},
            "template": {
                "metadata": {"labels": labels or {}},
                "spec": job if runs else {"suspend": True, **job},
            },
            **({"reporting": {"source": "TerminationMessage"}} if runs else {}),
            **spec,
        },
    }


def create_namespaces(cluster: Cluster, names: Iterable[str]) -> None:
    """Create namespaces."""
    cluster.kubectl.apply(*({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in names))


def create_jobs(cluster: Cluster, jobs: Sequence[dict[str, Any]]) -> float:
    """Create RecurringTrainingJobs; returns the duration in seconds."""
    custom, plural = client.CustomObjectsApi(cluster.api), RECURRING_TRAINING_JOBS.plural

    def create(number: int) -> None:
        body = jobs[number]
        custom.create_namespaced_custom_object(GROUP, VERSION, body["metadata"]["namespace"], plural, body)

    return create_all(len(jobs), create)


def create_all(count: int, create: Callable[[int], object]) -> float:
    """Create objects concurrently; returns the duration in seconds."""
    began = time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(create, range(count)))
    return time.monotonic() - began


@contextmanager
def leading_operator(cluster: Cluster, workers: int, database: str = "wattloop") -> Iterator[OperatorProcess]:
    """A context with an operator that leads."""
    # On a busy machine a leader may be late to renew the lease of the tests, and end.
    options = (f"--workers={workers}", "--leader-lease-seconds=60")
    url = f"sqlite:///{cluster.folder}/{database}.db"
    operator = OperatorProcess(cluster.kubectl.kubeconfig, cluster.folder, url, LEASE, options=options)
    try:
        operator.await_line(" leads")
        yield operator
    finally:
        operator.stop()


def answered_requests(kubectl: ClusterCommand) -> Counter[str]:
    """The requests that the API server has answered so far, by verb and resource, without watches.

    Those that it refused because the object had changed are counted apart.
    """
    text = kubectl("get", "--raw", "/metrics")
    counted: Counter[str] = Counter()
    for labels, value in re.findall(r"^apiserver_request_total\{(.*)\} (\S+)$", text, re.MULTILINE):
        label = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        if label["resource"] in RESOURCES and label["verb"] != "WATCH":
            part = "/".join(filter(None, (label["resource"], label["subresource"])))
            conflict = " (conflict)" if label["code"] == "409" else ""
            counted[f"{label['verb'].lower()} {part}{conflict}"] += int(float(value))
    return counted


def memory(pid: int) -> dict[str, float]:
    """Resident memory and peak memory of a process in megabytes, and its CPU time in seconds."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    kilobytes = {name: int(value) for name, value in re.findall(r"^(VmRSS|VmHWM):\s+(\d+) kB", status, re.MULTILINE)}
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return {
        "resident_megabytes": round(kilobytes["VmRSS"] / 1024, 1),
        "highest_megabytes": round(kilobytes["VmHWM"] / 1024, 1),
        "processor_seconds": round((int(fields[11]) + int(fields[12])) / 100, 1),
    }


class Consumption:
    """What recurrences take from now on: the operator's processor time, and requests of all who act on them."""

    def __init__(self, cluster: Cluster, operator: OperatorProcess) -> None:
        self._cluster, self._operator = cluster, operator
        self._requests, self._seconds = answered_requests(cluster.kubectl), self._processor_seconds()

    def per_recurrence(self, recurrences: int) -> dict[str, Any]:
        """What each of so many recurrences took."""
        requests = answered_requests(self._cluster.kubectl) - self._requests
        seconds = self._processor_seconds() - self._seconds
        return {
            "processor_milliseconds_per_recurrence": round(1000 * seconds / recurrences, 1),
            "requests_per_recurrence": {each: round(n / recurrences, 2) for each, n in sorted(requests.items())},
        }

    def _processor_seconds(self) -> float:
        return memory(self._operator.pid)["processor_seconds"]


def await_count(what: str, wanted: int, count: Callable[[], int], *, alive: Callable[[], None] = lambda: None) -> None:
    """Wait until there are as many, with a line of progress whenever there are more.

    Args:
        what: What is counted, for the lines.
        wanted: How many are waited for.
        count: Counts them now.
        alive: Raises an error if what makes them has ended.

    Raises:
        TimeoutError: They are too few.
    """
    deadline, seen = time.monotonic() + TIMEOUT_SECONDS, -1
    while True:
        alive()
        found = count()
        if found != seen:
            say(f"{found} of {wanted} {what}")
        if found >= wanted:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"{found} of {wanted} {what} after {TIMEOUT_SECONDS:g} s")
        seen = found
        time.sleep(POLL_SECONDS)


def await_idle(operator: OperatorProcess) -> float:
    """Wait until the operator has nothing to do; returns the monotonic time at which its first idle seconds began.

    Raises:
        TimeoutError: It is still busy.
    """
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        began = time.monotonic()
        if not operator_is_busy(operator):
            return began
        if began > deadline:
            raise TimeoutError(f"the operator is still busy after {TIMEOUT_SECONDS:g} s")


def operator_is_busy(operator: OperatorProcess) -> bool:
    """Whether the operator used more than a tenth of a CPU in the last seconds."""
    before = memory(operator.pid)["processor_seconds"]
    time.sleep(IDLE_SECONDS)
    return memory(operator.pid)["processor_seconds"] - before > 0.1 * IDLE_SECONDS
