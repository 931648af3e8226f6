"""Time of the live page with 1,000 jobs and 10,000 recurrences, and of a bare FastAPI page in the same run.

``python benchmarks/live_page.py`` prints the tables. All are served by the same server in this process; the bare page
is a constant of the same size. The wall time of one request after another is measured, after one that is not counted,
and the processor time of the process for each, the client's part included. Of a cluster, the API server's answers are
constants, too: 1,000 jobs with ten recurrences each, in lists of the size that the page asks for.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from fastapi import FastAPI
from fastapi.responses import HTMLResponse

# The database and the server of the page's tests.
sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from support.databases.many_jobs import LONGEST, NAMESPACE, job_body, make_database, running_recurrence
from support.live_page import serving, serving_source
from wattloop.commands.settings import Address
from wattloop_operator.cluster.api import RECURRING_TRAINING_JOBS, TRAINING_RECURRENCES, ClusterApi
from wattloop_operator.cluster.api_transport import Request
from wattloop_operator.http.http_service import HttpService
from wattloop_operator.page.cluster_jobs import ClusterJobs
from wattloop_operator.page.cluster_reader import MAX_AGE_SECONDS, ClusterReader

JOBS, RECURRENCES, RECURRENCES_OF_JOB, REQUESTS = 1_000, 10_000, 10, 100
JOB = urlencode({"namespace": NAMESPACE, "name": LONGEST})


class Lists:
    """A transport to an API server whose lists are constants."""

    def __init__(self) -> None:
        names = [f"job-{number:04}" for number in range(JOBS)]
        recurrences = (recurrence(name, index) for name in names for index in range(RECURRENCES_OF_JOB))
        self._items = {
            RECURRING_TRAINING_JOBS.path(): [versioned(job_body(name)) for name in names],
            TRAINING_RECURRENCES.path(): list(map(versioned, recurrences)),
        }
        self._answers: dict[tuple[str, int], bytes] = {}

    def __call__(self, request: Request) -> dict[str, Any]:
        """Answer a request for a list."""
        first, limit = int(request.query.get("continue", 0)), int(request.query["limit"])
        key = request.path, first
        if key not in self._answers:
            items = self._items[request.path]
            following = str(first + limit) if first + limit < len(items) else ""
            body = {"metadata": {"resourceVersion": "1", "continue": following}, "items": items[first : first + limit]}
            self._answers[key] = json.dumps(body, separators=(",", ":")).encode()
        answer: dict[str, Any] = request.parse(self._answers[key])
        return answer


def versioned(body: dict[str, Any]) -> dict[str, Any]:
    """An object as an API server has it."""
    body["metadata"]["resourceVersion"] = "1"
    return body


def recurrence(job: str, index: int) -> dict[str, Any]:
    """A recurrence of a job, the first of which runs."""
    body = running_recurrence(job)
    body["metadata"] |= {"name": f"{job}-{index}", "uid": f"{job}-{index}"}
    body["status"] |= {"result": "Reached"} if index else {}
    return body


def get(url: str) -> bytes:
    """The body of a response."""
    with urllib.request.urlopen(url, timeout=120) as answer:
        body: bytes = answer.read()
    return body


def measured(call: Callable[[], object], requests: int = REQUESTS) -> tuple[float, float, float]:
    """Median and 99th percentile of the wall time, and mean processor time of a call, in milliseconds."""
    call()
    walls, begun = [], time.process_time()
    for _ in range(requests):
        start = time.perf_counter()
        call()
        walls.append(1e3 * (time.perf_counter() - start))
    cpu = 1e3 * (time.process_time() - begun) / requests
    return statistics.median(walls), statistics.quantiles(walls, n=100, method="inclusive")[98], cpu


@contextlib.contextmanager
def bare_page(size: int) -> Iterator[str]:
    """Serve a constant of this many bytes; gives its URL."""
    app = FastAPI()

    @app.get("/")
    def page() -> HTMLResponse:
        return HTMLResponse("x" * size)

    with HttpService("bare", app, Address("127.0.0.1", 0)) as bare:
        yield bare.url


def of_database() -> Iterator[tuple[str, tuple[float, float, float]]]:
    """Measure the pages of a database."""
    with (
        tempfile.TemporaryDirectory() as folder,
        make_database(Path(folder) / "w.db", JOBS, RECURRENCES) as store,
        serving(store) as url,
    ):
        with bare_page(len(get(url))) as bare:
            yield "a bare FastAPI page", measured(lambda: get(bare))
        changes = itertools.count()

        def get_after_change() -> None:
            store.objects.create("TrainingRecurrence", NAMESPACE, f"change-{next(changes)}", {})
            get(url)

        yield f"the first of {JOBS:,} jobs, after a change", measured(get_after_change)
        yield "the same, without one", measured(lambda: get(url))
        yield f"a job with {RECURRENCES:,} recurrences", measured(lambda: get(f"{url}/job?{JOB}"))


def of_cluster() -> Iterator[tuple[str, tuple[float, float, float]]]:
    """Measure the first page of a cluster: while its objects are read again every 3 s, and when a page waits for it."""
    name, lists = f"the first of {JOBS:,} jobs of a cluster", Lists()
    with serving_source(ClusterJobs(ClusterReader(ClusterApi(lists), "benchmark"))) as url:
        yield name, measured(lambda: get(url))
    now = [0.0]
    unread = ClusterJobs(ClusterReader(ClusterApi(lists), "benchmark", clock=lambda: now[0]))
    with serving_source(unread) as url:

        def get_late() -> None:
            now[0] += MAX_AGE_SECONDS
            get(url)

        yield "the same, which nobody has open", measured(get_late, 20)


def main() -> None:
    """Print the table."""
    print("| view | median ms | p99 ms | CPU ms |\n|---|---:|---:|---:|")
    for name, (wall, late, cpu) in itertools.chain(of_database(), of_cluster()):
        print(f"| {name} | {wall:.1f} | {late:.1f} | {cpu:.1f} |", flush=True)


if __name__ == "__main__":
    main()
