"""The steps of recurrences that follow one another, without a queue and through Kueue: a part of `many_jobs.py`.

A step lasts from one time that an object states to the next one, so the steps add up to the whole way. The times are
whole seconds, so a mean of many is finer than the median.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any

from measured_operator import (
    GROUP,
    Cluster,
    Consumption,
    await_count,
    create_jobs,
    create_namespaces,
    leading_operator,
    memory,
    say,
    training_job,
)

from support.control_plane.control_plane import ControlPlane
from support.control_plane.kueue_controller import API_VERSION, queue_objects
from wattloop_operator.cluster.api import JOBS, RECURRING_TRAINING_JOBS, TRAINING_RECURRENCES, ResourceType
from wattloop_operator.workloads.kueue import JOB_UID_LABEL

WORKLOADS = ResourceType(API_VERSION, "workloads", "Workload")
QUEUE = {"kueue.x-k8s.io/queue-name": "team"}
# All are kept, so that the times of each can be read at the end.
KEPT = {"successfulRunsHistoryLimit": 1000, "failedRunsHistoryLimit": 1000}
# Namespaces.
QUEUED, UNQUEUED = "queued", "unqueued"
# Places in etcd of what runs without a queue.
LEFT_BEHIND = (
    *(f"{GROUP}/{each.plural}" for each in (RECURRING_TRAINING_JOBS, TRAINING_RECURRENCES)),
    "jobs",
    "pods",
)

Object = Mapping[str, Any]
Times = list[tuple[str, datetime]]
"""The end of each step, by its name and in their order. The first one is the beginning."""


@dataclass(frozen=True)
class Rounds:
    """Jobs that run one recurrence after another.

    Attributes:
        jobs: Their number.
        recurrences: How many recurrences each runs at least.
        quota: How many pods the queue admits at a time.
        workers: The operator's `--workers`.
    """

    jobs: int
    recurrences: int
    quota: int
    workers: int


def steps(cluster: Cluster, rounds: Rounds, *, queued: bool) -> dict[str, Any]:
    """Run recurrences, and measure their steps.

    Args:
        cluster: The cluster, in which somebody runs and ends the pods.
        rounds: What runs.
        queued: Whether it runs in a queue of Kueue, which is installed.
    """
    namespace = QUEUED if queued else UNQUEUED
    create_namespaces(cluster, [namespace])
    if queued:
        cluster.kubectl.apply(*queue_objects(namespace, quota=rounds.quota))
    labels = QUEUE if queued else {}
    continuous: dict[str, Any] = {"continuous": True}
    jobs = [
        training_job(namespace, f"job-{number}", continuous, runs=True, labels=labels, **KEPT)
        for number in range(rounds.jobs)
    ]
    with leading_operator(cluster, rounds.workers, namespace) as operator:
        consumption, began = Consumption(cluster, operator), time.monotonic()
        create_jobs(cluster, jobs)
        await_count(
            f"recurrences have a result ({namespace})",
            rounds.jobs * rounds.recurrences,
            lambda: sum(min(sum(ended), rounds.recurrences) for ended in ended_recurrences(cluster, namespace)),
            alive=operator.check_alive,
        )
        seconds = time.monotonic() - began
        reached, failed = map(sum, zip(*ended_recurrences(cluster, namespace), strict=True))
        taken = consumption.per_recurrence(reached + failed) | memory(operator.pid)
    found = list(ways(cluster, namespace, queued=queued))
    say(f"{reached + failed} recurrences ({namespace}) in {seconds:.0f} s")
    return {
        "reached": reached,
        "failed": failed,
        "recurrences_per_minute": round(60 * (reached + failed) / seconds),
        **taken,
        "steps": summary(found),
    }


def remove_unqueued(plane: ControlPlane) -> None:
    """Remove what ran without a queue, so that it takes nothing of what runs next."""
    for place in LEFT_BEHIND:
        plane.remove_objects(place, UNQUEUED)


def ended_recurrences(cluster: Cluster, namespace: str) -> list[tuple[int, int]]:
    """How many recurrences of each job have reached the target, and how many have failed."""
    jobs, _ = cluster.objects.list(RECURRING_TRAINING_JOBS, namespace=namespace)
    counts = (each.get("status", {}).get("totals", {}) for each in jobs)
    return [(each.get("reached", 0), each.get("failed", 0)) for each in counts]


def ways(cluster: Cluster, namespace: str, *, queued: bool) -> Iterator[Times]:
    """The times of each attempt that has ended, from the end of the one before or from the creation of its job."""
    jobs = {each["metadata"]["name"]: each for each in listed(cluster, RECURRING_TRAINING_JOBS, namespace)}
    workloads = {each["metadata"]["name"]: each for each in listed(cluster, JOBS, namespace)}
    queues = (
        {each["metadata"]["labels"][JOB_UID_LABEL]: each for each in listed(cluster, WORKLOADS, namespace)}
        if queued
        else {}
    )
    by_job: dict[str, list[Object]] = {}
    for each in listed(cluster, TRAINING_RECURRENCES, namespace):
        by_job.setdefault(each["spec"]["jobRef"]["name"], []).append(each)
    for name, recurrences in by_job.items():
        before = created(jobs[name])
        for each in sorted(recurrences, key=lambda each: (each["spec"]["index"], each["spec"]["attempt"])):
            complete = changed(each, "Complete")
            if complete is None:
                break
            workload = workloads[each["metadata"]["name"]]
            yield [
                ("before", before),
                ("recurrence created", created(each)),
                ("workload created", created(workload)),
                *(times_in_queue(queues[workload["metadata"]["uid"]]) if queued else []),
                ("workload resumed" if queued else "workload started", time_of(workload["status"]["startTime"])),
                ("training runs", time_of(each["status"]["startTime"])),
                ("training ended", time_of(workload["status"]["completionTime"])),
                ("result written", complete),
            ]
            before = complete


def times_in_queue(queued: Object) -> Times:
    """When Kueue took a workload into its queue, reserved its quota and admitted it."""
    reserved, admitted = changed(queued, "QuotaReserved"), changed(queued, "Admitted")
    assert reserved is not None
    assert admitted is not None
    return [("queued", created(queued)), ("quota reserved", reserved), ("admitted", admitted)]


def summary(found: Iterable[Times]) -> dict[str, dict[str, float]]:
    """Mean, median and 99th percentile of each step, and of the whole way, in seconds."""
    seconds: dict[str, list[float]] = {}
    for times in found:
        for (_, before), (name, after) in pairwise(times):
            seconds.setdefault(name, []).append((after - before).total_seconds())
        seconds.setdefault("whole way", []).append((times[-1][1] - times[0][1]).total_seconds())
    return {
        name: {
            "mean_seconds": round(statistics.fmean(each), 2),
            "median_seconds": statistics.median(each),
            "p99_seconds": sorted(each)[min(len(each) - 1, int(0.99 * len(each)))],
        }
        for name, each in seconds.items()
    }


def listed(cluster: Cluster, resource: ResourceType, namespace: str) -> list[dict[str, Any]]:
    """The objects of a kind."""
    return cluster.objects.list(resource, namespace=namespace)[0]


def created(body: Object) -> datetime:
    """When an object was created."""
    return time_of(body["metadata"]["creationTimestamp"])


def changed(body: Object, kind: str) -> datetime | None:
    """When a condition of an object became True; None if it is not."""
    conditions = body.get("status", {}).get("conditions", [])
    return next(
        (
            time_of(each["lastTransitionTime"])
            for each in conditions
            if each["type"] == kind and each["status"] == "True"
        ),
        None,
    )


def time_of(text: str) -> datetime:
    """A time that an object states, which some state with fractions of seconds."""
    return datetime.fromisoformat(text).replace(microsecond=0)
