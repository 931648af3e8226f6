"""One verdict for an epoch: the same for every rank, whoever asks, when, and whichever replica answers."""

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.reporting.memory_progress_store import DECIDED, MemoryProgressStore
from support.reporting.reporting_api import Api, Reply, running_api
from wattloop.commands.settings import Address
from wattloop.errors import OperationError
from wattloop.wire.training_messages import Answer, GpuEnergy, LimitMeasurement, LimitSchedule, Report
from wattloop_operator.api.attempt_state import Result
from wattloop_operator.http.http_service import HttpService
from wattloop_operator.local.report_server import local_progress
from wattloop_operator.reporting.app import create_app
from wattloop_operator.reporting.service import ReportService
from wattloop_operator.store.objects import ObjectConflictError

# Longer than any pause of a busy machine.
MAX_WAIT_SECONDS = 60.0
RANKS = 4
JOULES_PER_EPOCH = 1000
PROPOSED_EPOCH = 2


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running_api(tmp_path_factory.mktemp("api"), max_wait_seconds=MAX_WAIT_SECONDS) as running:
        yield running


def question(rank: int, epoch: int, *, sequence: int = 0, metric: float = 0.1, ahead: int = 0) -> Report:
    """A rank's report at the end of an epoch, in which it asks whether to go on."""
    energy = JOULES_PER_EPOCH * epoch * 1000
    return Report(
        process="p",
        sequence=sequence or epoch,
        epoch=float(epoch),
        metric=metric if rank == 0 else None,
        evaluations=epoch,
        gpus=(GpuEnergy(f"GPU-{rank:02}", 0, energy, 0.0, float(epoch)),),
        gpu_product="NVIDIA A100",
        max_power_limit_watts=400.0,
        rank=rank,
        ranks=RANKS,
        verdict_epoch=epoch,
        epochs_ahead=ahead,
    )


@dataclass
class Replicas:
    """Two replicas of the operator, each with its own memory, and the verdicts that they have answered."""

    progress_store: MemoryProgressStore
    services: list[ReportService] = field(default_factory=list)
    verdicts: dict[int, set[bool]] = field(default_factory=dict)
    schedules: set[LimitSchedule | None] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.services = [self.new_service(), self.new_service()]

    def new_service(self) -> ReportService:
        store = self.progress_store
        return ReportService(store, store, clock=lambda: store.now, write_interval_seconds=1.0)

    def ask(self, replica: int, report: Report) -> bool | None:
        answer = self.services[replica].receive("team", "run", report)
        verdict = answer.goes_on_after(report.verdict_epoch or 0)
        if verdict and report.verdict_epoch == PROPOSED_EPOCH:
            # Whoever goes on after this epoch has the schedule that begins with it.
            self.schedules.add(answer.limit_schedule)
        if verdict is not None:
            self.verdicts.setdefault(report.verdict_epoch or 0, set()).add(verdict)
        return verdict


def limited(joules: float) -> MemoryProgressStore:
    spec = DECIDED.spec.model_copy(update={"stop_cost_joules": Decimal(joules), "energy_weight_percent": 100})
    return MemoryProgressStore(recurrence=DECIDED.model_copy(update={"spec": spec}))


