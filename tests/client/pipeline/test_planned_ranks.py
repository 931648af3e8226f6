"""Ranks with a plan service over HTTP and an agent: registered, switched at one iteration, and after restarts."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from support.agents.agent_fixture import until
from support.agents.simulated_node import SimulatedNode, simulated_node
from support.pipelines.plan_server import PlanServer, running_plan_server
from wattloop.pipeline import Pipeline
from wattloop.pipeline.plan_messages import Directive

STEPS = [("forward", 0), ("forward", 1), ("backward", 0), ("backward", 1)]
CLOCKS = (1410, 1200, 1200, 900)
PLAN = Directive(mode="Plan", clocks_megahertz=CLOCKS)


@pytest.fixture(scope="module")
def node() -> Iterator[SimulatedNode]:
    with simulated_node(2) as simulated:
        yield simulated


@pytest.fixture
def server() -> Iterator[PlanServer]:
    with running_plan_server() as running:
        yield running


class Rank:
    """A rank on a GPU of its own, and the directive of each of its iterations."""

    def __init__(self, node: SimulatedNode, server: PlanServer, number: int) -> None:
        self.gpu = number
        self._node = node
        environment = {"WATTLOOP_AGENT_SOCKET": str(node.socket), "WATTLOOP_REPORT_URL": server.url}
        self.pipeline = Pipeline(stage=number, stages=2, microbatches=2, gpus=[number], environment=environment)
        self.applied: list[tuple[int, ...]] = []

    def iterate(self) -> None:
        with self.pipeline.iteration():
            clocks = self.pipeline.clocks_megahertz
            for (kind, microbatch), clock in zip(STEPS, clocks or (None,) * len(STEPS), strict=True):
                with self.pipeline.instruction(kind, microbatch=microbatch):
                    until(lambda clock=clock: self.locked == clock, f"the clock is {clock}")
            self.applied.append(clocks)

    @property
    def locked(self) -> int | None:
        pair = self._node.gpus.describe().gpus[self.gpu].locked_graphics_clocks_megahertz
        return None if pair is None else pair[0]


@pytest.fixture
def make_rank(node: SimulatedNode, server: PlanServer) -> Iterator[Callable[..., Rank]]:
    """Makes ranks, and closes them at the end."""
    made: list[Rank] = []

    def make(number: int = 0) -> Rank:
        made.append(Rank(node, server, number))
        return made[-1]

    yield make
    for rank in made:
        rank.pipeline.close()


def iterate_until(ranks: list[Rank], clocks: tuple[int, ...], server: PlanServer) -> None:
    """Iterate in step until all ranks run at these clocks; each reports after each iteration, as in a long one."""

    def all_run() -> bool:
        for rank in ranks:
            rank.iterate()
        done = ranks[0].pipeline.iterations

        def reported() -> bool:
            newest = {report.process: report.iterations for report in list(server.reports)}
            return [iterations for iterations in newest.values() if iterations == done] == [done] * len(ranks)

        until(reported, "every rank has reported the iteration")
        return all(rank.applied[-1] == clocks for rank in ranks)

    until(all_run, f"all ranks run at {clocks}")


def test_ranks_register_switch_at_the_same_iteration_and_report(
    make_rank: Callable[..., Rank], server: PlanServer
) -> None:
    server.ranks = 2
    server.give(PLAN)
    ranks = [make_rank(number) for number in range(2)]
    iterate_until(ranks, CLOCKS, server)
    assert ranks[0].applied == ranks[1].applied
    first = server.goal.first_iteration
    assert ranks[0].applied == [()] * first + [CLOCKS] * (len(ranks[0].applied) - first)
    server.give(replace(PLAN, clocks_megahertz=(900,) * 4))
    iterate_until(ranks, (900,) * 4, server)
    assert ranks[0].applied == ranks[1].applied
    for rank in ranks:
        rank.pipeline.close()
        assert rank.locked is None
    last = {report.process: report for report in server.reports}
    assert [(each.iterations, each.applied_directive, each.finished) for each in last.values()] == [
        (len(ranks[0].applied), 2, True)
    ] * 2
    registered = sorted(server.registrations.values(), key=lambda each: each.rank)
    assert [(each.rank, each.pipeline_rank, each.gpu_product, each.gpus) for each in registered] == [
        (number, number, "NVIDIA A100-SXM4-80GB", 1) for number in range(2)
    ]
    assert registered[1].instructions == ("forward:1:0", "forward:1:1", "backward:1:0", "backward:1:1")
    assert registered[0].clocks_megahertz == tuple(range(210, 1411, 15))


def test_a_rank_goes_on_under_its_plan_while_the_service_restarts_and_registers_again(
    make_rank: Callable[..., Rank], server: PlanServer
) -> None:
    server.give(PLAN)
    rank = make_rank()
    iterate_until([rank], CLOCKS, server)
    (process,) = server.registrations
    server.restart()
    until(lambda: process in server.registrations, "the process has registered again")
    rank.iterate()
    assert rank.applied[-1] == CLOCKS


def test_a_mismatch_is_reported_and_forgotten_when_the_instructions_match(
    make_rank: Callable[..., Rank], server: PlanServer
) -> None:
    rank = make_rank()
    rank.iterate()
    with rank.pipeline.iteration(), rank.pipeline.instruction("backward", microbatch=0):
        pass
    mismatch = "position 0: found backward:0:0, expected forward:0:0"
    until(lambda: any(each.mismatch == mismatch for each in server.reports), "the mismatch is reported")
    rank.iterate()
    until(lambda: server.reports[-1].mismatch == "", "the mismatch is over")


def test_a_plan_with_a_clock_that_the_gpu_does_not_have_is_refused_in_the_report(
    make_rank: Callable[..., Rank], server: PlanServer
) -> None:
    server.give(Directive(mode="Plan", clocks_megahertz=(1980,) * 4))
    rank = make_rank()

    def refused() -> bool:
        rank.iterate()
        return server.reports[-1:] != [] and "1980 MHz, which NVIDIA A100" in server.reports[-1].refusal

    until(refused, "the refusal is reported")
    server.give(PLAN)
    iterate_until([rank], CLOCKS, server)
    until(lambda: server.reports[-1].refusal == "", "the refusal is over")


def test_a_straggler_is_announced(make_rank: Callable[..., Rank], server: PlanServer) -> None:
    rank = make_rank()
    rank.iterate()
    rank.pipeline.announce_straggler(3.5, "a throttled räck")
    until(lambda: len(server.notices) == 1, "the straggler is announced")
    rank.pipeline.announce_straggler(None)
    until(lambda: len(server.notices) == 2, "its end is announced")
    assert [(each.iteration_seconds, each.reason) for each in server.notices] == [(3.5, "a throttled r?ck"), (None, "")]


def test_only_the_token_of_the_file_is_sent(node: SimulatedNode, server: PlanServer, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")
    environment = {
        "WATTLOOP_AGENT_SOCKET": str(node.socket),
        "WATTLOOP_REPORT_URL": server.url,
        "WATTLOOP_TOKEN_FILE": str(token),
    }
    with Pipeline(stage=0, stages=1, microbatches=1, instructions=["forward:0:0"], environment=environment) as pipeline:
        until(lambda: len(server.registrations) == 1, "a rank with given instructions registers at once")
        assert pipeline.iterations == 0
    assert server.tokens == {"Bearer secret"}
