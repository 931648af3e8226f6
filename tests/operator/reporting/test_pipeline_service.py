"""The plan service over HTTP: from registration to a plan, and what it refuses."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import func, select

from support.backends.model_backend import KEY
from support.pipelines.registrations import rank_registration
from support.pipelines.simulated_ranks import SimulatedRank, ranks_of
from support.reporting.reporting_api import Api, Reply, planned_here, running_api
from wattloop.pipeline.plan_messages import (
    FREE,
    MAX_PIPELINE_MESSAGE_BYTES,
    PLAN,
    Directive,
    RankRegistration,
    RankReport,
    StragglerNotice,
)
from wattloop_operator.api.attempt_state import Result
from wattloop_operator.reconcile.pipeline.pipeline_state import PipelineFrontier, PipelineKey, PipelineState
from wattloop_operator.reconcile.pipeline.profile import PlanningRequest
from wattloop_operator.reporting.interfaces import BearerToken
from wattloop_operator.reporting.plan_worker import MAX_MEMORY_BYTES, planned_in_process, planner_memory_bytes
from wattloop_operator.reporting.report_limits import ReportLimits
from wattloop_operator.store.tables import PIPELINE_PROFILES


def register(api: Api, name: str, token: str, registration: RankRegistration, rank: int | None = None) -> Reply:
    path = api.path(name, last=f"pipeline/ranks/{registration.rank if rank is None else rank}")
    return api.send_message(path, token, registration, method="PUT")


def report(api: Api, name: str, token: str, rank: int, message: RankReport) -> Reply:
    return api.send_message(api.path(name, last=f"pipeline/ranks/{rank}/report"), token, message)


def stored(api: Api, name: str) -> PipelineState:
    spec = api.read(name).spec
    return api.store.pipelines.read(PipelineKey(spec.job_ref.uid, spec.index, spec.attempt))


def exchange(api: Api, name: str, token: str, ranks: list[SimulatedRank]) -> None:
    """Each rank trains and reports once; one that is not known registers."""
    for rank in ranks:
        rank.train(1)
        answer = Directive.from_json(report(api, name, token, rank.registration.rank, rank.report()).body)
        if not answer.known:
            answer = Directive.from_json(register(api, name, token, rank.registration).body)
        rank.receive(answer)


def exchange_until(
    api: Api, name: str, token: str, ranks: list[SimulatedRank], is_met: Callable[[], bool], rounds: int = 400
) -> None:
    for _ in range(rounds):
        if is_met():
            return
        exchange(api, name, token, ranks)
    raise AssertionError(f"after {rounds} rounds: {stored(api, name).directive}")


def test_two_ranks_register_measure_and_run_a_plan_although_the_operator_is_restarted_meanwhile(tmp_path: Path) -> None:
    ranks = ranks_of(2)
    with running_api(tmp_path) as first:
        name, token = first.recurrence()
        exchange_until(first, name, token, ranks, lambda: len(ranks[0].measured) == 1)
        exchange(first, name, token, ranks)
        before = stored(first, name)
    with running_api(tmp_path) as second:
        second.tokens._owners[BearerToken(token).digest] = (KEY.namespace, name)
        assert stored(second, name) == before
        exchange(second, name, token, ranks)
        assert stored(second, name).directive == before.directive
        exchange_until(second, name, token, ranks, lambda: all(rank.running.mode == PLAN for rank in ranks))
        state = stored(second, name)
    clocks = state.frontier.points[state.directive.point or 0].clocks_megahertz
    assert [rank.running.clocks_megahertz for rank in ranks] == list(clocks)


def test_a_restart_while_the_planner_runs_starts_it_again(tmp_path: Path) -> None:
    ranks, asked, ending = ranks_of(2), threading.Event(), threading.Event()

    def never_ends(request: PlanningRequest, now: datetime) -> PipelineFrontier:
        asked.set()
        ending.wait()
        return planned_here(request, now)

    with running_api(tmp_path, plan=never_ends) as first:
        name, token = first.recurrence()
        exchange_until(first, name, token, ranks, asked.is_set)
    ending.set()
    with running_api(tmp_path) as second:
        second.tokens._owners[BearerToken(token).digest] = (KEY.namespace, name)
        exchange_until(second, name, token, ranks, lambda: all(rank.running.mode == PLAN for rank in ranks))


def test_ranks_that_contradict_each_other_are_refused_with_both_named(api: Api) -> None:
    name, token = api.recurrence()
    assert register(api, name, token, rank_registration(0)).code == 200
    reply = register(api, name, token, rank_registration(1, gpu_product="NVIDIA H200"))
    assert reply.code == 409
    assert reply.body == {"detail": "gpu_product: rank 1 registers 'NVIDIA H200', and rank 0 'NVIDIA A40'"}


def test_one_token_registers_a_bounded_number_of_profiles(api: Api) -> None:
    name, token = api.recurrence()
    replies = [register(api, name, token, replace(rank_registration(0), model=f"model-{each}")) for each in range(12)]
    assert [reply.code for reply in replies] == [200] * 4 + [409] * 8
    assert "expected at most 4; the next attempt may register it" in str(replies[-1].body)
    with api.store.pipelines._database.reading("count the profiles") as on:
        mine = select(func.count()).where(PIPELINE_PROFILES.c.model.startswith("model-"))
        assert on.execute(mine).scalar_one() == 4


def test_an_implausible_energy_is_refused_and_the_next_report_is_merged(api: Api) -> None:
    name, token = api.recurrence()
    register(api, name, token, rank_registration(0))
    message = RankReport(rank_registration(0).process, 1, 0, 9, iteration_seconds=0.5, iteration_joules=1e14)
    reply = report(api, name, token, 0, message)
    assert reply.code == 409
    assert f"{KEY.namespace}/{name}, rank 0: iteration_joules: found 1e+14 J in 0.5 s" in str(reply.body)
    assert stored(api, name).ranks[0].report is None
    assert report(api, name, token, 0, replace(message, sequence=2, iteration_joules=100.0)).code == 200


def test_a_rank_that_is_not_that_of_the_path_is_refused(api: Api) -> None:
    name, token = api.recurrence()
    reply = register(api, name, token, rank_registration(0), rank=1)
    assert (reply.code, reply.body["detail"]) == (422, "rank: found 0, expected 1 as in the path")


def test_no_rank_reads_or_writes_the_pipeline_of_another_job(api: Api) -> None:
    name, token = api.recurrence()
    _, other = api.recurrence()
    assert register(api, name, other, rank_registration(0)).code == 403
    assert report(api, name, other, 0, RankReport("0" * 32, 1, 0, 0)).code == 403
    straggler = api.path(name, last="pipeline/straggler")
    assert api.send_message(straggler, other, StragglerNotice(1.0)).code == 403
    assert api.send_message(straggler, "guessed", StragglerNotice(1.0)).code == 401
    assert register(api, name, token, rank_registration(0)).code == 200
    assert set(stored(api, name).ranks) == {0}


def test_a_pipeline_of_an_unknown_recurrence_is_not_found(api: Api) -> None:
    token = api.tokens.create_file(KEY.namespace, "digits-999-0").read_text()
    assert register(api, "digits-999-0", token, rank_registration(0)).code == 404


def test_a_long_message_beyond_the_limit_is_rejected_unread(tmp_path: Path) -> None:
    limits = ReportLimits(lambda: 0.0)
    with running_api(tmp_path, limits) as api:
        name, token = api.recurrence()
        path, data = api.path(name, last="pipeline/ranks/0"), b" " * MAX_PIPELINE_MESSAGE_BYTES
        # It is no JSON, which only its reading shows.
        codes = [api.ask(path, token, data, method="PUT").code for _ in range(2)]
    assert codes == [422, 429]


def test_the_report_of_an_unknown_process_asks_it_to_register(api: Api) -> None:
    name, token = api.recurrence()
    reply = report(api, name, token, 0, RankReport("0" * 32, 1, 0, 0))
    assert (reply.code, reply.body["known"]) == (200, False)


def test_an_attempt_that_has_ended_stores_nothing(api: Api) -> None:
    name, token = api.recurrence()
    api.write_status(name, result=Result.REACHED)
    reply = register(api, name, token, rank_registration(0))
    assert (reply.code, reply.body["mode"], reply.body["reason"]) == (200, FREE, "the attempt has ended")
    spec = api.read(name).spec
    assert api.store.pipelines.read(PipelineKey(spec.job_ref.uid, spec.index, spec.attempt)) is None


def test_an_announced_straggler_is_stored_until_its_end_is_announced(api: Api) -> None:
    name, token = api.recurrence()
    register(api, name, token, rank_registration(0))
    path = api.path(name, last="pipeline/straggler")
    assert api.send_message(path, token, StragglerNotice(2.5, "throttled")).code == 200
    straggler = stored(api, name).straggler
    assert (straggler.iteration_seconds, straggler.reason, straggler.announced) == (2.5, "throttled", True)
    assert api.send_message(path, token, StragglerNotice(None)).code == 200
    assert stored(api, name).straggler is None


def test_a_hundred_ranks_that_register_at_once_are_all_stored(api: Api) -> None:
    name, token = api.recurrence()
    with ThreadPoolExecutor(20) as threads:
        replies = list(
            threads.map(
                lambda rank: register(api, name, token, rank_registration(rank, data_parallel=50)).code, range(100)
            )
        )
    # A token is allowed 60 requests at once.
    accepted = [rank for rank, code in enumerate(replies) if code == 200]
    assert set(replies) <= {200, 429}
    assert sorted(stored(api, name).ranks) == accepted
    assert len(accepted) >= 60


@pytest.mark.parametrize(
    ("limit", "allowed"),
    [("max\n", MAX_MEMORY_BYTES), ("1073741824\n", 256 * 1024**2), ("9223372036854771712\n", MAX_MEMORY_BYTES)],
)
def test_the_planner_uses_at_most_a_quarter_of_the_memory_of_its_container(
    tmp_path: Path, limit: str, allowed: int
) -> None:
    file = tmp_path / "memory.max"
    file.write_text(limit)
    assert planner_memory_bytes((tmp_path / "missing", file)) == allowed
    assert planner_memory_bytes((tmp_path / "missing",)) == MAX_MEMORY_BYTES


REQUEST = PlanningRequest("d1", (("forward:0:0", "backward:0:0"),), (900, 1410), ())


@pytest.mark.processes
def test_the_planner_runs_in_a_process_of_its_own_and_reports_its_problem() -> None:
    frontier = planned_in_process(REQUEST, datetime(2026, 3, 1, tzinfo=UTC))
    assert frontier.problem == (
        "the profile: found no measurement with an energy, expected time and energy of each instruction and clock"
    )
    assert frontier.retry_at is None


@pytest.mark.processes
def test_a_planner_that_takes_too_long_is_ended_and_tried_again_later() -> None:
    now = datetime(2026, 3, 1, tzinfo=UTC)
    frontier = planned_in_process(replace(REQUEST, profile_digest="d2"), now, max_seconds=0.001)
    assert frontier.problem == "the planner took more than 0.001 s for 2 instructions"
    assert frontier.profile_digest == "d2"
    assert frontier.retry_at > now
