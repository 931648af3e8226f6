"""An operator that is away at any moment of a training loses nothing of it: the pod keeps what was not delivered."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest

from support.backends.sample_reports import START
from support.reporting.memory_progress_store import DECIDED, MemoryProgressStore
from wattloop.commands.settings import Address
from wattloop.run.report_channel import ReportChannel
from wattloop.wire.training_messages import GpuEnergy, Report
from wattloop.wire.undelivered_reports import unpacked
from wattloop_operator.api.attempt_state import Result
from wattloop_operator.domain.progress import Progress
from wattloop_operator.domain.snapshot import WorkloadPhase, WorkloadState
from wattloop_operator.http.http_service import HttpService
from wattloop_operator.reconcile.attempt.outcome import Ended, assess
from wattloop_operator.reporting.app import create_app
from wattloop_operator.reporting.report_limits import ReportLimits
from wattloop_operator.reporting.service import ReportService
from wattloop_operator.workloads.container_status import undelivered_reports

NAMESPACE, NAME = DECIDED.metadata.namespace, DECIDED.metadata.name
EPOCHS = 3
# Before the first report, before that of each epoch, before the last one, and after it.
LAST_REPORT, END = EPOCHS + 1, EPOCHS + 2
# Shorter than the waits of a channel whose reports fail.
EPOCH_SECONDS = 10.0


@dataclass
class Operator:
    """The reporting API, its store and its absences: of the process, so that none listens, or of its database."""

    loses_database: bool
    store: MemoryProgressStore = field(default_factory=MemoryProgressStore)
    away: bool = False

    def __post_init__(self) -> None:
        self.serve(0)
        self.url = f"{self.served.url}/v1/namespaces/{NAMESPACE}/recurrences/{NAME}"

    def serve(self, port: int) -> None:
        # No limit of the rate delays a report.
        seconds = itertools.count(1.0)
        self.service = ReportService(self.store, self.store, limits=ReportLimits(lambda: next(seconds)))
        self.served = HttpService("reports", create_app(self.service), Address("127.0.0.1", port))
        self.served.start()

    def become(self, *, away: bool) -> None:
        if self.away == away:
            return
        self.away = away
        if self.loses_database:
            self.store.away = away
        elif away:
            self.served.stop()
        else:
            self.serve(self.served.address.port)


@dataclass
class Training:
    """The processes of one container. Their clock is virtual."""

    url: str
    message: Path
    ranks: int
    metrics: tuple[float, ...]
    now: float = 100.0

    def __post_init__(self) -> None:
        self.message.write_text("")
        self.channels = [
            ReportChannel(
                self.url, termination_message_path=str(self.message), clock=lambda: self.now, sleep=self._sleep
            )
            for _ in range(self.ranks)
        ]

    def report(self, moment: int) -> None:
        """Each process sends its report of this moment; none does at the end."""
        epoch = min(moment, EPOCHS)
        for rank, channel in enumerate(self.channels) if moment < END else ():
            seconds = EPOCH_SECONDS * moment
            gpu = GpuEnergy(f"GPU-{rank}", 1000, 1000 + round(200_000 * seconds), 50.0, 50.0 + seconds, shared=False)
            report = Report(
                process=f"process {rank}",
                sequence=moment + 1,
                epoch=float(epoch),
                metric=self.metrics[epoch - 1] if epoch else None,
                evaluations=epoch,
                gpus=(gpu,),
                max_power_limit_watts=400.0,
                finished=moment == LAST_REPORT,
                rank=rank,
                ranks=self.ranks,
            )
            if report.finished:
                channel.send_last(report, 60.0)
            else:
                channel.send(report)
        self.now += EPOCH_SECONDS

    def _sleep(self, seconds: float) -> None:
        self.now += seconds


@dataclass(frozen=True)
class Known:
    """What an operator knows of a training that has ended."""

    ended: Ended
    epochs: float
    metric: float | None
    millijoules: int
    ended_ranks: str


@pytest.fixture(params=[False, True], ids=["operator", "database"])
def operator(request: pytest.FixtureRequest) -> Iterator[Operator]:
    made = Operator(request.param)
    yield made
    made.become(away=False)
    made.served.stop()


def known_after(operator: Operator, training: Training, away: range, *, pod_is_kept: bool = True) -> Known:
    """What is known in the end of a training at whose moments in `away` the operator is away."""
    operator.store.put(Progress())
    for moment in range(END + 1):
        operator.become(away=moment in away)
        training.report(moment)
    operator.become(away=False)
    state = {"terminated": {"exitCode": 0, "message": training.message.read_text()}}
    pod = {
        "metadata": {"name": "a-x", "uid": "u"},
        "status": {"containerStatuses": [{"name": "train", "state": state}]},
    }
    for text in undelivered_reports([pod] if pod_is_kept else []):
        for _ in range(2):
            # The next leader reads it again.
            operator.service.receive_undelivered(
                NAMESPACE, NAME, unpacked(text.packed), text.pod_uid, superseded=text.superseded
            )
    attempt = operator.store.recurrence
    ended_at = START + timedelta(seconds=training.now)
    back = ended_at + timedelta(hours=1) if END in away else START
    workload = WorkloadState(NAME, phase=WorkloadPhase.SUCCEEDED, ended_at=ended_at)
    ended = assess(attempt, workload, deadline_seconds=None, ending_since=None, observed_since=back, now=back)
    assert isinstance(ended, Ended)
    progress = attempt.progress
    return Known(
        ended,
        float(progress.epoch or 0),
        None if progress.metric is None else float(progress.metric),
        sum(gpu.used_millijoules for gpu in progress.gpus),
        progress.ended_ranks,
    )


ABSENCES = [range(gone, back) for gone, back in itertools.combinations(range(END + 2), 2)]


@pytest.mark.parametrize(
    ("ranks", "metrics", "result"),
    [(1, (0.5, 0.6, 0.8), Result.EXHAUSTED), (2, (0.5, 0.6, 0.95), Result.REACHED)],
    ids=["one rank misses", "two ranks reach"],
)
def test_a_training_has_the_same_outcome_whenever_the_operator_is_away(
    operator: Operator, tmp_path: Path, ranks: int, metrics: tuple[float, ...], result: Result
) -> None:
    def training() -> Training:
        return Training(operator.url, tmp_path / "termination-log", ranks, metrics)

    expected = known_after(operator, training(), range(0))
    assert (expected.ended.result, expected.epochs, expected.metric) == (result, EPOCHS, metrics[-1])
    assert expected.millijoules == ranks * round(200_000 * EPOCH_SECONDS * LAST_REPORT)
    for away in ABSENCES:
        assert known_after(operator, training(), away) == expected, away


def test_without_its_pod_a_training_whose_last_report_is_not_known_is_disrupted(
    operator: Operator, tmp_path: Path
) -> None:
    for away in ABSENCES:
        training = Training(operator.url, tmp_path / "termination-log", 1, (0.5, 0.6, 0.8))
        ended = known_after(operator, training, away, pod_is_kept=False).ended
        is_known = LAST_REPORT not in away
        if END in away:
            assert (ended.result is Result.EXHAUSTED) is is_known, away
            assert is_known or "while the operator or its database was away" in ended.message


@pytest.mark.parametrize("restarted_is_known", [False, True])
@pytest.mark.parametrize("first_is_known", [False, True])
def test_a_process_that_was_started_again_is_never_taken_to_follow_the_one_after_it(
    *, first_is_known: bool, restarted_is_known: bool
) -> None:
    store = MemoryProgressStore()
    service = ReportService(store, store)

    def report(process: str, sequence: int, epoch: float, metric: float) -> Report:
        return Report(process=process, sequence=sequence, epoch=epoch, metric=metric, evaluations=int(epoch))

    if first_is_known:
        service.receive(NAMESPACE, NAME, report("first", 1, 1.0, 0.5))
    if restarted_is_known:
        service.receive(NAMESPACE, NAME, report("second", 1, 1.0, 0.6))
    service.receive_undelivered(NAMESPACE, NAME, [report("first", 9, 4.0, 0.7)], "uid", superseded=True)
    service.receive(NAMESPACE, NAME, report("second", 2, 2.0, 0.65))
    progress = store.progress()
    # The epochs of a process that nothing is known of are lost: its place is not known.
    assert float(progress.epoch or 0) == (2.0 if restarted_is_known and not first_is_known else 6.0)
    assert float(progress.metric or 0) == 0.65
