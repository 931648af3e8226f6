"""Pipelines on both databases: a change is complete, seen by every replica, and gone with its attempt."""

import zlib
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from support.pipelines.registrations import rank_registration
from wattloop.errors import InputError, OperationError
from wattloop.pipeline.plan_messages import PLAN, InstructionMeasurement, RankReport
from wattloop_operator.reconcile.pipeline.pipeline_json import decode, encode
from wattloop_operator.reconcile.pipeline.pipeline_state import (
    FrontierPoint,
    IssuedDirective,
    JobPlan,
    PipelineFrontier,
    PipelineKey,
    PipelineProfile,
    PipelineProfileKey,
    PipelineRank,
    PipelineState,
    PlanChoice,
    RankMeasurements,
    Straggler,
    WithdrawnPoint,
)
from wattloop_operator.store import Store
from wattloop_operator.store.pipeline_store import MAX_WAIT, Change, StoredPipeline

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
KEY = PipelineKey("0c3b2d9e", 3, 0)
NEW = PipelineState(KEY, "team", "bert-3-0")
PROFILE = PipelineProfileKey("0c3b2d9e", 64, "gpt", "0a", "NVIDIA A40", "")
MEASURED = InstructionMeasurement("forward", 0, 1410, 12, 0.125, 0.001, 30.5, None)


def registered(*ranks: int) -> Change:
    def change(state: PipelineState) -> PipelineState:
        new = {rank: PipelineRank(rank_registration(rank), NOW, NOW) for rank in ranks}
        profile = state.profile or PipelineProfile(PROFILE)
        return replace(state, ranks={**state.ranks, **new}, profile=profile)

    return change


def measured(rank: int, process: str, sequence: int = 1) -> Change:
    def change(state: PipelineState) -> PipelineState:
        new = RankMeasurements(rank, process, rank, False, 60.5, (MEASURED,), sequence)
        return replace(
            state, profile=replace(state.profile, processes={**state.profile.processes, (rank, process): new})
        )

    return change


def reported(rank: int, sequence: int) -> Change:
    def change(state: PipelineState) -> PipelineState:
        report = RankReport("0" * 32, sequence, 1, 10, iteration_seconds=0.5)
        return replace(state, ranks={**state.ranks, rank: replace(state.ranks[rank], report=report)})

    return change


def unchanged(state: PipelineState) -> PipelineState:
    return state


def apply(store: Store, *changes: Change, known: StoredPipeline | None = None) -> StoredPipeline:
    for change in changes:
        known = store.pipelines.change(NEW, known, change, unchanged, NOW)
    assert known is not None
    return known


def test_a_pipeline_that_was_never_stored_is_none(store: Store) -> None:
    assert store.pipelines.read(KEY) is None


def test_everything_of_a_state_is_read_as_it_was_written(store: Store) -> None:
    frontier = PipelineFrontier(
        "d1",
        (FrontierPoint(1.5, 300.25, ((1410, 1200), (1410, 1410))),),
        FrontierPoint(1.5, 310.0, ((1410, 1410), (1410, 1410))),
        60.5,
        planned_at=NOW,
    )
    directive = IssuedDirective(4, PLAN, "why", 120, profile_digest="d1", point=0, stragglers=(1,), issued_at=NOW)
    straggler = Straggler(2.0, 1.9, "slow", announced=False, data_ranks=(1,), since=NOW)

    def complete(state: PipelineState) -> PipelineState:
        return replace(state, frontier=frontier, directive=directive, straggler=straggler)

    new = replace(NEW, job_plan=JobPlan(choice=PlanChoice("Deadline", 1.6)))
    known = store.pipelines.change(new, None, registered(0, 1), complete, NOW)
    known = store.pipelines.change(new, known, measured(0, "a" * 32), unchanged, NOW)
    known = store.pipelines.change(new, known, reported(1, 7), unchanged, NOW)
    assert store.pipelines.read(KEY) == known.state
    assert known.state.frontier == frontier
    assert known.state.ranks[1].registration == rank_registration(1)
    assert known.state.job_plan.choice == PlanChoice("Deadline", 1.6)


def test_a_change_that_changes_nothing_writes_nothing(store: Store) -> None:
    known = apply(store, registered(0))
    assert store.pipelines.change(NEW, known, unchanged, unchanged, NOW).revision == known.revision


def test_a_replica_sees_what_another_one_has_written_since(store: Store) -> None:
    first = apply(store, registered(0, 1))
    other = apply(store, registered(2), measured(2, "b" * 32), reported(0, 5))
    seen = store.pipelines.change(NEW, first, unchanged, unchanged, NOW)
    assert seen.state == other.state
    mine = store.pipelines.change(NEW, first, reported(1, 3), unchanged, NOW)
    assert mine.state.ranks[0].report == other.state.ranks[0].report
    assert mine.state.ranks[1].report is not None
    assert store.pipelines.read(KEY) == mine.state


def test_a_replica_forgets_ranks_and_measurements_that_another_one_removed(store: Store) -> None:
    first = apply(store, registered(0, 1), measured(0, "a" * 32), measured(0, "b" * 32))

    def without(state: PipelineState) -> PipelineState:
        kept = {pair: each for pair, each in state.profile.processes.items() if pair[1] != "a" * 32}
        return replace(state, ranks={0: state.ranks[0]}, profile=replace(state.profile, processes=kept))

    store.pipelines.change(NEW, first, without, unchanged, NOW)
    read = store.pipelines.read(KEY)
    assert set(read.ranks) == {0}
    assert set(read.profile.processes) == {(0, "b" * 32)}


