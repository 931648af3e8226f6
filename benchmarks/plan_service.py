"""A thousand ranks register with the plan service at once, and then report.

``python benchmarks/plan_service.py`` prints the table. The reporting API is served in a process of its own, on a
database in SQLite, or on the PostgreSQL server of ``--database URL``; ``--postgresql`` measures a durable server of its
own after SQLite. In the same run a bare server, of the same libraries and without Wattloop's work, answers the same
requests in the same instant: no process in Python answers faster by them. The clients are connections of one other
process, which has its requests ready. Each rank opens a connection, registers, and gets an answer once the
registration is durable. Ranks of a real job start within seconds of each other; the first rows
spread the registrations over such times, the last one sends all in the same instant. A row states the largest waiting
time beside p50 and p99, the time until the last rank is answered, and the server's CPU time for each.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import sys
import tempfile
import time
from dataclasses import fields
from multiprocessing.connection import Connection
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
from fastapi import FastAPI, Request, Response

# The API with a store, as in its tests.
sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from support.databases.postgresql_server import postgresql_programs, running_postgresql
from support.pipelines.registrations import rank_registration
from support.reporting.reporting_api import running_api
from wattloop.commands.settings import Address
from wattloop.pipeline.plan_messages import Directive, RankRegistration, RankReport
from wattloop_operator.http.http_service import HttpService
from wattloop_operator.reporting.report_limits import CLUSTER_RATES, Rate, ReportLimits, ReportRates

SPREADS_SECONDS = (10.0, 4.0, 2.0, 1.0, 0.0)
STAGES, MICROBATCHES = 8, 32
CPU = "CPU seconds of the server"
BARE_ANSWER = json.dumps(Directive(reason="of 1000 ranks, rank 1 has not registered").to_json()).encode()


def serve(folder: str, database: str | None, runs: int, pipe: Connection) -> None:
    """Serve the API until the pipe closes."""
    # All ranks have one token here, and in a cluster one for each pod.
    without = Rate(per_second=1e6, burst=1e9)
    rates = {field.name: getattr(CLUSTER_RATES, field.name) for field in fields(ReportRates)} | {"token": without}
    with running_api(Path(folder), ReportLimits(time.monotonic, ReportRates(**rates)), database=database) as api:
        for _ in range(runs):
            name, token = api.recurrence()
            pipe.send((api.url, f"/v1/namespaces/team/recurrences/{name}/pipeline/ranks", token))
        while pipe.recv() == CPU:
            pipe.send(time.process_time())


def serve_bare(pipe: Connection) -> None:
    """Serve a FastAPI application that reads the body and answers, until the pipe closes."""
    app = FastAPI()

    @app.put("/v1/namespaces/{namespace}/recurrences/{name}/pipeline/ranks/{rank}")
    async def register(namespace: str, name: str, rank: int, request: Request) -> Response:  # noqa: ARG001
        await request.body()
        return Response(BARE_ANSWER, media_type="application/json")

    server = HttpService("bare", app, Address("127.0.0.1", 0))
    server.start()
    pipe.send((server.url, "/v1/namespaces/team/recurrences/bare/pipeline/ranks", "token"))
    while pipe.recv() == CPU:
        pipe.send(time.process_time())
    server.stop()


def request(method: str, path: str, token: str, body: object) -> bytes:
    """The bytes of a request."""
    data = json.dumps(body).encode()
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + data


async def answered(host: str, port: int, message: bytes, delay_seconds: float) -> tuple[float, int]:
    """Milliseconds until the answer, and its status."""
    await asyncio.sleep(delay_seconds)
    begin = time.perf_counter()
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(message)
    answer = await reader.read()
    writer.close()
    return 1000 * (time.perf_counter() - begin), int(answer[9:12] or b"0")


async def all_answered(url: str, messages: list[bytes], spread_seconds: float) -> tuple[list[float], list[int], float]:
    """Milliseconds and status of each message, and the seconds until the last answer."""
    address = urlsplit(url)
    delays = np.random.default_rng(0).uniform(0, spread_seconds, len(messages))
    begin = time.perf_counter()
    tasks = (
        answered(address.hostname or "", address.port or 0, message, delay)
        for message, delay in zip(messages, delays.tolist(), strict=True)
    )
    found = await asyncio.gather(*tasks)
    return [each for each, _ in found], [status for _, status in found], time.perf_counter() - begin


def show(pipe: Connection, what: str, url: str, messages: list[bytes], spread_seconds: float) -> None:
    """Send messages and print a row."""
    begin = cpu_seconds(pipe)
    times, statuses, total_seconds = asyncio.run(all_answered(url, messages, spread_seconds))
    used = 1000 * (cpu_seconds(pipe) - begin) / len(messages)
    p50, p99, most = np.percentile(times, [50, 99, 100])
    good = sum(status == 200 for status in statuses)
    print(
        f"{what:<40} {good:>5}/{len(statuses)} {p50:>8.1f} {p99:>8.1f} {most:>8.1f} {total_seconds:>8.2f} {used:>8.2f}",
        flush=True,
    )


def cpu_seconds(pipe: Connection) -> float:
    """CPU time of the server since its start."""
    pipe.send(CPU)
    seconds: float = pipe.recv()
    return seconds


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=1_000, metavar="N", help="number of ranks (default: 1000)")
    parser.add_argument("--database", metavar="URL", help="database (default: a SQLite file)")
    parser.add_argument("--postgresql", action="store_true", help="measure PostgreSQL after SQLite")
    arguments = parser.parse_args()
    shape = {"stages": STAGES, "microbatches": MICROBATCHES, "data_parallel": arguments.ranks // STAGES}
    registrations = [rank_registration(rank, **shape) for rank in range(shape["data_parallel"] * STAGES)]
    print(f"{'':<40} {'answers':>10} {'p50 ms':>8} {'p99 ms':>8} {'max ms':>8} {'all s':>8} {'CPU ms':>8}")
    measure_bare(registrations)
    measure(registrations, arguments.database)
    if arguments.postgresql:
        with running_postgresql(postgresql_programs(), durable=True) as server:
            print("PostgreSQL")
            measure(registrations, server.new_database())
    return 0


def measure_bare(registrations: list[RankRegistration]) -> None:
    """Send the registrations to a bare server."""
    pipe, server_pipe = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve_bare, args=(server_pipe,))
    process.start()
    try:
        url, path, token = pipe.recv()
        puts = [request("PUT", f"{path}/{each.rank}", token, each.to_json()) for each in registrations]
        for what in ("bare server, to warm up", "bare server, in the same instant"):
            show(pipe, what, url, puts, 0.0)
    finally:
        pipe.send("end")
        process.join()


def measure(registrations: list[RankRegistration], database: str | None) -> None:
    """Register the ranks over each time, and have them report."""
    with tempfile.TemporaryDirectory() as folder:
        pipe, server_pipe = multiprocessing.Pipe()
        target = (folder, database, len(SPREADS_SECONDS), server_pipe)
        process = multiprocessing.get_context("spawn").Process(target=serve, args=target)
        process.start()
        try:
            pipelines = [pipe.recv() for _ in SPREADS_SECONDS]
            for spread, (url, path, token) in zip(SPREADS_SECONDS, pipelines, strict=True):
                puts = [request("PUT", f"{path}/{each.rank}", token, each.to_json()) for each in registrations]
                show(pipe, f"registrations within {spread:g} s", url, puts, spread)
            reports = [
                request("POST", f"{path}/{each.rank}/report", token, RankReport(each.process, 1, 0, 9).to_json())
                for each in registrations
            ]
            show(pipe, "reports within 20 s", url, reports, 20.0)
        finally:
            pipe.send("end")
            process.join()


if __name__ == "__main__":
    sys.exit(main())
