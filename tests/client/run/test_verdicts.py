"""The ranks of a run end after the same epoch, with and without a process group and an operator."""

import sys
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from support.key_values import KeyValues
from support.reporting.report_server import ReportServer, answering
from wattloop import Run
from wattloop.run.report_channel import ReportChannel
from wattloop.run.verdicts import (
    CONFIRMATION_TIMEOUT_SECONDS,
    OPERATOR_TIMEOUT_SECONDS,
    RANK_0_TIMEOUT_SECONDS,
    RankVerdicts,
    Verdict,
)
from wattloop.wire.torch_group import TorchGroup, torch_group
from wattloop.wire.training_messages import Report

RANKS = 4
STOP = Verdict(stop=True, reached=False, reason="too expensive")


@dataclass
class Seconds:
    """A clock that advances only while somebody sleeps."""

    now: float = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def in_group(rank: int, store: KeyValues, seconds: Seconds) -> RankVerdicts:
    group = TorchGroup(rank, RANKS, store, clock=lambda: seconds.now, sleep=seconds.sleep)
    verdicts = RankVerdicts(ReportChannel("http://nowhere.invalid"), rank, RANKS, group=lambda: group)
    # The processes of a group count their runs alike.
    verdicts.name = "wattloop/0"
    return verdicts


def at_operator(url: str, rank: int, seconds: Seconds) -> RankVerdicts:
    channel = ReportChannel(url, clock=lambda: seconds.now, sleep=seconds.sleep)
    return RankVerdicts(channel, rank, RANKS, group=lambda: None, clock=lambda: seconds.now, sleep=seconds.sleep)


def question(epoch: int, ahead: int) -> Report:
    return Report(process="p", sequence=1, epoch=1.0, verdict_epoch=epoch, epochs_ahead=ahead, ranks=RANKS)


def unexpected(_epoch: int, _ahead: int) -> Report:
    raise AssertionError("the operator is asked")


def test_the_verdict_of_rank_0_is_that_of_its_group() -> None:
    store = KeyValues()
    ranks = [in_group(rank, store, Seconds()) for rank in range(RANKS)]
    for epoch, own in ((1, Verdict()), (2, STOP)):
        # What another rank knows by itself does not count. Nobody reads while rank 0 waits.
        found = [ranks[0].after(epoch, own, unexpected)]
        found += [rank.after(epoch, Verdict(stop=True, reached=True), unexpected) for rank in ranks[1:]]
        assert found == [own] * RANKS


@pytest.mark.parametrize("is_last", [True, False])
def test_rank_0_keeps_the_store_until_the_others_have_read_that_they_end(is_last: bool) -> None:
    store, own = KeyValues(), Verdict() if is_last else STOP
    others = [in_group(rank, store, Seconds()) for rank in range(1, RANKS)]
    seconds = Seconds()

    def sleep(duration: float) -> None:
        seconds.now += duration
        if others:
            assert others.pop().after(1, Verdict(), unexpected, is_last=is_last) == own

    group = TorchGroup(0, RANKS, store, clock=lambda: seconds.now, sleep=sleep)
    rank_0 = RankVerdicts(ReportChannel(""), 0, RANKS, group=lambda: group)
    rank_0.name = "wattloop/0"
    assert rank_0.after(1, own, unexpected, is_last=is_last) == own
    assert others == []
    assert seconds.now < 1
    # A rank that has died is not waited for for ever.
    assert rank_0.after(2, STOP, unexpected) == STOP
    assert seconds.now < CONFIRMATION_TIMEOUT_SECONDS + 2


def test_a_rank_goes_on_without_rank_0_after_a_bounded_time(caplog: pytest.LogCaptureFixture) -> None:
    seconds, store = Seconds(), KeyValues()
    rank = in_group(1, store, seconds)
    assert rank.after(1, STOP, unexpected) == Verdict()
    assert RANK_0_TIMEOUT_SECONDS <= seconds.now < RANK_0_TIMEOUT_SECONDS + 1
    store.lost = True
    assert rank.after(2, STOP, unexpected) == Verdict()
    assert seconds.now < RANK_0_TIMEOUT_SECONDS + 1
    assert "rank 0 gave no verdict on epoch 1" in caplog.text
    assert "rank 0 is gone" in caplog.text


def test_rank_0_ends_also_if_the_store_is_lost() -> None:
    assert in_group(0, KeyValues(lost=True), Seconds()).after(1, STOP, unexpected) == STOP


def test_a_rank_asks_the_operator_until_rank_0_has_asked(report_server: ReportServer) -> None:
    answers = [b'{"stop": false}', b"", b'{"stop": true, "reason": "too expensive", "stop_epoch": 1}']

    def answer(request: object) -> None:
        body = answers.pop(0)
        answering(200 if body else 503, body)(request)  # type: ignore[arg-type]

    report_server.behaviour = answer
    assert at_operator(report_server.url, 1, Seconds()).after(1, Verdict(), question) == STOP
    assert answers == []


