"""Progress is written at most once per interval, and no accepted report is lost."""

import threading
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.backends.sample_reports import pod_energy
from support.reporting.memory_progress_store import DECIDED, MemoryProgressStore
from wattloop.errors import OperationError
from wattloop.wire.training_messages import GpuEnergy, Report
from wattloop_operator.api.attempt_state import Result
from wattloop_operator.domain.records import PodEnergy
from wattloop_operator.reconcile.attempt.report_effect import ObservedGpus, OutputReport, progress_after
from wattloop_operator.reporting.interfaces import UnknownRecurrenceError
from wattloop_operator.reporting.progress_writer import ProgressWriter, ProgressWriterThread
from wattloop_operator.reporting.service import ReceivedReport, ReportService

NOW = datetime(2026, 3, 1, 13, 0, tzinfo=UTC)


@pytest.fixture
def progress_store() -> MemoryProgressStore:
    return MemoryProgressStore()


def writer_of(progress_store: MemoryProgressStore) -> ProgressWriter[ReceivedReport]:
    return ReportService(
        progress_store, progress_store, clock=lambda: progress_store.now, write_interval_seconds=1.0
    ).writer


def epoch(number: int, **changes: object) -> ReceivedReport:
    gpu = GpuEnergy("GPU-0", 0, 1000 * number, 1.0, 1.0 + number)
    report = Report(process="p", sequence=number, epoch=float(number), metric=0.5, evaluations=number, gpus=(gpu,))
    return ReceivedReport(replace(report, **changes), NOW)  # type: ignore[arg-type]


def test_reports_within_a_second_are_merged_into_one_write(progress_store: MemoryProgressStore) -> None:
    writer = writer_of(progress_store)
    for number in range(1, 50):
        writer.merge("team", "run", epoch(number))
    assert len(progress_store.writes) == 1
    writer.write_due()
    assert len(progress_store.writes) == 1
    progress_store.now += 1.0
    writer.write_due()
    assert [progress.epoch for progress in progress_store.writes] == [1, 49]
    assert progress_store.progress().gpus[0].energy_millijoules == 49_000


def test_gpus_that_are_read_from_outside_of_the_training_have_a_recent_power(
    progress_store: MemoryProgressStore,
) -> None:
    seen = OutputReport(0, gpus=ObservedGpus((GpuEnergy("GPU-0", 0, 500_000, 1.0, 3.0),)))
    writer_of(progress_store).merge("team", "run", ReceivedReport(seen, NOW))
    (gpu,) = progress_store.progress().gpus
    assert gpu.recent.power_watts == 250


def test_a_report_after_the_interval_also_writes_waiting_reports(progress_store: MemoryProgressStore) -> None:
    writer = writer_of(progress_store)
    other = GpuEnergy("GPU-1", 0, 7, 1.0, 2.0)
    writer.merge("team", "run", epoch(1))
    writer.merge("team", "run", epoch(1, rank=1, gpus=(other,)))
    progress_store.now += 1.0
    writer.merge("team", "run", epoch(2))
    assert len(progress_store.writes) == 2
    assert [gpu.uuid for gpu in progress_store.progress().gpus] == ["GPU-0", "GPU-1"]


@pytest.mark.parametrize("last", [{"finished": True}, {"metric": 0.99}])
def test_finished_and_reached_are_written_before_the_answer(
    progress_store: MemoryProgressStore, last: dict[str, object]
) -> None:
    writer = writer_of(progress_store)
    for number in (1, 2):
        writer.merge("team", "run", epoch(number))
    writer.merge("team", "run", epoch(3, **last))
    assert progress_store.progress().epoch == 3
    assert len(progress_store.writes) == 2
    for number in range(4, 100):
        writer.merge("team", "run", epoch(number, **last))
    assert len(progress_store.writes) == 2


def test_a_stop_is_written_before_the_answer_and_is_permanent(progress_store: MemoryProgressStore) -> None:
    progress_store.recurrence = DECIDED.model_copy(
        update={"spec": DECIDED.spec.model_copy(update={"stop_cost_joules": Decimal(3)})}
    )
    writer = writer_of(progress_store)
    stops = []
    for number in range(1, 20):
        found = writer.merge("team", "run", epoch(number, max_power_limit_watts=1.0)).progress
        stops.append(found.stop_requested)
    first = stops.index(True)
    assert first > 0
    assert all(stops[first:])
    assert progress_store.progress().stop_requested
    assert len(progress_store.writes) == 2


