"""Time of the live page with 1,000 jobs and 10,000 recurrences, and of a bare FastAPI page in the same run.

``python benchmarks/live_page.py`` prints the table. Both are served by the same server in this process; the bare
page is a constant of the same size. The wall time of one request after another is measured, after one that is not
counted, and the processor time of the process for each, the client's part included.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlencode

from fastapi import FastAPI
from fastapi.responses import HTMLResponse

# The database and the server of the page's tests.
sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from support.databases.many_jobs import LONGEST, NAMESPACE, make_database
from support.live_page import serving
from wattloop.commands.settings import Address
from wattloop_operator.http.http_service import HttpService

JOBS, RECURRENCES, REQUESTS = 1_000, 10_000, 30
JOB = urlencode({"namespace": NAMESPACE, "name": LONGEST})


def get(url: str) -> bytes:
    """The body of a response."""
    with urllib.request.urlopen(url, timeout=120) as answer:
        body: bytes = answer.read()
    return body


def measured(call: Callable[[], object]) -> tuple[float, float]:
    """Median wall and mean processor time of a call, in milliseconds."""
    call()
    walls, begun = [], time.process_time()
    for _ in range(REQUESTS):
        start = time.perf_counter()
        call()
        walls.append(1e3 * (time.perf_counter() - start))
    return statistics.median(walls), 1e3 * (time.process_time() - begun) / REQUESTS


def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as folder, make_database(Path(folder) / "w.db", JOBS, RECURRENCES) as store:
        with serving(store) as url:
            size = len(get(url))
            rows = {
                f"the first of {JOBS:,} jobs": measured(lambda: get(url)),
                f"a job with {RECURRENCES:,} recurrences": measured(lambda: get(f"{url}/job?{JOB}")),
            }
        app = FastAPI()

        @app.get("/")
        def page() -> HTMLResponse:
            return HTMLResponse("x" * size)

        with HttpService("bare", app, Address("127.0.0.1", 0)) as bare:
            base = measured(lambda: get(bare.url))
    print("| view | median ms | CPU ms | relative to the bare page |\n|---|---:|---:|---:|")
    for name, (wall, cpu) in {"bare FastAPI page": base, **rows}.items():
        print(f"| {name} | {wall:.1f} | {cpu:.1f} | {wall / base[0]:.1f} |")


if __name__ == "__main__":
    main()
