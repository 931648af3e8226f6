"""What one pipeline reports never ends the plan service of the others."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from support.pipelines.simulated_ranks import SimulatedRank, measurements_of, ranks_of
from support.reporting.reporting_api import Api, running_api
from wattloop.pipeline.plan_messages import FREE, PLAN, Directive, RankReport


def register(api: Api, name: str, token: str, rank: SimulatedRank) -> None:
    path = api.path(name, last=f"pipeline/ranks/{rank.registration.rank}")
    rank.receive(Directive.from_json(api.send_message(path, token, rank.registration, method="PUT").body))


def send(api: Api, name: str, token: str, rank: SimulatedRank, message: RankReport) -> Directive:
    path = api.path(name, last=f"pipeline/ranks/{rank.registration.rank}/report")
    reply = api.send_message(path, token, message)
    assert reply.code == 200, reply
    rank.receive(Directive.from_json(reply.body))
    return rank.directive


def exchange_until(
    api: Api,
    name: str,
    token: str,
    ranks: list[SimulatedRank],
    is_met: Callable[[], bool],
    changed: Callable[[RankReport], RankReport] = lambda report: report,
) -> None:
    """Let the ranks train and report, with changed reports of the last one."""
    for _ in range(80):
        if is_met():
            return
        for rank in ranks:
            rank.train(1)
            report = rank.report()
            send(api, name, token, rank, changed(report) if rank is ranks[-1] else report)
    raise AssertionError([rank.directive for rank in ranks])


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    with running_api(tmp_path) as running:
        yield running


def test_a_finished_rank_and_another_profile_end_no_other_pipeline(api: Api) -> None:
    victim_name, victim_token = api.recurrence()
    name, token = api.recurrence()
    victim, hostile = ranks_of(2), ranks_of(2, run=1)
    for rank in victim:
        register(api, victim_name, victim_token, rank)
    for rank in hostile:
        register(api, name, token, rank)

    def unprofiled(report: RankReport) -> RankReport:
        """All clocks are measured, and the rank does not say so."""
        return replace(report, profiled=False, mismatch="other instructions" if report.profiled else "")

    exchange_until(api, name, token, hostile, lambda: all(each.running.mode == PLAN for each in hostile), unprofiled)
    send(api, name, token, hostile[0], replace(hostile[0].report(), finished=True))
    measured = measurements_of(hostile[1].registration, hostile[1].registration.clocks_megahertz[:1])
    exchange_until(
        api,
        name,
        token,
        hostile[1:],
        lambda: hostile[1].running.mode == FREE,
        lambda report: replace(report, profiled=True, measurements=measured),
    )
    exchange_until(api, victim_name, victim_token, victim, lambda: all(each.running.mode == PLAN for each in victim))
