"""The operator with many jobs due in the same minute: delay of the starts, and memory.

Run from the repository's root, with the programs of the cluster tests (docs/internals/testing.md):

    python benchmarks/many_jobs.py --jobs 1000

The benchmark starts a separate control plane. All RecurringTrainingJobs have a cron schedule of the same minute. It
measures the time from that minute to the creation of each Job, in whole seconds of the server, and the operator's
memory. It compares with Kubernetes' CronJob controller on the same control plane, with the same number of CronJobs. All
Jobs are suspended, so there are no pods.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[1]
sys.path.insert(0, str(REPOSITORY / "tests"))

from kubernetes import client, config  # noqa: E402

from support.binaries.build import USED_BY_TESTS, ensure  # noqa: E402
from support.control_plane.commands import ClusterCommand  # noqa: E402
from support.control_plane.control_plane import running_control_plane  # noqa: E402
from support.control_plane.operator_process import OperatorProcess  # noqa: E402
from wattloop_operator.cluster.api import JOBS, ClusterApi  # noqa: E402
from wattloop_operator.cluster.api_transport import HttpTransport  # noqa: E402

GROUP, VERSION, PLURAL = "wattloop.dev", "v1alpha1", "recurringtrainingjobs"
NAMESPACE = "default"
LEAD_SECONDS = 20.0
POLL_SECONDS = 3.0
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


def delays(api: ClusterApi, owner: str, count: int, due: datetime, timeout_seconds: float) -> list[float]:
    """Delay of each Job of an owner's kind after the minute, in seconds, once there are `count` Jobs.

    Uses the server's creation times, in whole seconds, because a watch in this process is too slow.
    """
    deadline = time.monotonic() + timeout_seconds
    while True:
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


def measure(jobs: int, workers: int) -> dict[str, Any]:
    """The values of the operator and of the CronJob controller."""
    programs = ensure(USED_BY_TESTS)
    with tempfile.TemporaryDirectory(prefix="wattloop-benchmark-") as name:
        folder = Path(name)
        (folder / "plane").mkdir()
        with running_control_plane(programs, folder / "plane") as plane:
            kubectl = ClusterCommand(programs["kubectl"], plane.admin_kubeconfig, folder)
            kubectl("apply", "--server-side", f"--filename={REPOSITORY / 'crds'}")
            kubectl("wait", "--for=condition=Established", f"--filename={REPOSITORY / 'crds'}", "--timeout=60s")
            configuration = client.Configuration()
            config.load_kube_config(config_file=str(plane.admin_kubeconfig), client_configuration=configuration)
            configuration.connection_pool_maxsize = 16
            with client.ApiClient(configuration) as api:
                return compared(api, plane.admin_kubeconfig, folder, jobs, workers)


def compared(api: client.ApiClient, kubeconfig: Path, folder: Path, jobs: int, workers: int) -> dict[str, Any]:
    """Measure the operator, then the CronJob controller, on the same control plane."""
    batch, custom = client.BatchV1Api(api), client.CustomObjectsApi(api)
    operator = OperatorProcess(
        kubeconfig,
        folder,
        f"sqlite:///{folder}/wattloop.db",
        (NAMESPACE, "benchmark"),
        options=(f"--workers={workers}",),
    )
    operator.await_line(" leads")
    empty = memory(operator.pid)
    moment, schedule = next_minute(LEAD_SECONDS + jobs / 20)
    took = create_all(
        jobs,
        lambda number: custom.create_namespaced_custom_object(
            GROUP, VERSION, NAMESPACE, PLURAL, training_job(number, schedule)
        ),
    )
    sys.stderr.write(f"{jobs} jobs created in {took:.0f} s, due at {moment:%H:%M}\n")
    wait_until(moment)
    own = skew(delays(ClusterApi(HttpTransport(api)), "TrainingRecurrence", jobs, moment, 300))
    began = time.monotonic()
    while operator_is_busy(operator) and time.monotonic() - began < 120:
        time.sleep(1)
    full = memory(operator.pid)
    operator.stop()
    moment, schedule = next_minute(LEAD_SECONDS + jobs / 50)
    create_all(jobs, lambda number: batch.create_namespaced_cron_job(NAMESPACE, cron_job(number, schedule)))
    wait_until(moment)
    peer = skew(delays(ClusterApi(HttpTransport(api)), "CronJob", jobs, moment, 300))
    return {
        "jobs": jobs,
        "workers": workers,
        "operator": own | full,
        "operator_without_jobs": empty,
        "kilobytes_per_job": round((full["resident_megabytes"] - empty["resident_megabytes"]) * 1024 / jobs, 1),
        "cron_job_controller": peer,
        "last_start_operator_over_cron_job_controller": round(own["last_seconds"] / max(peer["last_seconds"], 1), 2),
    }


def operator_is_busy(operator: OperatorProcess) -> bool:
    """Whether the operator used more than a tenth of a CPU in the last second."""
    before = memory(operator.pid)["processor_seconds"]
    time.sleep(1)
    return memory(operator.pid)["processor_seconds"] - before > 0.1


def main() -> int:
    """Measure and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1000, help="number of jobs due at once (default: 1000)")
    parser.add_argument("--workers", type=int, default=8, help="the operator's --workers (default: 8)")
    options = parser.parse_args()
    sys.stdout.write(json.dumps(measure(options.jobs, options.workers), indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
