"""Workloads of a hostile namespace whose statuses change hundreds of times a second, beside a victim's job."""

import itertools
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from kubernetes.dynamic import DynamicClient

from support.control_plane.commands import ClusterCommand
from support.control_plane.driven_job import first_of
from support.control_plane.fixtures import MakeJob, Operators, Send
from support.control_plane.job_manifest import job_manifest
from support.control_plane.objects import JOB
from support.control_plane.operator_process import OperatorProcess
from support.control_plane.pod_runner import PodRunner
from support.control_plane.victims import assert_works, await_reached
from support.control_plane.waiting import wait_until
from wattloop_operator.domain.names import JobKey

JOBS = 4
LONG_MESSAGE = "x" * 30_000
QUEUE = {"kueue.x-k8s.io/queue-name": "team"}


def requests_of(operator: OperatorProcess) -> dict[str, float]:
    """The operator's requests to the API server so far, by method and resource."""
    found: dict[str, float] = {}
    for line in httpx.get(f"{operator.url_of('metrics')}/metrics", timeout=60.0).text.splitlines():
        if line.startswith("wattloop_operator_api_requests_total{"):
            labels, count = line.rsplit(" ", 1)
            parts = dict(each.split("=") for each in labels.partition("{")[2].rstrip("}").split(","))
            name = f"{parts['method']} {parts['resource']}".replace('"', "")
            found[name] = found.get(name, 0.0) + float(count)
    return found


@pytest.mark.exhaustive
@pytest.mark.parametrize("labels", [QUEUE, {}])
@pytest.mark.timeout(900)
def test_statuses_that_change_hundreds_of_times_a_second_delay_no_other_namespace(
    labels: dict[str, str],
    operators: Operators,
    make_job: MakeJob,
    other: str,
    send: Send,
    kubectl: ClusterCommand,
    pod_runner: PodRunner,
    cluster: DynamicClient,
) -> None:
    operator = operators()()
    template = job_manifest()["spec"]["template"]
    spec = template["spec"] | ({"suspend": True} if labels else {})
    hostile = [JobKey(other, f"hostile-{number}") for number in range(JOBS)]
    for key in hostile:
        manifest = job_manifest(key.name, template={"metadata": {"labels": labels}, "spec": spec})
        kubectl.apply(manifest, namespace=other)
    wait_until(cluster, JOB, lambda jobs: len(jobs) == JOBS, "the hostile runs", namespace=other)  # fmt: skip

    runs = itertools.count(1)

    def seconds_of_a_run() -> float:
        number = next(runs)
        began = time.monotonic()
        victim = make_job(runRequest=f"run-{number}")
        await_reached(cluster, victim, number)
        return time.monotonic() - began

    seconds_of_a_run()
    alone = seconds_of_a_run()
    stopping, writes = threading.Event(), itertools.count()

    def flap(key: JobKey) -> None:
        path = f"/apis/batch/v1/namespaces/{other}/jobs/{first_of(key)}/status"
        for number in itertools.count():
            if stopping.is_set():
                return
            condition = {"type": "Flapping", "status": str(number % 2 == 0), "message": f"{number} {LONG_MESSAGE}"}
            body: dict[str, Any] = {"status": {"conditions": [condition]}}
            send("PATCH", path, "application/strategic-merge-patch+json", json.dumps(body).encode())
            next(writes)

    before, began = requests_of(operator), time.monotonic()
    with ThreadPoolExecutor(JOBS) as threads:
        flapping = [threads.submit(flap, key) for key in hostile]
        try:
            beside = seconds_of_a_run()
        finally:
            stopping.set()
        for each in flapping:
            each.result()
    seconds, written = time.monotonic() - began, next(writes)
    made = {name: count - before.get(name, 0.0) for name, count in requests_of(operator).items()}
    made = {name: count for name, count in made.items() if count}
    print(
        f"a victim's run: {alone:.1f} s alone, {beside:.1f} s beside {written / seconds:.0f} changes a second; "
        f"the operator's requests in {seconds:.0f} s: {made}"
    )
    # Of what waits in a queue the reason is read once a second, whatever others write.
    assert made.get("GET workloads", 0) + made.get("GET discovery", 0) <= JOBS * (seconds + 2)
    assert sum(made.values()) < 100 + JOBS * (seconds + 2) + written / 4
    assert_works(operator)
