"""The operator with many jobs due in the same minute: delay of the starts, and memory.

Run from the repository's root, with the programs of the cluster tests (docs/internals/testing.md):

    python benchmarks/many_jobs.py --jobs 1000

The benchmark starts a separate control plane. The RecurringTrainingJobs have a cron schedule of the same minute, and
`--others` more have one of another hour. It measures the time from that minute to the creation of each Job, in whole
seconds of the server, the requests that the API server answered for each recurrence, the operator's memory, and the
time that a restarted operator takes to know all jobs. It compares with two peers on the same control plane: a bare
client that writes the same recurrences, statuses and Jobs as fast as the API server takes them, which is its own limit,
and Kubernetes' CronJob controller with as many CronJobs, of which it also has the controller's own metric. All Jobs are
suspended, so there are no pods.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[1]
sys.path.insert(0, str(REPOSITORY / "tests"))

import httpx  # noqa: E402
from kubernetes import client, config  # noqa: E402

from support.binaries.build import USED_BY_TESTS, ensure  # noqa: E402
from support.control_plane.commands import ClusterCommand  # noqa: E402
from support.control_plane.control_plane import running_control_plane  # noqa: E402
from support.control_plane.operator_process import OperatorProcess  # noqa: E402
from support.free_ports import free_port  # noqa: E402
from wattloop_operator.cluster.api import JOBS, RECURRING_TRAINING_JOBS, ClusterApi  # noqa: E402
from wattloop_operator.cluster.api_transport import HttpTransport  # noqa: E402

GROUP, VERSION, PLURAL = "wattloop.dev", "v1alpha1", "recurringtrainingjobs"
NAMESPACE = "default"
LEAD_SECONDS = 20.0
POLL_SECONDS = 3.0
IDLE_SECONDS = 5.0
TIMEOUT_SECONDS = 600.0
SKEW_METRIC = "cronjob_controller_job_creation_skew_duration_seconds"
# Resources that a recurrence is made of.
RESOURCES = {"recurringtrainingjobs", "trainingrecurrences", "jobs", "events", "secrets", "pods"}
POD = {
    "restartPolicy": "Never",
    "containers": [{"name": "train", "image": "example.invalid/train:1", "command": ["train"]}],
}


def training_job(number: int, schedule: str) -> dict[str, Any]:
    """A RecurringTrainingJob whose Jobs are suspended."""
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "RecurringTrainingJob",
        "metadata": {"name": f"job-{number}"},
        "spec": {
            "trigger": {"cron": {"schedule": schedule}},
            "objective": {"target": {"metric": "accuracy", "threshold": "0.9"}},
            "batchSize": {"default": 64, "candidates": [32, 64, 128]},
            "template": {"job": {"suspend": True, "template": {"spec": POD}}},
        },
    }


def cron_job(number: int, schedule: str) -> dict[str, Any]:
    """A CronJob whose Jobs are suspended."""
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": f"peer-{number}"},
        "spec": {"schedule": schedule, "jobTemplate": {"spec": {"suspend": True, "template": {"spec": POD}}}},
    }


def answered_requests(kubectl: ClusterCommand) -> Counter[str]:
    """The requests that the API server has answered so far, by verb and resource, without watches."""
    text = kubectl("get", "--raw", "/metrics")
    counted: Counter[str] = Counter()
    for labels, value in re.findall(r"^apiserver_request_total\{(.*)\} (\S+)$", text, re.MULTILINE):
        label = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        if label["resource"] in RESOURCES and label["verb"] != "WATCH":
            part = "/".join(filter(None, (label["resource"], label["subresource"])))
            counted[f"{label['verb'].lower()} {part}"] += int(float(value))
    return counted


def written_alone(api: client.ApiClient, count: int) -> float:
    """Seconds that a bare client takes to write as many recurrences, their statuses and their Jobs as there were.

    Each is a copy of one that the operator wrote. Nobody acts on them but the Job controller, as on the others.
    """
    batch, custom = client.BatchV1Api(api), client.CustomObjectsApi(api)
    recurrences = (GROUP, VERSION, NAMESPACE, "trainingrecurrences")
    recurrence = custom.list_namespaced_custom_object(*recurrences, limit=1)["items"][0]
    job = api.sanitize_for_serialization(batch.list_namespaced_job(NAMESPACE, limit=1).items[0])

    def write(number: int) -> None:
        name = f"alone-{number}"
        custom.create_namespaced_custom_object(*recurrences, {**recurrence, "metadata": copied(recurrence, name)})
        custom.patch_namespaced_custom_object_status(*recurrences, name, {"status": recurrence["status"]})
        batch.create_namespaced_job(NAMESPACE, {**job, "metadata": copied(job, name), "spec": unselected(job["spec"])})

    return create_all(count, write)


def copied(body: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The metadata of a copy of an object."""
    return {"name": name} | {key: body["metadata"][key] for key in ("annotations", "labels") if key in body["metadata"]}