def test_a_later_recurrence_finds_the_profile_and_the_frontier(store: Store) -> None:
    frontier = PipelineFrontier("d1", problem="no blocking power")
    apply(store, registered(0), measured(0, "a" * 32), lambda state: replace(state, frontier=frontier))
    store.pipelines.delete_attempt(KEY.job_uid, KEY.recurrence, KEY.attempt)
    later = replace(NEW, key=replace(KEY, recurrence=4))
    known = store.pipelines.change(later, None, registered(0), unchanged, NOW)
    assert set(known.state.profile.processes) == {(0, "a" * 32)}
    assert known.state.frontier == frontier
    assert store.pipelines.read(KEY) is None


def test_a_replica_learns_that_another_one_has_withdrawn_a_plan(store: Store) -> None:
    frontier = PipelineFrontier("d1", (FrontierPoint(1.5, 300.25, ((1410,),)),))
    first = apply(store, registered(0), lambda state: replace(state, frontier=frontier))
    withdrawn = replace(frontier, withdrawn=(WithdrawnPoint(0, "it costs more than it saves"),))
    apply(store, lambda state: replace(state, frontier=withdrawn), known=first)
    seen = store.pipelines.change(NEW, first, reported(0, 3), unchanged, NOW)
    assert seen.state.frontier == withdrawn
    following = store.pipelines.read_without_measurements(KEY)
    assert following.frontier == withdrawn


def test_a_failed_change_leaves_the_stored_state(store: Store) -> None:
    known = apply(store, registered(0))

    def fail(_state: PipelineState) -> PipelineState:
        raise OperationError("no decision")

    with pytest.raises(OperationError, match="no decision"):
        store.pipelines.change(NEW, known, registered(1), fail, NOW)
    assert store.pipelines.read(KEY) == known.state


def test_a_deleted_job_leaves_no_profile(store: Store) -> None:
    apply(store, registered(0), measured(0, "a" * 32))
    store.pipelines.delete_job(KEY.job_uid)
    assert store.pipelines.read(KEY) is None
    assert store.pipelines.change(NEW, None, registered(0), unchanged, NOW).state.profile == PipelineProfile(PROFILE)


def test_old_pipelines_are_deleted(store: Store) -> None:
    apply(store, registered(0))
    assert store.pipelines.delete_old(NOW + timedelta(days=30)) == 0
    assert store.pipelines.delete_old(NOW + timedelta(days=30, seconds=1)) == 1
    assert store.pipelines.read(KEY) is None


def test_a_pipeline_waits_for_the_planner_while_its_state_says_so_and_its_ranks_are_not_silent(store: Store) -> None:
    apply(store, registered(0))
    assert store.pipelines.waiting(NOW) == []
    apply(store, lambda state: replace(state, waits_for_plan=True))
    assert [(each.key, each.namespace, each.name) for each in store.pipelines.waiting(NOW)] == [
        (KEY, NEW.namespace, NEW.name)
    ]
    assert store.pipelines.waiting(NOW + MAX_WAIT + timedelta(seconds=1)) == []
    apply(store, lambda state: replace(state, waits_for_plan=False))
    assert store.pipelines.waiting(NOW) == []


def test_a_new_frontier_comes_with_the_measurements_of_all_attempts_that_it_was_planned_from(store: Store) -> None:
    known = apply(store, registered(0), measured(0, "a"))
    other = replace(NEW, key=replace(KEY, recurrence=4), name="bert-4-0")
    for change in (registered(0), measured(0, "b")):
        store.pipelines.change(other, None, change, unchanged, NOW)

    def planned(state: PipelineState) -> PipelineState:
        return replace(state, frontier=PipelineFrontier("of a and b"))

    store.pipelines.change(NEW, None, planned, unchanged, NOW)
    state = apply(store, unchanged, known=known).state
    assert {process for _, process in state.profile.processes} == {"a", "b"}


def test_a_recurrence_that_names_the_attempt_of_another_one_reads_and_writes_nothing(store: Store) -> None:
    known = apply(store, registered(0))
    with pytest.raises(OperationError, match="is that of team/bert-3-0, and not of hostile/bert-3-0"):
        store.pipelines.change(replace(NEW, namespace="hostile"), None, registered(1), unchanged, NOW)
    assert store.pipelines.read(KEY) == known.state


def test_what_the_recurrence_says_now_replaces_what_is_stored(store: Store) -> None:
    """The image of an attempt is known only once its pods run."""
    known = apply(store, registered(0))
    now = replace(NEW, batch_size=128, image_digest="sha256:0a", job_plan=JobPlan(enabled=False))
    store.pipelines.change(now, known, unchanged, unchanged, NOW)
    read = store.pipelines.read(KEY)
    assert (read.batch_size, read.image_digest, read.job_plan.enabled) == (128, "sha256:0a", False)


def test_a_row_with_an_invalid_key_of_a_profile_is_damaged() -> None:
    state = replace(NEW, profile=PipelineProfile(PROFILE))
    body = zlib.compress(zlib.decompress(encode(state)).replace(b'"batch_size":64', b'"batch_size":0'))
    with pytest.raises(OperationError, match="a stored PipelineState is damaged"):
        decode(PipelineState, body)


def test_a_profile_of_a_model_whose_name_no_database_stores_is_refused() -> None:
    with pytest.raises(InputError, match=r"profile of the pipelines of job 0c3b2d9e.*column model: found 'g\\x00t'"):
        replace(PROFILE, model="g\0t")
