"""Round trip of a report through the real reporting API on loopback, beside a bare FastAPI echo in the same run.

``python benchmarks/report.py`` prints the table. Both are served by uvicorn in a process of their own and asked by the
client's own `ReportChannel`, one report after another, a connection each, as a training process does. The API admits
the caller, checks the report, merges it and keeps it durably in SQLite before it answers; the echo parses JSON and
answers. So the ratio is what the API's own work costs, most of it the disk's.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import fields
from multiprocessing.connection import Connection
from pathlib import Path

import uvicorn
from fastapi import FastAPI, Request

from wattloop.messages import GpuEnergy, Report
from wattloop.reporting import ReportChannel

# The API with a store behind it, as its tests run it.
sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from support.reporting.reporting_api import running_api
from wattloop_operator.reporting.limits import ReportLimits, ReportRates
from wattloop_operator.reporting.rate_limiters import Rate

GPUS = 8
ECHO = "bare FastAPI echo"


def serve_api(folder: str, pipe: Connection) -> None:
    """Serve the API until the pipe closes."""
    without = Rate(per_second=1e6, burst=1e9)
    limits = ReportLimits(time.monotonic, ReportRates(*(without for _ in fields(ReportRates))))
    with running_api(Path(folder), limits) as api:
        name, token = api.recurrence()
        (Path(folder) / "token").write_text(token)
        pipe.send(api.path(name, last="").rstrip("/"))
        pipe.recv()


def serve_echo(_: str, pipe: Connection) -> None:
    """Serve the echo until the pipe closes."""
    app = FastAPI()

    @app.post("/progress")
    async def progress(request: Request) -> dict[str, bool]:
        await request.json()
        return {"stop": False}

    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, access_log=False, lifespan="off"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    pipe.send(f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}")
    pipe.recv()
    server.should_exit = True
    thread.join()


def report(sequence: int) -> Report:
    """The sequence-th report of a process with eight GPUs."""
    return Report(
        sequence=sequence,
        epoch=float(sequence),
        metric=0.5,
        evaluations=sequence,
        gpus=tuple(
            GpuEnergy(f"GPU-{index}", 5_000, 5_000 + 1_000_000 * sequence, 100.0, 100.0 + sequence)
            for index in range(GPUS)
        ),
        gpu_product="NVIDIA A100",
        max_power_limit_watts=400.0 * GPUS,
    )


def round_trips(url: str, token_file: Path, reports: list[Report]) -> list[float]:
    """Milliseconds of each."""
    channel = ReportChannel(url, str(token_file))
    times = []
    for each in reports:
        start = time.perf_counter()
        answer = channel.send(each)
        times.append(1000 * (time.perf_counter() - start))
        assert answer is not None, "not delivered; the reason is above"
    return times


def measured(serve: Callable[[str, Connection], None], folder: Path, rounds: list[list[Report]]) -> list[list[float]]:
    """The round trips of each round against one server."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(str(folder), theirs))
    process.start()
    try:
        url = ours.recv()
        return [round_trips(url, folder / "token", reports) for reports in rounds]
    finally:
        ours.send("end")
        process.join()


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reports", type=int, default=300, metavar="N", help="how many of each (default: 300)")
    arguments = parser.parse_args()
    count: int = arguments.reports
    warm = [report(sequence) for sequence in range(1, 11)]
    new = [report(sequence) for sequence in range(11, count + 11)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _, fresh, repeated = measured(serve_api, folder, [warm, new, [new[-1]] * count])
        _, echoed = measured(serve_echo, folder, [warm, new])
    lines = ["| round trip | median ms | 95th percentile ms | of the echo |", "|---|---:|---:|---:|"]
    base = statistics.median(echoed)
    for what, times in ((ECHO, echoed), ("API, a new report", fresh), ("API, a repeated report", repeated)):
        late = statistics.quantiles(times, n=20)[-1]
        middle = statistics.median(times)
        lines.append(f"| {what} | {middle:.2f} | {late:.2f} | {middle / base:.1f} |")
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