def unselected(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The spec of a Job without the selector that the API server gave it."""
    template = spec["template"]
    bare = {**template, "metadata": {"annotations": template["metadata"].get("annotations", {})}}
    return {key: value for key, value in spec.items() if key != "selector"} | {"template": bare}


def next_minute(min_seconds: float) -> tuple[datetime, str]:
    """A minute at least this far in the future, and its cron schedule."""
    moment = (datetime.now(UTC) + timedelta(seconds=min_seconds + 60)).replace(second=0, microsecond=0)
    return moment, f"{moment.minute} {moment.hour} * * *"


def wait_until(moment: datetime) -> None:
    """Wait until a time."""
    time.sleep(max((moment - datetime.now(UTC)).total_seconds(), 0.0))


def create_all(count: int, create: Callable[[int], object]) -> float:
    """Create objects concurrently; returns the duration in seconds."""
    began = time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(create, range(count)))
    return time.monotonic() - began


def delays(
    api: ClusterApi, owner: str, count: int, due: datetime, check: Callable[[], object] = lambda: None
) -> list[float]:
    """Delay of each Job of an owner's kind after the minute, in seconds, once there are `count` Jobs.

    Uses the server's creation times, in whole seconds, because a watch in this process is too slow.
    """
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        check()
        jobs, _ = api.list(JOBS, namespace=NAMESPACE, metadata_only=True)
        created = [
            each["metadata"] for each in jobs if each["metadata"].get("ownerReferences", [{}])[0].get("kind") == owner
        ]
        if len(created) >= count or time.monotonic() > deadline:
            return [(datetime.fromisoformat(each["creationTimestamp"]) - due).total_seconds() for each in created]
        time.sleep(POLL_SECONDS)


def skew(delays: Sequence[float]) -> dict[str, float]:
    """Median, 99th percentile and maximum of the delays, in seconds."""
    ordered = sorted(delays)
    return {
        "started": len(ordered),
        "median_seconds": round(statistics.median(ordered), 2),
        "p99_seconds": round(ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))], 2),
        "last_seconds": round(ordered[-1], 2),
    }


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


def measure(jobs: int, others: int, workers: int) -> dict[str, Any]:
    """The values of the operator and of its peers."""
    programs = ensure(USED_BY_TESTS)
    with tempfile.TemporaryDirectory(prefix="wattloop-benchmark-") as name:
        folder = Path(name)
        (folder / "plane").mkdir()
        port = free_port()
        with running_control_plane(programs, folder / "plane", controllers_port=port) as plane:
            kubectl = ClusterCommand(programs["kubectl"], plane.admin_kubeconfig, folder)
            kubectl("apply", "--server-side", f"--filename={REPOSITORY / 'crds'}")
            kubectl("wait", "--for=condition=Established", f"--filename={REPOSITORY / 'crds'}", "--timeout=60s")
            configuration = client.Configuration()
            config.load_kube_config(config_file=str(plane.admin_kubeconfig), client_configuration=configuration)
            configuration.connection_pool_maxsize = 16
            with client.ApiClient(configuration) as api:
                return compared(api, kubectl, folder, Load(jobs, others, workers)) | {
                    "cron_job_controller_own_skew": controllers_skew(port)
                }


@dataclass(frozen=True)
class Load:
    """What the operator has to do.

    Attributes:
        jobs: Jobs due in the same minute.
        others: Further jobs, due at another hour.
        workers: The operator's `--workers`.
    """

    jobs: int
    others: int
    workers: int


def compared(api: client.ApiClient, kubectl: ClusterCommand, folder: Path, load: Load) -> dict[str, Any]:
    """Measure the operator, the API server alone, then the CronJob controller, on the same control plane."""
    operator = leading_operator(kubectl.kubeconfig, folder, load)
    empty = memory(operator.pid)
    started = started_recurrences(api, kubectl, operator, load)
    full = memory(operator.pid)
    operator.stop()
    began = time.monotonic()
    operator = leading_operator(kubectl.kubeconfig, folder, load)
    resync_seconds = await_idle(operator) - began
    operator.stop()
    alone = written_alone(api, load.jobs)
    peer = started_cron_jobs(api, load.jobs)
    return {
        "jobs": load.jobs,
        "other_jobs": load.others,
        "workers": load.workers,
        "operator": started | full,
        "operator_without_jobs": empty,
        "kilobytes_per_job": round(
            (full["resident_megabytes"] - empty["resident_megabytes"]) * 1024 / (load.jobs + load.others), 1
        ),
        "resync_seconds": round(resync_seconds, 1),
        "api_server_alone_seconds": round(alone, 1),
        "cron_job_controller": peer,
        "last_start_operator_over_api_server_alone": round(started["last_seconds"] / alone, 2),
        "last_start_operator_over_cron_job_controller": round(
            started["last_seconds"] / max(peer["last_seconds"], 1), 2
        ),
    }


def leading_operator(kubeconfig: Path, folder: Path, load: Load) -> OperatorProcess:
    """Start an operator and wait until it leads."""
    lease = (NAMESPACE, "benchmark")
    # On a busy machine a leader may be late to renew the lease of the tests, and end.
    options = (f"--workers={load.workers}", "--leader-lease-seconds=60")
    operator = OperatorProcess(kubeconfig, folder, f"sqlite:///{folder}/wattloop.db", lease, options=options)
    operator.await_line(" leads")
    return operator


def started_recurrences(
    api: client.ApiClient, kubectl: ClusterCommand, operator: OperatorProcess, load: Load
) -> dict[str, Any]:
    """Delays of the operator's starts, and the requests that each recurrence took."""
    custom = client.CustomObjectsApi(api)
    count = load.jobs + load.others
    moment, schedule = next_minute(LEAD_SECONDS + count / 20)
    later = f"0 {(moment.hour + 12) % 24} * * *"
    took = create_all(
        count,
        lambda number: custom.create_namespaced_custom_object(
            GROUP, VERSION, NAMESPACE, PLURAL, training_job(number, schedule if number < load.jobs else later)
        ),
    )
    sys.stderr.write(f"{count} jobs created in {took:.0f} s, {load.jobs} due at {moment:%H:%M}\n")
    wait_until(moment - timedelta(seconds=2))
    before, busy_before = answered_requests(kubectl), memory(operator.pid)["processor_seconds"]
    wait_until(moment)
    found = delays(ClusterApi(HttpTransport(api)), "TrainingRecurrence", load.jobs, moment, check=operator.check_alive)
    await_statuses(ClusterApi(HttpTransport(api)), load.jobs)
    await_idle(operator)
    requests = answered_requests(kubectl) - before
    busy_seconds = memory(operator.pid)["processor_seconds"] - busy_before
    return skew(found) | {
        "processor_milliseconds_per_recurrence": round(1000 * busy_seconds / load.jobs, 1),
        "requests_per_recurrence": {each: round(value / load.jobs, 2) for each, value in sorted(requests.items())},
    }


def started_cron_jobs(api: client.ApiClient, jobs: int) -> dict[str, float]:
    """Delays of the CronJob controller's starts."""
    batch = client.BatchV1Api(api)
    moment, schedule = next_minute(LEAD_SECONDS + jobs / 50)
    create_all(jobs, lambda number: batch.create_namespaced_cron_job(NAMESPACE, cron_job(number, schedule)))
    wait_until(moment)
    return skew(delays(ClusterApi(HttpTransport(api)), "CronJob", jobs, moment))


def controllers_skew(port: int) -> dict[str, float]:
    """The CronJob controller's own metric: the mean of its delays, and the bucket that has 99 % of them."""
    text = httpx.get(f"https://127.0.0.1:{port}/metrics", verify=False, trust_env=False).raise_for_status().text
    found = dict(re.findall(rf"^{SKEW_METRIC}_(\S+) (\S+)$", text, re.MULTILINE))
    count = float(found["count"])
    buckets = sorted(
        (float(bound), float(value))
        for name, value in found.items()
        for bound in re.findall(r'^bucket\{le="(.*)"\}$', name)
    )
    return {
        "started": count,
        "mean_seconds": round(float(found["sum"]) / count, 1),
        "p99_at_most_seconds": next(bound for bound, value in buckets if value >= 0.99 * count),
    }


def await_statuses(api: ClusterApi, count: int) -> None:
    """Wait until as many jobs state their recurrence: an operator that waits for a slow API server looks idle.

    Raises:
        TimeoutError: They do not.
    """
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        jobs, _ = api.list(RECURRING_TRAINING_JOBS, namespace=NAMESPACE)
        stating = sum(bool(each.get("status", {}).get("active")) for each in jobs)
        if stating >= count:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"{stating} of {count} jobs state their recurrence after {TIMEOUT_SECONDS:g} s")
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


def main() -> int:
    """Measure and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1000, help="number of jobs due at once (default: 1000)")
    parser.add_argument("--others", type=int, default=0, help="number of further jobs, not due then (default: 0)")
    parser.add_argument("--workers", type=int, default=8, help="the operator's --workers (default: 8)")
    options = parser.parse_args()
    sys.stdout.write(json.dumps(measure(options.jobs, options.others, options.workers), indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
