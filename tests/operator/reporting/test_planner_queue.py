"""Each profile is planned once, by one replica, and no job or namespace keeps the planner from the others."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from support.pipelines.registrations import rank_registration
from wattloop_operator.reconcile.pipeline.pipeline_state import PipelineFrontier, PipelineKey, PipelineState
from wattloop_operator.reconcile.pipeline.profile import PlanningRequest
from wattloop_operator.reconcile.pipeline.registrations import PipelineWork, Registrar
from wattloop_operator.reporting.planner_queue import CLAIM_SECONDS, PlannerQueue, PlanningTask
from wattloop_operator.store import Store, open_store

START = datetime(2026, 3, 1, 12, tzinfo=UTC)


@dataclass
class Time:
    """Virtual time of all replicas."""

    seconds: float = 0.0

    def clock(self) -> float:
        return self.seconds

    def utc_now(self) -> datetime:
        return START + timedelta(seconds=self.seconds)


@dataclass
class Replica:
    """A replica whose planner runs when the test says so, for as long as it says."""

    store: Store
    time: Time
    plan_seconds: float = 1.0
    planned: list[str] = field(default_factory=list)
    during_plan: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self.due: list[Callable[[], None]] = []
        self.queue = PlannerQueue(
            self.plan, self.store.pipelines, self.time.utc_now, self.time.clock, start=self.due.append
        )

    def plan(self, request: PlanningRequest, _now: datetime) -> PipelineFrontier:
        self.planned.append(request.profile_digest)
        self.time.seconds += self.plan_seconds
        self.during_plan()
        return PipelineFrontier(request.profile_digest)

    def offer(self, digest: str, *, profile: int = 1, namespace: str = "team", job: str = "job") -> None:
        def deliver(frontier: PipelineFrontier) -> None:
            self.queue.delivered(frontier.profile_digest)

        request = PlanningRequest(digest, (), (), ())
        self.queue.offer(PlanningTask(namespace, job, profile, request, deliver))

    def run(self, tasks: int | None = None) -> None:
        for _ in range(len(self.due) if tasks is None else tasks):
            self.due.pop(0)()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "wattloop.db") as opened:
        for number in range(1, 5):
            with_profile(opened, number)
        yield opened


def with_profile(store: Store, number: int) -> int:
    """Store a pipeline with a profile; returns the profile's id."""
    new = PipelineState(PipelineKey(f"uid-{number}", 0, 0), "team", f"bert-{number}-0")

    def registered(state: PipelineState) -> PipelineState:
        registrar = Registrar(state, PipelineWork(64), START)
        registrar.merge(rank_registration(0))
        return registrar.state

    known = store.pipelines.change(new, None, registered, lambda state: state, START)
    assert known.profile_id == number
    return number


def test_of_two_replicas_one_plans(store: Store) -> None:
    time = Time()
    first, second = Replica(store, time), Replica(store, time)

    def second_sees_it_too() -> None:
        second.offer("d1")
        second.run()

    first.during_plan = second_sees_it_too
    first.offer("d1")
    first.run()
    assert (first.planned, second.planned) == (["d1"], [])
    assert second.queue.knows("job", "d1")


def test_the_other_replica_plans_once_the_claim_of_one_that_died_has_expired(store: Store) -> None:
    time = Time()
    second = Replica(store, time)

    def dies() -> None:
        raise SystemExit

    first = Replica(store, time, during_plan=dies)
    first.offer("d1")
    with pytest.raises(SystemExit):
        first.run()
    second.offer("d1")
    second.run()
    time.seconds += CLAIM_SECONDS - 2
    second.offer("d1")
    second.run()
    assert second.planned == []
    time.seconds += 2
    second.offer("d1")
    second.run()
    assert second.planned == ["d1"]


def test_a_replica_that_ends_leaves_its_profile_to_the_other_at_once(store: Store) -> None:
    time = Time()
    first, second = Replica(store, time), Replica(store, time)
    first.during_plan = first.queue.close
    first.offer("d1")
    first.run()
    second.offer("d1")
    second.run()
    assert second.planned == ["d1"]


def test_a_profile_is_planned_again_only_after_its_frontier_was_stored_or_lost(store: Store) -> None:
    replica, delivered = Replica(store, Time()), list[PipelineFrontier]()
    task = PlanningTask("team", "job", 1, PlanningRequest("d1", (), (), ()), delivered.append)
    replica.queue.offer(task)
    replica.run()
    replica.queue.offer(task)
    assert (len(delivered), replica.due) == (1, [])
    replica.queue.delivered("d1")
    replica.queue.offer(task)
    replica.run()
    assert len(delivered) == 2


def test_a_job_that_changes_its_profile_without_end_waits_behind_the_others(store: Store) -> None:
    replica = Replica(store, Time(), plan_seconds=300.0)
    replica.offer("hostile-0", job="hostile")
    replica.run()
    for number in range(1, 20):
        replica.offer(f"hostile-{number}", job="hostile")
    replica.offer("other", profile=2, namespace="else", job="other")
    replica.offer("same namespace", profile=3, job="neighbour")
    replica.run(3)
    # Of a job the newest profile waits alone, and behind those that had less of the planner's time.
    assert replica.planned == ["hostile-0", "other", "same namespace", "hostile-19"]


def test_a_failed_plan_does_not_keep_the_next_one_from_running(store: Store) -> None:
    replica = Replica(store, Time())

    def fails() -> None:
        raise ValueError("a defect")

    replica.during_plan = fails
    replica.offer("d1")
    replica.run()
    replica.during_plan = lambda: None
    replica.offer("d2")
    replica.run()
    assert replica.planned == ["d1", "d2"]


PLANS_WITHOUT_END = """
import sys, threading
from datetime import UTC, datetime
from wattloop_operator.reconcile.pipeline.profile import PlanningRequest
from wattloop_operator.reporting.planner_queue import PlannerQueue, PlanningTask
from wattloop_operator.store import open_store

def plan(request, now):
    print("plans", flush=True)
    threading.Event().wait()

with open_store(sys.argv[1]) as store:
    queue = PlannerQueue(plan, store.pipelines, lambda: datetime.fromisoformat(sys.argv[2]))
    queue.offer(PlanningTask("team", "job", 1, PlanningRequest("d1", (), (), ()), lambda frontier: None))
    threading.Event().wait()
"""


@pytest.mark.processes
def test_another_replica_takes_over_from_one_that_was_killed_while_it_planned(tmp_path: Path, store: Store) -> None:
    command = [sys.executable, "-c", PLANS_WITHOUT_END, f"sqlite:///{tmp_path / 'wattloop.db'}", START.isoformat()]
    owner = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"plans\n"
    finally:
        owner.kill()
        owner.communicate()
    time = Time()
    other = Replica(store, time)
    other.offer("d1")
    other.run()
    assert other.planned == []
    time.seconds = CLAIM_SECONDS
    other.offer("d1")
    other.run()
    assert other.planned == ["d1"]
    assert not [thread for thread in threading.enumerate() if thread.name == "pipeline-planner-claim"]