def test_of_values_that_were_read_at_once_only_the_last_is_judged_and_marks_an_epoch(
    progress_store: MemoryProgressStore,
) -> None:
    """Three epochs were printed within one poll; the energy of all three was that of the second, which was stopped."""
    progress_store.recurrence = DECIDED.model_copy(
        update={"spec": DECIDED.spec.model_copy(update={"stop_cost_joules": Decimal(3)})}
    )
    service = ReportService(progress_store, progress_store, clock=lambda: progress_store.now)
    gpus = ObservedGpus((GpuEnergy("GPU-0", 0, 500_000, 1.0, 3.0),), max_power_limit_watts=300.0)
    for number, metric in enumerate((0.5, 0.6, 0.99), start=1):
        service.observe("team", "run", OutputReport(number, metric, number, gpus=gpus, is_followed=number < 3))
    progress = progress_store.progress()
    assert (progress.reached, progress.stop_requested) == (True, False)
    assert progress.first_epoch.epoch == 3


def test_progress_that_another_replica_wrote_is_preserved(progress_store: MemoryProgressStore) -> None:
    writer = writer_of(progress_store)
    elsewhere = GpuEnergy("GPU-2", 0, 9, 1.0, 2.0)
    writer.merge("team", "run", epoch(1))
    writer.merge("team", "run", epoch(2))

    def another_replica_writes() -> None:
        assert progress_store.recurrence is not None
        progress_store.put(progress_after(progress_store.recurrence, epoch(1, rank=2, gpus=(elsewhere,)).report))

    progress_store.meanwhile = another_replica_writes
    progress_store.now += 1.0
    writer.write_due()
    assert [gpu.uuid for gpu in progress_store.progress().gpus] == ["GPU-0", "GPU-2"]
    assert progress_store.progress().epoch == 2


def test_reports_after_the_outcome_write_nothing(progress_store: MemoryProgressStore) -> None:
    writer = writer_of(progress_store)
    writer.merge("team", "run", epoch(1))
    writer.merge("team", "run", epoch(2))
    progress_store.end(Result.CRASHED)
    progress_store.now += 1.0
    writer.write_due()
    for number in range(3, 20):
        progress_store.now += 1.0
        found = writer.merge("team", "run", epoch(number, finished=True))
        assert found.status.result is Result.CRASHED
    assert len(progress_store.writes) == 1


def test_a_failed_write_is_retried(progress_store: MemoryProgressStore, caplog: pytest.LogCaptureFixture) -> None:
    writer = writer_of(progress_store)
    writer.merge("team", "run", epoch(1))
    writer.merge("team", "run", epoch(2))
    progress_store.away = True
    progress_store.now += 1.0
    writer.write_due()
    assert "cannot write the progress of team/run yet: away" in caplog.text
    with pytest.raises(OperationError):
        writer.merge("team", "run", epoch(3))
    progress_store.away = False
    progress_store.now += 1.0
    writer.write_due()
    assert progress_store.progress().epoch == 2


