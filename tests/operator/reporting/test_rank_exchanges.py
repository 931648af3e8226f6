"""The client's messages of a pipeline's ranks against the real routes of the plan service."""

from dataclasses import replace

import pytest

from support.backends.model_backend import KEY
from support.pipelines.registrations import rank_registration
from support.pipelines.simulated_ranks import SimulatedRank, ranks_of
from support.reporting.reporting_api import Api
from wattloop.pipeline.plan_messages import PLAN, Directive, RankRegistration, RankReport
from wattloop.pipeline.plan_service import MAX_WAIT_SECONDS, PlanExchange
from wattloop.wire.operator_api import OperatorApi
from wattloop_operator.api.attempt_state import Result
from wattloop_operator.reconcile.pipeline.pipeline_state import PipelineKey, PipelineState


class Rank:
    """A rank that trains in virtual time, as the exchange sees it."""

    def __init__(self, rank: SimulatedRank) -> None:
        self.simulated = rank

    def registration(self) -> RankRegistration:
        return self.simulated.registration

    def report(self) -> RankReport:
        return self.simulated.report()

    def receive(self, directive: Directive) -> None:
        self.simulated.receive(directive)


@pytest.fixture
def recurrence(api: Api) -> str:
    name, _ = api.recurrence()
    return name


def exchange_of(api: Api, recurrence: str, rank: Rank) -> PlanExchange:
    url = api.path(recurrence, last="")
    return PlanExchange(OperatorApi(url, str(api.tokens.create_file(KEY.namespace, recurrence))), rank, lambda: 0.0)


def stored(api: Api, recurrence: str) -> PipelineState:
    spec = api.read(recurrence).spec
    return api.store.pipelines.read(PipelineKey(spec.job_ref.uid, spec.index, spec.attempt))


def test_ranks_register_measure_and_run_the_plan_of_their_frontier(api: Api, recurrence: str) -> None:
    ranks = [Rank(each) for each in ranks_of(2)]
    exchanges = [exchange_of(api, recurrence, rank) for rank in ranks]
    for _ in range(400):
        for rank, exchange in zip(ranks, exchanges, strict=True):
            exchange.step()
            rank.simulated.train(1)
        if all(rank.simulated.running.mode == PLAN for rank in ranks):
            break
    state = stored(api, recurrence)
    planned = state.frontier.points[state.directive.point or 0].clocks_megahertz
    assert [rank.simulated.running.clocks_megahertz for rank in ranks] == list(planned)
    assert [exchange.finish() for exchange in exchanges] == [True, True]
    assert all(rank.finished for rank in stored(api, recurrence).ranks.values())


def test_ranks_that_disagree_learn_what_both_sides_are(
    api: Api, recurrence: str, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = (Rank(SimulatedRank(rank_registration(number))) for number in range(2))
    exchange_of(api, recurrence, first).step()
    second.simulated.registration = replace(second.simulated.registration, gpu_product="NVIDIA H200")
    assert exchange_of(api, recurrence, second).step() == MAX_WAIT_SECONDS
    (record,) = caplog.records
    assert "HTTP 409" in record.getMessage()
    assert "NVIDIA H200" in record.getMessage()
    assert "NVIDIA A40" in record.getMessage()


def test_a_rank_that_the_service_has_forgotten_registers_again(api: Api, recurrence: str) -> None:
    rank = Rank(SimulatedRank(rank_registration(0)))
    exchange = exchange_of(api, recurrence, rank)
    exchange.step()
    other = Rank(SimulatedRank(rank_registration(0, process="f" * 32)))
    exchange_of(api, recurrence, other).step()
    assert stored(api, recurrence).ranks[0].registration.process == "f" * 32
    exchange.step()
    exchange.step()
    assert stored(api, recurrence).ranks[0].registration == rank.registration()


def test_a_rank_of_an_attempt_that_has_ended_runs_at_free_clocks(api: Api, recurrence: str) -> None:
    rank = Rank(SimulatedRank(rank_registration(0)))
    api.write_status(recurrence, result=Result.STOPPED)
    assert exchange_of(api, recurrence, rank).step() == 60.0
    assert rank.simulated.directive.mode == "Free"


def test_a_rank_cannot_register_for_the_recurrence_of_another_job(api: Api, recurrence: str) -> None:
    other, _ = api.recurrence()
    rank = Rank(SimulatedRank(rank_registration(0)))
    token = str(api.tokens.create_file(KEY.namespace, recurrence))
    exchange = PlanExchange(OperatorApi(api.path(other, last=""), token), rank, lambda: 0.0)
    exchange.step()
    assert exchange.rejected.startswith("HTTP 403")
