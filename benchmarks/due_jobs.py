"""Jobs that are due in the same minute, among others that are not, and two peers: a part of `many_jobs.py`."""

from __future__ import annotations

import re
import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
from kubernetes import client
from measured_operator import (
    GROUP,
    POD,
    VERSION,
    Cluster,
    Consumption,
    await_count,
    await_idle,
    create_all,
    create_jobs,
    create_namespaces,
    leading_operator,
    memory,
    say,
    training_job,
)

from support.control_plane.operator_process import OperatorProcess
from wattloop_operator.cluster.api import JOBS, RECURRING_TRAINING_JOBS, TRAINING_RECURRENCES

# Of the peers.
NAMESPACE = "default"
# An operator in a container of 1 GiB keeps 76 MiB of objects of one namespace, so jobs have many.
MAX_JOBS_OF_NAMESPACE = 500
LEAD_SECONDS = 20.0
SKEW_METRIC = "cronjob_controller_job_creation_skew_duration_seconds"


@dataclass(frozen=True)
class Load:
    """What the operator has to do.

    Attributes:
        jobs: Jobs due in the same minute.
        others: Further jobs, due at another hour.
        workers: The operator's `--workers`.
        runs: Whether Jobs have pods, which somebody runs and ends.
    """

    jobs: int
    others: int
    workers: int
    runs: bool


def compared(cluster: Cluster, load: Load) -> dict[str, Any]:
    """Measure the operator, the API server alone, then the CronJob controller, on the same control plane."""
    with leading_operator(cluster, load.workers) as operator:
        empty = memory(operator.pid)
        started = started_recurrences(cluster, operator, load)
        full = memory(operator.pid)
    say("the operator starts again")
    began = time.monotonic()
    with leading_operator(cluster, load.workers) as operator:
        resync_seconds = await_idle(operator) - began
    alone = written_alone(cluster.api, load.jobs)
    say(f"a bare client wrote as many recurrences, statuses and Jobs in {alone:.0f} s")
    peer = started_cron_jobs(cluster, load)
    return {
        "jobs": load.jobs,
        "other_jobs": load.others,
        "workers": load.workers,
        "pods_run": load.runs,
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


def started_recurrences(cluster: Cluster, operator: OperatorProcess, load: Load) -> dict[str, Any]:
    """Delays of the operator's starts, and what each recurrence took."""
    others = [f"other-{number}" for number in range(load.others)]
    jobs = [f"job-{number}" for number in range(load.jobs)]
    create_namespaces(cluster, sorted({namespace_of(number) for number in range(len(others) + len(jobs))}))
    # They come first, and the minute is chosen when all are known, so it does not depend on how long that takes.
    later = {"schedule": f"0 {(datetime.now(UTC).hour + 12) % 24} * * *"}
    took = create_jobs(
        cluster, [training_job(namespace_of(n), name, later, runs=load.runs) for n, name in enumerate(others)]
    )
    if others:
        say(f"{len(others)} other jobs created in {took:.0f} s")
    await_idle(operator)
    moment, schedule = next_minute(LEAD_SECONDS + load.jobs / 30)
    due = {"schedule": schedule}
    took = create_jobs(
        cluster,
        [training_job(namespace_of(n), name, due, runs=load.runs) for n, name in enumerate(jobs, len(others))],
    )
    say(f"{load.jobs} jobs created in {took:.0f} s, due at {moment:%H:%M}")
    check_before(moment)
    wait_until(moment - timedelta(seconds=2))
    consumption = Consumption(cluster, operator)
    wait_until(moment)
    found = delays(cluster, "TrainingRecurrence", load.jobs, moment, check=operator.check_alive)
    ends = ended(cluster, load.jobs, moment, operator) if load.runs else await_statuses(cluster, load.jobs)
    await_idle(operator)
    return skew(found) | ends | consumption.per_recurrence(load.jobs)


def namespace_of(number: int) -> str:
    """The namespace of a job."""
    return f"team-{number // MAX_JOBS_OF_NAMESPACE}"


def started_cron_jobs(cluster: Cluster, load: Load) -> dict[str, float]:
    """Delays of the CronJob controller's starts."""
    batch = client.BatchV1Api(cluster.api)
    moment, schedule = next_minute(LEAD_SECONDS + load.jobs / 50)
    took = create_all(
        load.jobs,
        lambda number: batch.create_namespaced_cron_job(NAMESPACE, cron_job(number, schedule, runs=load.runs)),
    )
    say(f"{load.jobs} CronJobs created in {took:.0f} s, due at {moment:%H:%M}")
    check_before(moment)
    wait_until(moment)
    return skew(delays(cluster, "CronJob", load.jobs, moment))


def cron_job(number: int, schedule: str, *, runs: bool) -> dict[str, Any]:
    """A CronJob whose Jobs are those of the RecurringTrainingJobs."""
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": f"peer-{number}"},
        "spec": {"schedule": schedule, "jobTemplate": {"spec": {"suspend": not runs, "template": {"spec": POD}}}},
    }


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