def test_a_decided_epoch_is_not_asked_for(report_server: ReportServer) -> None:
    report_server.behaviour = answering(200, b'{"stop": false, "decided_epoch": 3}')
    verdicts = at_operator(report_server.url, 1, Seconds())
    assert not any(verdicts.after(epoch, STOP, question).stop for epoch in (1, 2, 3))
    assert len(report_server.reports) == 1


def test_a_rank_goes_on_without_the_operator_after_a_bounded_time(
    report_server: ReportServer, caplog: pytest.LogCaptureFixture
) -> None:
    report_server.behaviour = answering(503)
    seconds = Seconds()
    verdicts = at_operator(report_server.url, 1, seconds)
    assert not verdicts.after(1, STOP, question).stop
    first = seconds.now
    assert OPERATOR_TIMEOUT_SECONDS / 2 <= first <= OPERATOR_TIMEOUT_SECONDS
    for epoch in range(2, 12):
        verdicts.after(epoch, STOP, question)
    assert seconds.now - first <= 10 * 5
    assert "the operator gave no verdict on epoch 1; continuing" in caplog.text


def test_a_rank_that_may_not_report_does_not_wait(report_server: ReportServer) -> None:
    report_server.behaviour = answering(403)
    seconds = Seconds()
    assert not at_operator(report_server.url, 1, seconds).after(1, STOP, question).stop
    assert seconds.now == 0


def test_short_epochs_share_a_verdict(report_server: ReportServer) -> None:
    seconds = Seconds()
    report_server.behaviour = answering(200, b'{"stop": false, "decided_epoch": 1000000}')
    verdicts = at_operator(report_server.url, 0, seconds)
    for epoch, elapsed in ((1, 0.5), (2, 0.1), (40, 3.8), (41, 20.0)):
        seconds.now += elapsed
        verdicts._decided_epoch = 0
        verdicts.after(epoch, Verdict(), question)
    assert [report["epochs_ahead"] for report in report_server.reports] == [1, 2, 10, 0]


def test_the_process_group_of_pytorch_is_found_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch.distributed", raising=False)
    assert torch_group() is None
    store: Any = KeyValues()
    module = SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: True,
        get_rank=lambda: 2,
        get_world_size=lambda: RANKS,
        distributed_c10d=SimpleNamespace(_get_default_store=lambda: store),
    )
    monkeypatch.setitem(sys.modules, "torch.distributed", module)  # type: ignore[arg-type]
    found = torch_group()
    assert (found.rank, found.size, found.store) == (2, RANKS, store)
    # Processes that were started without a launcher have their ranks from it.
    with Run(environment={"WATTLOOP_JOB": "team/digits"}) as run:
        assert (run.environment.rank, run.environment.ranks) == (2, RANKS)
    for changed in ({"is_initialized": lambda: False}, {"get_world_size": lambda: 1}, {"distributed_c10d": None}):
        monkeypatch.setitem(sys.modules, "torch.distributed", SimpleNamespace(**{**vars(module), **changed}))  # type: ignore[arg-type]
        assert torch_group() is None


@pytest.mark.parametrize("with_loop_of_epochs", [True, False])
def test_all_ranks_of_a_run_end_after_the_same_epoch(report_server: ReportServer, with_loop_of_epochs: bool) -> None:
    """Each rank has another metric; the operator stops them after the third epoch."""

    def answer(request: object) -> None:
        report = report_server.reports[-1]
        stop = report["verdict_epoch"] == 3
        body = b'{"stop": true, "reached": true, "stop_epoch": 3}' if stop else b'{"stop": false, "decided_epoch": 2}'
        answering(200, body)(request)  # type: ignore[arg-type]

    report_server.behaviour = answer

    def train(rank: int) -> tuple[int, bool, bool]:
        variables = {
            "WATTLOOP_JOB": "team/digits",
            "WATTLOOP_MAX_EPOCHS": "9",
            "WATTLOOP_TARGET_METRIC": "accuracy",
            "WATTLOOP_TARGET_THRESHOLD": "0.5",
            "WATTLOOP_REPORT_URL": report_server.url,
            "RANK": str(rank),
            "WORLD_SIZE": "2",
        }
        evaluations = 0
        with Run(environment=variables) as run:
            if with_loop_of_epochs:
                for _ in run.epochs():
                    evaluations += 1
                    run.report(metric=0.9 if rank == 1 else 0.1)
            while not with_loop_of_epochs and not run.reached:
                evaluations += 1
                run.report(metric=0.9 if rank == 1 else 0.1)
            return evaluations, run.reached, run.stopped

    assert [train(rank) for rank in (0, 1)] == [(3, True, False)] * 2


def test_one_rank_asks_for_no_verdict(report_server: ReportServer) -> None:
    variables = {"WATTLOOP_JOB": "team/digits", "WATTLOOP_MAX_EPOCHS": "3", "WATTLOOP_REPORT_URL": report_server.url}
    with Run(environment=variables) as run:
        for _ in run.epochs():
            run.report(metric=0.1)
    assert {report["verdict_epoch"] for report in report_server.reports} == {None}
    assert len(report_server.reports) == 5
