"""An operator's process whose parts are filled at a time; see `tests/operator/test_memory_shares.py`.

It reads a line when the connections are open, and writes what its parts hold.
"""

import asyncio
import gc
import json
import resource
import sqlite3
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from starlette.applications import Starlette

from support.pipelines.registrations import instructions_of, rank_registration
from wattloop.commands.settings import Address
from wattloop.pipeline.plan_messages import InstructionMeasurement, RankReport
from wattloop_operator import operator_main
from wattloop_operator.http import http_connection
from wattloop_operator.http.certificates import ServingCertificate
from wattloop_operator.http.http_service import HttpService
from wattloop_operator.reconcile.pipeline.held_bytes import measurement_bytes, message_bytes, state_bytes
from wattloop_operator.reconcile.pipeline.pipeline_state import (
    MAX_PROFILE_MEASUREMENTS,
    PipelineKey,
    PipelineState,
    RankMeasurements,
)
from wattloop_operator.reconcile.pipeline.profile import PlanningRequest
from wattloop_operator.reporting.interfaces import TooManyRequestsError
from wattloop_operator.reporting.pipeline_commits import PipelineCommits, ReportOfRank
from wattloop_operator.reporting.plan_worker import planned_in_process
from wattloop_operator.store import open_store

SMALL, SMALL_PIPELINES, LARGEST = 10_000, 12, MAX_PROFILE_MEASUREMENTS - 1_000
STAGES, MICROBATCHES, CLOCKS = 16, 3_000, tuple(range(900, 932))
MESSAGE = 2_000
# In the long form, and in the short one.
PLANNER_SECONDS, BEGUN_SECONDS = 30.0, 2.0
FEW_CONNECTIONS = 100
RANKS = 4
REGISTRATIONS = [rank_registration(rank, data_parallel=RANKS // 2) for rank in range(RANKS)]


def measurements(
    count: int, stage: int = 0, clocks: Sequence[int] = range(1000, 3000)
) -> tuple[InstructionMeasurement, ...]:
    """So many measurements, of which no two share a number."""
    return tuple(
        InstructionMeasurement(
            "forward" if place // len(clocks) % 2 else "backward", stage + place // len(clocks) // 2,
            clocks[place % len(clocks)], 9 + place % 5,
            0.1 + place * 1e-6, 0.01 + place * 1e-7, 1.0 + place * 1e-6, 0.1
        )
        for place in range(count)
    )  # fmt: skip


def context_of(job: int) -> PipelineState:
    return PipelineState(PipelineKey(f"job-{job}", 0, 0), "team", f"job-{job}-0-0", 64)


def report_of(rank: int, sequence: int, measured: tuple[InstructionMeasurement, ...]) -> ReportOfRank:
    """A report of a rank's measurements."""
    return ReportOfRank(
        rank,
        RankReport(
            REGISTRATIONS[rank].process, sequence, sequence - 1, 9 * sequence,
            measured_iterations=9 * sequence, iteration_seconds=1.0, measurements=measured
        )
    )  # fmt: skip


async def measure(commits: PipelineCommits, context: PipelineState, count: int) -> None:
    """Register the ranks of a pipeline, and report their measurements."""
    for registration in REGISTRATIONS:
        await commits.committed(context, registration)
    # What is measured before all ranks are asked for it is not stored.
    for sequence, measured in ((1, ()), (2, measurements(count // RANKS))):
        for rank in range(RANKS):
            await commits.committed(context, report_of(rank, sequence, measured))


def largest_request(digest: str) -> PlanningRequest:
    """A profile at the bound of its measurements, of nearly as many instructions as a pipeline may have."""
    instructions = tuple(instructions_of(stage, STAGES, MICROBATCHES) for stage in range(STAGES))
    each, processes = 2 * len(CLOCKS), list[RankMeasurements]()
    while (len(processes) + 1) * each <= MAX_PROFILE_MEASUREMENTS:
        stage = len(processes) % STAGES
        measured = measurements(each, stage, CLOCKS)
        processes.append(RankMeasurements(len(processes), f"{len(processes):032x}", stage, True, 60.0, measured))
    return PlanningRequest(digest, instructions, CLOCKS, tuple(processes))


async def fill(commits: PipelineCommits, database: Path, planner_seconds: float) -> dict[str, int]:
    """Fill all parts; returns what they hold."""
    for job in range(1, SMALL_PIPELINES + 1):
        await commits.committed(context_of(job), report_of(0, 100, ()))
    remembered = sum(state_bytes(known.state) for known in commits._known.values())
    request = largest_request("digest")
    planned = asyncio.ensure_future(
        asyncio.to_thread(planned_in_process, request, datetime.now(UTC), max_seconds=planner_seconds)
    )
    with sqlite3.connect(database, isolation_level=None) as lock:
        lock.execute("BEGIN IMMEDIATE")
        waiting, answers = 0, [asyncio.ensure_future(commits.committed(context_of(0), report_of(0, 100, ())))]
        for sequence in range(101, 10_000):
            message = report_of(1, sequence, measurements(MESSAGE))
            answer = asyncio.ensure_future(commits.committed(context_of(1 + sequence % 4), message))
            answers.append(answer)
            await asyncio.sleep(0)
            if answer.done() and isinstance(answer.exception(), TooManyRequestsError):
                break
            waiting += message_bytes(message.report)
        lock.execute("ROLLBACK")
    lock.close()
    answered = await asyncio.gather(*answers, return_exceptions=True)
    await asyncio.wait_for(planned, 300)
    failed = sum(isinstance(each, Exception) for each in answered)
    return {
        "remembered": remembered,
        "waiting": waiting,
        "planned": measurement_bytes(request.processes),
        "failed": failed,
    }


def main() -> None:
    """Prepare the store, or fill an operator; see the module."""
    folder, database = Path(sys.argv[2]), Path(sys.argv[2]) / "wattloop.db"
    with open_store(database) as store, PipelineCommits(store.pipelines, lambda: datetime.now(UTC)) as commits:
        if sys.argv[1] == "prepare":
            asyncio.run(measure(commits, context_of(0), LARGEST))
            for job in range(1, SMALL_PIPELINES + 1):
                asyncio.run(measure(commits, context_of(job), SMALL))
            return
        assert operator_main, "an operator has imported all of its modules"
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        http_connection.REQUEST_SECONDS = 3600.0
        certificate = ServingCertificate(folder / "tls.crt", folder / "tls.key")
        service = HttpService("filled", Starlette(), Address("127.0.0.1", 0), certificate=certificate)
        service.start()
        is_long = sys.argv[3] == "long"
        print(service.address.port, 2 * service.max_concurrency if is_long else FEW_CONNECTIONS, flush=True)
        sys.stdin.readline()
        held = asyncio.run(fill(commits, database, PLANNER_SECONDS if is_long else BEGUN_SECONDS))
        print(json.dumps(held), flush=True)
        gc.collect()
        sys.stdin.readline()
        service.stop()


if __name__ == "__main__":
    main()
