"""Each profile is planned once, by the leader, and no job or namespace keeps the planner from the others."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from unittest import mock

import pytest

from support.pipelines.registrations import rank_registration
from wattloop_operator.reconcile.pipeline.pipeline_state import (
    GivenPlan,
    JobPlan,
    PipelineFrontier,
    PipelineKey,
    PipelineState,
)
from wattloop_operator.reconcile.pipeline.profile import PlanningRequest
from wattloop_operator.reconcile.pipeline.rank_directives import decided
from wattloop_operator.reconcile.pipeline.registrations import Registrar
from wattloop_operator.reporting import pipeline_planner
from wattloop_operator.reporting.pipeline_planner import REST_SECONDS, PipelinePlanner
from wattloop_operator.store import Store, open_store

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def context_of(job: str, digest: str, namespace: str = "team") -> PipelineState:
    """An attempt that runs a plan of its user, so that nothing is measured before it is planned."""
    plan = JobPlan(given=GivenPlan("mine", digest))
    return PipelineState(PipelineKey(job, 0, 0), namespace, f"{job}-0-0", job_plan=plan)


@dataclass
class Replica:
    """An operator whose planner runs when the test says so."""

    store: Store
    contexts: dict[str, PipelineState | None] = field(default_factory=dict)
    planned: list[str] = field(default_factory=list)
    during_plan: Callable[[], None] = lambda: None
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self.planner = PipelinePlanner(
            self.store.pipelines, self.plan, lambda _, name: self.contexts[name], lambda: NOW,
            clock=lambda: self.seconds,
        )  # fmt: skip

    def plan(self, request: PlanningRequest, _now: datetime) -> PipelineFrontier:
        self.planned.append(request.given.digest)
        self.during_plan()
        return PipelineFrontier(request.profile_digest)

    def waits(self, job: str, digest: str, namespace: str = "team") -> None:
        """Have a profile wait for the planner."""
        context = self.contexts[f"{job}-0-0"] = context_of(job, digest, namespace)

        def registered(state: PipelineState) -> PipelineState:
            registrar = Registrar(state, NOW)
            registrar.merge(rank_registration(0, stages=1))
            return registrar.state

        self.store.pipelines.change(context, None, registered, lambda state: decided(state, NOW), NOW)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "wattloop.db") as opened:
        yield opened


@pytest.fixture
def replica(store: Store) -> Replica:
    return Replica(store)


def test_a_profile_is_planned_once_and_its_frontier_is_stored(replica: Replica) -> None:
    replica.waits("job", "d1")
    assert replica.planner.plan_next()
    assert not replica.planner.plan_next()
    assert replica.planned == ["d1"]
    state = replica.store.pipelines.read(PipelineKey("job", 0, 0))
    assert state.frontier is not None
    assert not state.waits_for_plan


def test_a_replica_that_does_not_lead_plans_nothing(replica: Replica) -> None:
    replica.waits("job", "d1")
    asked, enough = list[None](), threading.Event()

    def leads() -> bool:
        asked.append(None)
        if len(asked) == 3:
            enough.set()
        return False

    planner = PipelinePlanner(
        replica.store.pipelines, replica.plan, lambda _, name: replica.contexts[name], lambda: NOW, leads=leads
    )
    with mock.patch.object(pipeline_planner, "POLL_SECONDS", 0.001), planner:
        assert enough.wait(30)
    assert replica.planned == []
    assert len(replica.store.pipelines.waiting(NOW)) == 1


def test_the_next_leader_plans_what_one_that_ended_has_begun(replica: Replica) -> None:
    replica.waits("job", "d1")
    replica.during_plan = lambda: replica.planner.__exit__(None, None, None)
    replica.planner.plan_next()
    other = Replica(replica.store, replica.contexts)
    assert other.planner.plan_next()
    assert other.planned == ["d1"]


def test_a_profile_that_changes_while_it_is_planned_is_planned_again(replica: Replica) -> None:
    replica.waits("job", "d1")
    replica.during_plan = lambda: replica.waits("job", "d2") if replica.planned == ["d1"] else None
    replica.planner.plan_next()
    # The next report says what the job wants now.
    replica.waits("job", "d2")
    assert replica.planner.plan_next()
    assert replica.planned == ["d1", "d2"]
    assert not replica.planner.plan_next()


def test_a_job_that_changes_its_profile_without_end_waits_behind_the_others(replica: Replica) -> None:
    replica.waits("hostile", "hostile-0")
    replica.planner.plan_next()
    for number in range(1, 20):
        replica.waits("hostile", f"hostile-{number}")
    replica.waits("other", "other", namespace="else")
    replica.waits("neighbour", "same namespace")
    replica.waits("hostile", "hostile-20")
    while replica.planner.plan_next():
        pass
    # Of a job the newest profile waits alone, and behind those whose turn was longer ago.
    assert replica.planned == ["hostile-0", "other", "same namespace", "hostile-20"]


def test_a_failed_plan_does_not_keep_the_next_one_from_running(replica: Replica) -> None:
    def fails() -> None:
        if replica.planned == ["d1"]:
            raise ValueError("a defect")

    replica.during_plan = fails
    replica.waits("job", "d1")
    replica.planner.plan_next()
    replica.waits("other", "d2")
    while replica.planner.plan_next():
        pass
    assert replica.planned == ["d1", "d2"]
    replica.seconds += REST_SECONDS
    replica.planner.plan_next()
    assert replica.planned == ["d1", "d2", "d1"]


def test_a_pipeline_whose_attempt_has_ended_is_not_planned(replica: Replica) -> None:
    replica.waits("job", "d1")
    replica.contexts["job-0-0"] = None
    assert replica.planner.plan_next()
    assert not replica.planner.plan_next()
    assert replica.planned == []


def test_a_job_that_wants_no_plan_any_more_is_not_planned(replica: Replica) -> None:
    replica.waits("job", "d1")
    replica.contexts["job-0-0"] = replace(context_of("job", "d1"), job_plan=JobPlan(enabled=False))
    assert replica.planner.plan_next()
    assert not replica.planner.plan_next()
    assert replica.planned == []


PLANS_WITHOUT_END = """
import sys, threading
from datetime import datetime
from wattloop_operator.reconcile.pipeline.pipeline_state import GivenPlan, JobPlan, PipelineKey, PipelineState
from wattloop_operator.reporting.pipeline_planner import PipelinePlanner
from wattloop_operator.store import open_store

def plan(request, now):
    print("plans", flush=True)
    threading.Event().wait()

context = PipelineState(PipelineKey("job", 0, 0), "team", "job-0-0", job_plan=JobPlan(given=GivenPlan("mine", "d1")))
with open_store(sys.argv[1]) as store:
    now = datetime.fromisoformat(sys.argv[2])
    PipelinePlanner(store.pipelines, plan, lambda *_: context, lambda: now).plan_next()
"""


@pytest.mark.processes
def test_another_replica_takes_over_from_one_that_was_killed_while_it_planned(tmp_path: Path, replica: Replica) -> None:
    replica.waits("job", "d1")
    command = [sys.executable, "-c", PLANS_WITHOUT_END, f"sqlite:///{tmp_path / 'wattloop.db'}", NOW.isoformat()]
    owner = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert owner.stdout.readline() == b"plans\n"
    finally:
        owner.kill()
        owner.communicate()
    assert replica.planner.plan_next()
    assert replica.planned == ["d1"]