def test_an_unexpected_failure_of_one_recurrence_delays_no_other(
    progress_store: MemoryProgressStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = writer_of(progress_store)
    for name in ("hostile", "run"):
        for number in (1, 2):
            writer.merge("team", name, epoch(number))
    read = progress_store.read

    def failing(namespace: str, name: str) -> object:
        if name == "hostile":
            raise RecursionError
        return read(namespace, name)

    monkeypatch.setattr(progress_store, "read", failing)
    progress_store.now += 1.0
    writer.write_due()
    assert progress_store.progress().epoch == 2


def test_recurrences_without_new_reports_are_dropped_from_memory(progress_store: MemoryProgressStore) -> None:
    writer = writer_of(progress_store)
    for number in range(100):
        writer.merge("team", f"run-{number}", epoch(number + 1))
    assert len(writer) == 100
    progress_store.now += 2.0
    writer.write_due()
    assert len(writer) == 0


def test_waiting_reports_of_a_deleted_recurrence_are_dropped(progress_store: MemoryProgressStore) -> None:
    writer = writer_of(progress_store)
    writer.merge("team", "run", epoch(1))
    writer.merge("team", "run", epoch(2))
    progress_store.recurrence = None
    progress_store.now += 1.0
    writer.write_due()
    assert len(writer) == 0
    with pytest.raises(UnknownRecurrenceError):
        writer.merge("team", "run", epoch(3))


def test_waiting_progress_is_written_at_shutdown(progress_store: MemoryProgressStore) -> None:
    writer = writer_of(progress_store)
    with ProgressWriterThread(writer):
        writer.merge("team", "run", epoch(1))
        writer.merge("team", "run", epoch(2))
    assert progress_store.progress().epoch == 2
    assert threading.active_count() >= 1


@given(st.lists(st.tuples(st.floats(0, 2), st.integers(1, 30), st.booleans()), max_size=60))
def test_the_interval_bounds_the_writes_and_changes_no_result(sent: list[tuple[float, int, bool]]) -> None:
    progress_store, plain = MemoryProgressStore(), MemoryProgressStore()
    writer, unbounded = writer_of(progress_store), ReportService(plain, plain, clock=lambda: plain.now).writer
    for pause, number, result in sent:
        progress_store.now += pause
        if result:
            writer.write_due()
        writer.merge("team", "run", epoch(number))
        unbounded.merge("team", "run", epoch(number))
    progress_store.now += 1.0
    writer.write_due()
    assert progress_store.progress() == plain.progress()
    # One write at the start and one per second, because no report ends, stops or reaches the
    # target.
    assert len(progress_store.writes) <= 1 + (progress_store.now - 100.0) / 1.0


@dataclass
class MemoryEnergies:
    """The agents' reports about the attempt; counts the reads."""

    energies: tuple[PodEnergy, ...] = ()
    away: bool = False
    reads: int = 0

    def of_attempt(self, job_uid: str, recurrence: int, attempt: int) -> tuple[PodEnergy, ...]:
        assert (job_uid, recurrence, attempt) == ("job-uid", 0, 0)
        self.reads += 1
        if self.away:
            raise OperationError("the database is away")
        return self.energies


def without_gpus(number: int) -> Report:
    return epoch(number, gpus=()).report


def service_with(progress_store: MemoryProgressStore, energies: MemoryEnergies) -> ReportService:
    return ReportService(
        progress_store,
        progress_store,
        energies=energies.of_attempt,
        clock=lambda: progress_store.now,
        utc_now=lambda: NOW,
        write_interval_seconds=1.0,
    )


def test_a_report_without_gpus_gets_the_agents_energy_as_it_was_when_it_arrived(
    progress_store: MemoryProgressStore,
) -> None:
    energies = MemoryEnergies((pod_energy(1000.0, 10.0, ended=False, measured_at=NOW),))
    service = service_with(progress_store, energies)
    service.receive("team", "run", without_gpus(1))
    service.receive("team", "run", without_gpus(2))
    # The second report waits, and is merged once more when it is written.
    energies.energies = (pod_energy(9000.0, 90.0, ended=False, measured_at=NOW),)
    progress_store.now += 1.0
    service.writer.write_due()
    agents = progress_store.progress().agents
    assert (agents.latest.epoch, agents.latest.energy_joules, agents.latest.time_seconds) == (2, 1000, 10)
    assert energies.reads == 2


def test_reports_with_gpus_and_repeated_reports_read_no_energy(progress_store: MemoryProgressStore) -> None:
    energies = MemoryEnergies()
    service = service_with(progress_store, energies)
    service.receive("team", "run", epoch(1).report)
    service.receive("team", "run", without_gpus(2))
    assert energies.reads == 0


def test_a_report_is_stored_although_the_energies_cannot_be_read(
    progress_store: MemoryProgressStore, caplog: pytest.LogCaptureFixture
) -> None:
    service = service_with(progress_store, MemoryEnergies(away=True))
    for number in (1, 2):
        progress_store.now += 1.0
        assert service.receive("team", "run", without_gpus(number)).stop is False
    assert (progress_store.progress().epoch, progress_store.progress().agents) == (2, None)
    assert caplog.text.count("the energy of an epoch is not known: the database is away") == 1