def written_alone(api: client.ApiClient, count: int) -> float:
    """Seconds that a bare client takes to write as many recurrences, their statuses and their Jobs as there were.

    Each is a copy of one that the operator wrote. Nobody acts on them but the Job controller, as on the others.
    """
    batch, custom = client.BatchV1Api(api), client.CustomObjectsApi(api)
    recurrences = (GROUP, VERSION, NAMESPACE, TRAINING_RECURRENCES.plural)
    recurrence = custom.list_cluster_custom_object(GROUP, VERSION, TRAINING_RECURRENCES.plural, limit=1)["items"][0]
    job = api.sanitize_for_serialization(batch.list_job_for_all_namespaces(limit=1).items[0])

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


def check_before(moment: datetime) -> None:
    """Check that a minute is still to come.

    Raises:
        RuntimeError: It has begun, so that some jobs may have missed it.
    """
    if datetime.now(UTC) >= moment:
        raise RuntimeError(f"the machine is too busy: the jobs were not created before {moment:%H:%M}")


def delays(
    cluster: Cluster, owner: str, count: int, due: datetime, check: Callable[[], None] = lambda: None
) -> list[float]:
    """Delay of each Job of an owner's kind after the minute, in seconds, once there are `count` Jobs.

    Uses the server's creation times, in whole seconds, because a watch in this process is too slow.
    """

    def created() -> list[Mapping[str, Any]]:
        jobs, _ = cluster.objects.list(JOBS, metadata_only=True)
        metadata = (each["metadata"] for each in jobs)
        return [each for each in metadata if each.get("ownerReferences", [{}])[0].get("kind") == owner]

    await_count(f"Jobs of a {owner} started", count, lambda: len(created()), alive=check)
    return [seconds_after(due, each["creationTimestamp"]) for each in created()]


def ended(cluster: Cluster, count: int, due: datetime, operator: OperatorProcess) -> dict[str, Any]:
    """How the recurrences ended, and when their results were written, in seconds after the minute."""

    def statuses() -> list[Mapping[str, Any]]:
        recurrences, _ = cluster.objects.list(TRAINING_RECURRENCES)
        found = (each.get("status", {}) for each in recurrences)
        return [each for each in found if each.get("result")]

    await_count("recurrences have a result", count, lambda: len(statuses()), alive=operator.check_alive)
    complete = [each for status in statuses() for each in status["conditions"] if each["type"] == "Complete"]
    written = spread([seconds_after(due, each["lastTransitionTime"]) for each in complete])
    return {"results": Counter(each["reason"] for each in complete), "results_written": written}


def await_statuses(cluster: Cluster, count: int) -> dict[str, Any]:
    """Wait until as many jobs state their recurrence: an operator that waits for a slow API server looks idle."""

    def stating() -> int:
        jobs, _ = cluster.objects.list(RECURRING_TRAINING_JOBS)
        return sum(bool(each.get("status", {}).get("active")) for each in jobs)

    await_count("jobs state their recurrence", count, stating)
    return {}


def seconds_after(moment: datetime, timestamp: str) -> float:
    """Seconds from a moment to a timestamp of the API server."""
    return (datetime.fromisoformat(timestamp) - moment).total_seconds()


def skew(delays: Sequence[float]) -> dict[str, float]:
    """Number and spread of the delays of starts."""
    return {"started": len(delays), **spread(delays)}


def spread(delays: Sequence[float]) -> dict[str, float]:
    """Median, 99th percentile and maximum of delays, in seconds."""
    ordered = sorted(delays)
    return {
        "median_seconds": round(statistics.median(ordered), 2),
        "p99_seconds": round(ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))], 2),
        "last_seconds": round(ordered[-1], 2),
    }