@settings(deadline=None, max_examples=settings().max_examples // 4)
@given(st.data())
def test_every_rank_gets_the_same_verdict(data: st.DataObject) -> None:
    """Ranks ask in any order and repeatedly, also late; replicas are killed, and the store is away at times."""
    replicas = Replicas(limited(data.draw(st.sampled_from([2500.0, 6000.0, 1e9]))))
    target_epoch = data.draw(st.integers(1, 8))
    # The epoch that each rank is in. A rank goes on only when it was told to.
    epochs = [1] * RANKS
    stopped: set[int] = set()
    for _ in range(data.draw(st.integers(10, 60))):
        event = data.draw(st.sampled_from(["ask", "ask", "ask", "late", "kill", "away", "second"]))
        replica, rank = data.draw(st.integers(0, 1)), data.draw(st.integers(0, RANKS - 1))
        replicas.progress_store.away = event == "away"
        if event == "kill":
            replicas.services[replica] = replicas.new_service()
        elif event == "second":
            replicas.progress_store.now += 1.0
            replicas.services[replica].writer.write_due()
        if rank in stopped:
            continue
        # A late question is one that the network repeats.
        epoch = data.draw(st.integers(1, epochs[rank])) if event == "late" else epochs[rank]
        metric = 0.99 if epoch >= target_epoch else 0.1
        ask = question(rank, epoch, metric=metric, ahead=data.draw(st.integers(0, 2)))
        if rank == 0 and epoch == PROPOSED_EPOCH:
            # A repeated question may propose other steps.
            ask = replace(ask, limit_schedule=LimitSchedule(epoch, data.draw(st.integers(1, 9)), (300, 200)))
        try:
            verdict = replicas.ask(replica, ask)
        except OperationError:
            assert event == "away"
            continue
        if event == "late" or verdict is None:
            continue
        epochs[rank] += 1 if verdict else 0
        stopped |= set() if verdict else {rank}
    assert all(len(answers) == 1 for answers in replicas.verdicts.values())
    assert len({epochs[rank] for rank in stopped}) <= 1
    assert len(replicas.schedules) <= 1
    assert None not in replicas.schedules
    assert all(epochs[rank] <= min((epochs[each] for each in stopped), default=99) for rank in range(RANKS))


def test_other_ranks_wait_for_rank_0(api: Api) -> None:
    name, token = api.recurrence()
    with ThreadPoolExecutor(RANKS) as threads:
        waiting = [threads.submit(api.post, name, token, question(rank, 1).to_json()) for rank in range(1, RANKS)]
        first = api.post(name, token, question(0, 1, metric=0.99).to_json())
        answers = [first, *(each.result() for each in waiting)]
    assert [(each.body["stop"], each.body["reached"], each.body["stop_epoch"]) for each in answers] == [
        (True, True, 1)
    ] * RANKS


def test_a_verdict_of_another_replica_is_found(api: Api) -> None:
    name, token = api.recurrence()
    other = ReportService(local_progress(api.store, lambda: None), api.tokens, max_wait_seconds=MAX_WAIT_SECONDS)
    replica = HttpService("reporting API", create_app(other), Address("127.0.0.1", 0))
    with replica, ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(replace(api, url=replica.url).post, name, token, question(1, 1).to_json())
        api.post(name, token, question(0, 1).to_json())
        assert (waiting.result().body["stop"], waiting.result().body["decided_epoch"]) == (False, 1)


def test_the_end_of_an_attempt_is_a_verdict(api: Api) -> None:
    name, token = api.recurrence()
    asked = threading.Event()

    def ask() -> Reply:
        asked.set()
        return api.post(name, token, question(2, 1).to_json())

    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(ask)
        asked.wait()
        api.post(name, token, {**question(1, 1).to_json(), "verdict_epoch": None})
        write_result(api, name)
        reply = waiting.result()
    assert (reply.body["stop"], reply.body["stop_epoch"]) == (True, 1)
    assert reply.body["reason"].startswith("the attempt has ended: rank 0 crashed")


def write_result(api: Api, name: str) -> None:
    """Write the result as the reconciler does: again if a report was written meanwhile."""
    while True:
        with contextlib.suppress(ObjectConflictError):
            return api.write_status(name, result=Result.CRASHED, message="rank 0 crashed")


@pytest.mark.parametrize(("epoch", "ahead", "decided"), [(1, 50, 1), (40, 50, 42), (400, 5, 405)])
def test_a_verdict_covers_at_most_a_twentieth_more_epochs(epoch: int, ahead: int, decided: int) -> None:
    service = Replicas(limited(1e9)).services[0]
    assert service.receive("team", "run", question(0, epoch, ahead=ahead)).decided_epoch == decided


def test_a_thousand_ranks_cost_one_write_and_one_read_of_a_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    replicas = Replicas(limited(1e9))
    store = replicas.progress_store
    reads: list[Any] = []
    read = store.read
    monkeypatch.setattr(store, "read", lambda *key: reads.append(key) or read(*key))
    replicas.ask(0, question(0, 1))
    before = len(reads), len(store.writes)
    for rank in range(1, 1000):
        ask = replace(question(rank % RANKS, 1), rank=rank, ranks=1000, gpus=())
        assert replicas.ask(0, ask) is True
    assert (len(reads), len(store.writes)) == before
    # Those that wait at the other replica read what was written, once a second.
    answers = [replicas.services[1].present_answer("team", "run", question(1, 1)) for _ in range(1000)]
    assert {answer.goes_on_after(1) for answer in answers} == {True}
    assert len(reads) == before[0] + 1


def test_all_ranks_get_the_sums_of_a_schedule_once_all_have_measured_its_last_limit() -> None:
    replicas = Replicas(limited(1e9))
    schedule = LimitSchedule(1, 5, (300, 250, 200))
    replicas.ask(0, replace(question(0, 1), limit_schedule=schedule))
    # Rank 2 was interrupted at 250 W. Each measured a quarter of an epoch.
    measured = {rank: [300.0, 250.0, 200.0] for rank in range(RANKS)} | {2: [300.0, 200.0]}
    for rank, limits in measured.items():
        profile = tuple(LimitMeasurement(watts, watts, 4.0 + rank, 0.25) for watts in limits)
        answer = replicas.services[0].receive("team", "run", replace(question(rank, 2), profile=profile))
        assert (answer.limit_schedule, answer.profile) == (schedule, ())
    # All ranks choose after the next epoch that rank 0 asks about.
    replicas.progress_store.now += 1.0
    for replica, rank in enumerate((0, 1)):
        answer = replicas.services[replica].receive("team", "run", question(rank, 3))
        assert (answer.choice_epoch, answer.profile_gpus) == (3, RANKS)
        # For an epoch: the energy of all, and the time of the slowest one.
        assert answer.profile == tuple(LimitMeasurement(watts, 16 * watts, 28.0, 1.0) for watts in (300.0, 200.0))


def test_one_rank_is_told_to_stop_as_before() -> None:
    service = Replicas(limited(1500.0)).services[0]
    assert service.receive("team", "run", replace(question(0, 1), ranks=1, verdict_epoch=None)) == Answer()
    answer = service.receive("team", "run", replace(question(0, 2), ranks=1, verdict_epoch=None))
    assert (answer.stop, answer.stop_epoch, answer.decided_epoch) == (True, None, 0)
