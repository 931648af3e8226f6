"""Round trip of a report through the reporting API on the loopback interface, and through a bare FastAPI echo.

``python benchmarks/report.py`` prints the table. Each is served in a process of its own, the echo by uvicorn. The
client's `ReportChannel` sends one report after another, with one connection each, as a training process does. The API
authenticates the caller, validates and merges the report, and stores it durably in SQLite before it responds. The
echo parses JSON and responds. The ratio is the cost of the API's own work, most of it disk writes.
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

from wattloop.run.report_channel import ReportChannel
from wattloop.wire.training_messages import GpuEnergy, Report

# The API with a store, as in its tests.
sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from support.reporting.reporting_api import running_api
from wattloop_operator.reporting.report_limits import Rate, ReportLimits, ReportRates

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
        process="first",
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
    """Milliseconds of each report."""
    channel = ReportChannel(url, str(token_file))
    times = []
    for each in reports:
        start = time.perf_counter()
        response = channel.send(each)
        times.append(1000 * (time.perf_counter() - start))
        assert response is not None, "not delivered; see the warning above"
    return times


def measured(serve: Callable[[str, Connection], None], folder: Path, rounds: list[list[Report]]) -> list[list[float]]:
    """The round trips of each list of reports with one server."""
    pipe, server_pipe = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(str(folder), server_pipe))
    process.start()
    try:
        url = pipe.recv()
        return [round_trips(url, folder / "token", reports) for reports in rounds]
    finally:
        pipe.send("end")
        process.join()


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reports", type=int, default=300, metavar="N", help="reports of each kind (default: 300)")
    arguments = parser.parse_args()
    count: int = arguments.reports
    warm = [report(sequence) for sequence in range(1, 11)]
    new = [report(sequence) for sequence in range(11, count + 11)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _, fresh, repeated = measured(serve_api, folder, [warm, new, [new[-1]] * count])
        _, echoed = measured(serve_echo, folder, [warm, new])
    lines = ["| round trip | median ms | 95th percentile ms | relative to the echo |", "|---|---:|---:|---:|"]
    base = statistics.median(echoed)
    for what, times in ((ECHO, echoed), ("API, a new report", fresh), ("API, a repeated report", repeated)):
        late = statistics.quantiles(times, n=20)[-1]
        middle = statistics.median(times)
        lines.append(f"| {what} | {middle:.2f} | {late:.2f} | {middle / base:.1f} |")
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
