"""Time of one reconciliation pass over many jobs: `next_actions` alone, without reads and writes.

``python benchmarks/reconcile.py`` creates 10,000 jobs with 10 ended recurrences each. Most of them
are quiet: nothing is due, and nothing runs. For some (``--due-percent``), a start is due, so that
their policy makes a decision. The jobs are copies of one that was reconciled to this state, with
different uids.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from datetime import datetime
from pathlib import Path

from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.reconcile.next_actions import next_actions

# The in-memory backend of the tests.
sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from support.backends.model_backend import KEY, ModelBackend, job

RECURRENCES = 10
INTERVAL_SECONDS = 3600


def ran_job() -> tuple[Snapshot, datetime]:
    """A job after ten recurrences, and a time at which nothing is due."""
    backend = ModelBackend(job(trigger={"interval": {"seconds": INTERVAL_SECONDS}}))
    for _ in range(RECURRENCES):
        backend.advance(INTERVAL_SECONDS)
        backend.reconcile()
        (name,) = backend.running
        backend.run_workload(name)
        backend.report(name, metric=0.95, epoch=5, joules=5000.0, seconds=50.0, finished=True)
        backend.end_workload(name)
        backend.reconcile()
    backend.advance(60)
    backend.reconcile()
    snapshot = backend.snapshot(KEY)
    assert snapshot is not None
    return snapshot, backend.now


def copies(snapshot: Snapshot, count: int) -> list[Snapshot]:
    """Copies of a job with other uids."""

    def copy(uid: str) -> Snapshot:
        reference = snapshot.recurrences[0].spec.job_ref.model_copy(update={"uid": uid})
        return dataclasses.replace(
            snapshot,
            job=snapshot.job.model_copy(update={"metadata": snapshot.job.metadata.model_copy(update={"uid": uid})}),
            recurrences=tuple(
                each.model_copy(update={"spec": each.spec.model_copy(update={"job_ref": reference})})
                for each in snapshot.recurrences
            ),
            records=tuple(dataclasses.replace(record, job_uid=uid) for record in snapshot.records),
        )

    return [copy(f"job-{index}") for index in range(count)]


def pass_seconds(snapshots: list[Snapshot], now: datetime, *, acts: bool) -> float:
    """Seconds of one pass; checks whether the jobs have actions."""
    start = time.perf_counter()
    results = [next_actions(snapshot, now) for snapshot in snapshots]
    seconds = time.perf_counter() - start
    assert all(bool(result.actions) is acts for result in results)
    return seconds


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=10_000, metavar="N", help="number of jobs (default: 10000)")
    parser.add_argument("--due-percent", type=int, default=2, metavar="P", help="jobs with a start due (default: 2)")
    arguments = parser.parse_args()
    snapshot, quiet_at = ran_job()
    due_at = quiet_at.replace(hour=quiet_at.hour + 1)
    jobs = copies(snapshot, arguments.jobs)
    due = max(arguments.jobs * arguments.due_percent // 100, 1)
    pass_seconds(jobs[:10], quiet_at, acts=False)
    quiet_seconds = pass_seconds(jobs[due:], quiet_at, acts=False)
    due_seconds = pass_seconds(jobs[:due], due_at, acts=True)
    total = quiet_seconds + due_seconds
    quiet = len(jobs) - due
    ratio = due_seconds / due / (quiet_seconds / quiet)
    lines = [
        "| jobs | seconds | jobs per second | relative to a quiet job |",
        "|---|---:|---:|---:|",
        f"| {quiet:,} quiet | {quiet_seconds:.2f} | {quiet / quiet_seconds:,.0f} | 1 |",
        f"| {due:,} with a start due | {due_seconds:.2f} | {due / due_seconds:,.0f} | {ratio:.1f} |",
        f"| {len(jobs):,}, one pass | {total:.2f} | {len(jobs) / total:,.0f} | |",
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
