"""Time of one reconciliation pass over many jobs: `next_actions` alone; of a decision and of a review.

``python benchmarks/reconcile.py`` creates 10,000 jobs with 10 ended recurrences each. Most of them
are quiet: nothing is due, and nothing runs. For some (``--due-percent``), a start is due, so that
their policy makes a decision. The jobs are copies of one that was reconciled to this state, with
different uids.

A decision and a review are measured for jobs with 20 arms and 100 or 1,000 observations, each with a
curve of 64 points, the most that are kept of a curve. They include everything but the read of the
snapshot. "Nothing kept" is the first one of an operator, which computes everything from the records.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import statistics
import sys
import time
from datetime import datetime
from pathlib import Path

from wattloop_operator.api.batch_size import DecisionKind
from wattloop_operator.api.curve_field import MAX_CURVE_POINTS
from wattloop_operator.domain.records import ObservationRecord
from wattloop_operator.domain.snapshot import PolicyCache, Snapshot
from wattloop_operator.reconcile.attempt.early_stop import review_cost_limit
from wattloop_operator.reconcile.attempt.report_effect import progress_after
from wattloop_operator.reconcile.learning.decision import Attempt, decide
from wattloop_operator.reconcile.next_actions import next_actions
from wattloop_planner.metric_curve import MetricCurve

# The in-memory backend of the tests.
sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from support.backends.curved_runs import TARGET, curved_records, metric_after
from support.backends.model_backend import KEY, ModelBackend, job
from support.backends.sample_reports import report

RECURRENCES = 10
INTERVAL_SECONDS = 3600
ROUNDS = 20
ARMS = tuple(2**power for power in range(3, 23))


def ran_job() -> tuple[Snapshot, datetime]:
    """A job after ten recurrences, and a time at which nothing is due."""
    backend = ModelBackend(job())
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


def learning_job(observations: int) -> ModelBackend:
    """A job with 20 arms and this number of observations, each with a curve of as many points as are kept."""
    backend = ModelBackend(
        job(
            objective={"target": TARGET, "maxEpochs": 50},
            batchSize={"default": 64, "candidates": list(ARMS)},
            power={"mode": "None"},
        )
    )
    points = range(1, MAX_CURVE_POINTS + 1)
    metrics = tuple(metric_after(each, MAX_CURVE_POINTS) for each in points)
    runs = itertools.cycle(curved_records("job-uid", KEY.namespace, KEY.name))
    backend.records = {
        (index, 0): dataclasses.replace(
            run,
            recurrence=index,
            recurrence_name=f"digits-{index}",
            batch_size=ARMS[index % len(ARMS)] if index % 2 else run.batch_size,
            curve=MetricCurve(tuple(run.epochs * each / MAX_CURVE_POINTS for each in points), metrics),
        )
        for index, run in zip(range(observations), runs, strict=False)
    }
    return backend


def decision_milliseconds(observations: int, *, kept: bool) -> float:
    """Median CPU time of a decision, one observation after the previous.

    Args:
        observations: Number of observations at the last decision.
        kept: Whether the operator keeps what follows from earlier observations, as it does.
    """
    backend = learning_job(observations)
    records, seconds = backend.records, []
    for count in range(observations - ROUNDS, observations + 1):
        backend.records = {key: as_read(record, kept) for key, record in records.items() if key[0] < count}
        snapshot = read(backend, kept)
        start = time.process_time()
        decide(snapshot, Attempt(count, 0, "slot", backend.now))
        seconds.append(time.process_time() - start)
    return 1000 * statistics.median(seconds[1:])


def review_milliseconds(observations: int, *, kept: bool) -> float:
    """Median CPU time of a review of a trial; the arguments are those of `decision_milliseconds`."""
    backend = learning_job(observations)
    decided = decide(read(backend, kept), Attempt(observations, 0, "slot", backend.now))
    decision = decided.spec.decision.model_copy(update={"kind": DecisionKind.TRIAL})
    trial = decided.model_copy(
        update={"spec": decided.spec.model_copy(update={"batch_size": 128, "decision": decision})}
    )
    progress = progress_after(trial, report(epoch=1, metric=0.1, joules=2000.0, seconds=10.0))
    seconds = []
    for _ in range(ROUNDS):
        backend.records = {key: as_read(record, kept) for key, record in backend.records.items()}
        snapshot = read(backend, kept)
        start = time.process_time()
        reviewed = review_cost_limit(lambda of_job=snapshot: of_job, trial, progress)
        seconds.append(time.process_time() - start)
        assert reviewed.reviewed_epoch == 1
    return 1000 * statistics.median(seconds)


def as_read(record: ObservationRecord, kept: bool) -> ObservationRecord:
    """The record in the store cache or, if nothing is kept, a new one."""
    return record if kept else dataclasses.replace(record)


def read(backend: ModelBackend, kept: bool) -> Snapshot:
    """The snapshot of the job."""
    snapshot = backend.snapshot(KEY)
    assert snapshot is not None
    return snapshot if kept else dataclasses.replace(snapshot, policies=PolicyCache())


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
        "",
        "| observations | work | CPU milliseconds, nothing kept | CPU milliseconds |",
        "|---:|---|---:|---:|",
        *(
            f"| {count:,} | {name} | {measure(count, kept=False):.1f} | {measure(count, kept=True):.1f} |"
            for count in (100, 1_000)
            for name, measure in (("decision", decision_milliseconds), ("review", review_milliseconds))
        ),
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
