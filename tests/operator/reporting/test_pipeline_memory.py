"""What the plan service remembers of pipelines is bounded by its bytes, and ended attempts leave at once."""

import asyncio
import gc
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from support.pipelines.registrations import rank_registration
from support.test_sets.parameters import exhaustive_after
from wattloop.pipeline.plan_messages import InstructionMeasurement, RankReport
from wattloop_operator.reconcile.pipeline.held_bytes import state_bytes
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
from wattloop_operator.reporting import pipeline_commits
from wattloop_operator.reporting.pipeline_commits import PipelineCommits, ReportOfRank
from wattloop_operator.reporting.pipeline_planner import PipelinePlanner
from wattloop_operator.store import Store, open_store
from wattloop_operator.store.pipeline_store import StoredPipeline

NOW = datetime(2026, 3, 1, 13, 0, tzinfo=UTC)
REGISTRATIONS = [rank_registration(rank) for rank in range(2)]


def measurements(count: int) -> tuple[InstructionMeasurement, ...]:
    return tuple(
        InstructionMeasurement("forward", place // 2000, 1000 + place % 2000, 9, 0.1 + place * 1e-6, 0.01, 1.0, 0.1)
        for place in range(count)
    )


def context_of(job: int) -> PipelineState:
    name = f"job-{job}-0-0"
    return PipelineState(PipelineKey(f"job-{job}", 0, 0), "team", name)


def given_context(job: int) -> PipelineState:
    """An attempt that runs a plan of its user, so that nothing is measured before it is planned."""
    return replace(context_of(job), job_plan=JobPlan(given=GivenPlan("mine", f"digest-{job}")))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "wattloop.db") as opened:
        yield opened


@pytest.fixture
def commits(store: Store) -> Iterator[PipelineCommits]:
    with PipelineCommits(store.pipelines, lambda: NOW) as running:
        yield running


async def measure(commits: PipelineCommits, context: PipelineState, count: int) -> None:
    """Register the ranks of a pipeline, and report their measurements."""
    for registration in REGISTRATIONS:
        await commits.committed(context, registration)
    for registration in REGISTRATIONS:
        for sequence, measured in ((1, ()), (2, measurements(count // 2))):
            report = RankReport(
                registration.process, sequence, sequence - 1, 9 * sequence,
                measured_iterations=9 * sequence, iteration_seconds=1.0, measurements=measured,
            )  # fmt: skip
            await commits.committed(context, ReportOfRank(registration.rank, report))


def known_bytes(commits: PipelineCommits) -> int:
    return sum(state_bytes(known.state) for known in commits._known.values())


@pytest.mark.parametrize(("bound", "count"), exhaustive_after([(1024**2, 1_000), (4 * 1024**2, 4_000)]))
def test_many_pipelines_hold_no_more_bytes_than_the_bound(
    commits: PipelineCommits, monkeypatch: pytest.MonkeyPatch, bound: int, count: int
) -> None:
    monkeypatch.setattr(pipeline_commits, "REMEMBERED_PIPELINES", bound)
    monkeypatch.setattr(commits._known, "_Cache__maxsize", bound)

    async def attack() -> None:
        for job in range(8):
            await measure(commits, context_of(job), count)

    asyncio.run(attack())
    gc.collect()
    tracemalloc.start()
    try:
        asyncio.run(attack())
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < 1.5 * bound
    finally:
        tracemalloc.stop()
    assert bound / 4 < known_bytes(commits) <= bound


def test_a_pipeline_larger_than_the_bound_is_answered_and_not_remembered(
    commits: PipelineCommits, monkeypatch: pytest.MonkeyPatch, store: Store
) -> None:
    monkeypatch.setattr(pipeline_commits, "REMEMBERED_PIPELINES", 1_000_000)
    context = context_of(0)
    asyncio.run(measure(commits, context, 8_000))
    assert state_bytes(store.pipelines.read(context.key)) > 1_000_000
    assert known_bytes(commits) == 0


@pytest.mark.parametrize("count", exhaustive_after([5_000, 20_000]))
def test_the_size_of_a_state_is_what_it_takes_in_memory(commits: PipelineCommits, store: Store, count: int) -> None:
    context = context_of(0)
    asyncio.run(measure(commits, context, count))
    gc.collect()
    tracemalloc.start()
    try:
        state = store.pipelines.read(context.key)
        gc.collect()
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert state is not None
    assert 0.7 * taken < state_bytes(state) < 1.4 * taken


@pytest.mark.parametrize("by", ["its ranks", "its recurrence"])
def test_an_ended_attempt_is_not_remembered(commits: PipelineCommits, by: str) -> None:
    context, other = context_of(0), context_of(1)

    async def run() -> None:
        await measure(commits, context, 0)
        await measure(commits, other, 0)
        assert set(commits._known) == {context.key, other.key}
        if by == "its recurrence":
            commits.forget(context.key)
        else:
            for registration in REGISTRATIONS:
                last = RankReport(registration.process, 9, 1, 99, finished=True)
                await commits.committed(context, ReportOfRank(registration.rank, last))
        await measure(commits, other, 0)

    asyncio.run(run())
    assert set(commits._known) == {other.key}


def test_profiles_that_wait_for_the_planner_take_no_memory(store: Store) -> None:
    read: list[str] = []

    class Recorded:
        def __getattr__(self, name: str) -> Any:
            return getattr(store.pipelines, name)

        def change(self, new: PipelineState, *arguments: Any) -> StoredPipeline:
            read.append(new.name)
            return store.pipelines.change(new, *arguments)

    contexts = {context.name: context for context in map(given_context, range(9))}
    for context in contexts.values():
        registrar = Registrar(context, NOW)
        registrar.merge(rank_registration(0, stages=1))
        state = registrar.state
        store.pipelines.change(context, None, lambda _, state=state: state, lambda each: decided(each, NOW), NOW)
    assert len(store.pipelines.waiting(NOW)) == 9

    def plan(request: PlanningRequest, now: datetime) -> PipelineFrontier:
        # Only the one that is planned has been read.
        assert len(set(read)) == 1
        return PipelineFrontier(request.profile_digest, problem="not planned here")

    PipelinePlanner(Recorded(), plan, lambda _, name: contexts[name], lambda: NOW).plan_next()
    assert len(read) == 2
