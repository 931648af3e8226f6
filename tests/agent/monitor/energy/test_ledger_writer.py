"""The ledger's file: restarts, a full disk, a missing folder, damage, and another monitor."""

import errno
import itertools
import json
import os
import resource
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.agents.simulated_day import TrueGpu, observation_at, pod
from wattloop_agent.durable_file import CorruptFileError
from wattloop_agent.monitor.energy.recorder import MAX_BYTES, NAME, WRITE_SECONDS, LedgerWriter, opened_ledger_file

GPU = TrueGpu([(0.0, 300.0)])


class Monitor:
    """A ledger writer in virtual time, with a GPU and a driver load."""

    def __init__(
        self,
        folder: Path,
        begin: float = 0.0,
        boot: str = "boot",
        *,
        driver: str | None = "module 1",
        gpu: TrueGpu = GPU,
    ) -> None:
        self.moment = begin
        self.driver = driver
        self.gpu = gpu
        self.ledger_writer = LedgerWriter(
            folder, clock=lambda: self.moment, boot=lambda: boot, driver=lambda: self.driver
        )

    def run(self, until: float) -> None:
        while self.moment < until:
            self.ledger_writer.ledger.observe(observation_at(self.moment, pod("one")))
            for _ in range(10):
                self.moment += 0.1
                self.ledger_writer.add_samples([self.gpu.sample(self.moment - 0.005)])
            self.ledger_writer.write_if_due()

    @property
    def energy(self) -> int:
        return sum(each.energy_millijoules for each in self.ledger_writer.ledger.usages())


def test_the_next_monitor_continues_the_written_ledger(tmp_path: Path) -> None:
    first = Monitor(tmp_path)
    first.run(5.0)
    first.ledger_writer.close()
    second = Monitor(tmp_path, 60.0)
    assert second.ledger_writer.ledger.id == first.ledger_writer.ledger.id
    assert second.energy == first.energy
    second.run(62.0)
    assert second.energy == pytest.approx(60 * 300_000, rel=0.05)


def test_a_changed_assignment_is_written_soon_and_energy_alone_seldom(tmp_path: Path) -> None:
    monitor = Monitor(tmp_path)
    monitor.run(4.0)
    assert [interval["pod"] for interval in json.loads((tmp_path / NAME).read_text())["ledger"]["intervals"]] == ["one"]
    first = monitor.ledger_writer.written_seconds
    monitor.run(first + WRITE_SECONDS - 1.5)
    assert monitor.ledger_writer.written_seconds == first
    monitor.run(first + WRITE_SECONDS + 1.5)
    assert monitor.ledger_writer.written_seconds > first


def test_a_monitor_killed_after_its_first_sampling_loses_nothing(tmp_path: Path) -> None:
    first = Monitor(tmp_path)
    woken: list[float] = []
    first.ledger_writer.on_due = lambda: woken.append(first.moment)
    first.moment += 0.1
    first.ledger_writer.add_samples([])
    first.ledger_writer.write_if_due()
    assert (woken, first.ledger_writer.written_seconds) == ([], None), "there are no samples yet"
    first.ledger_writer.add_samples([GPU.sample(first.moment)])
    assert woken == [first.moment], "the first write is due immediately"
    first.ledger_writer.write_if_due()
    written = first.ledger_writer.written_seconds
    first.moment += 0.1
    first.ledger_writer.add_samples([GPU.sample(first.moment)])
    first.ledger_writer.write_if_due()
    assert first.ledger_writer.written_seconds == written, "later samplings are written seldom"
    # Like the kernel for a killed process: the lock is released, and nothing is written.
    first.ledger_writer._file.close()
    second = Monitor(tmp_path, 8.0)
    assert second.ledger_writer.ledger.id == first.ledger_writer.ledger.id
    second.ledger_writer.add_samples([GPU.sample(8.0)])
    (gpu,) = second.ledger_writer.ledger.gpus()
    assert gpu.energy_millijoules == pytest.approx(8 * 300_000, rel=0.05)


@pytest.mark.parametrize(
    "damage",
    {
        "cut off": lambda data: data[: len(data) // 2],
        "empty": lambda data: b"",
        "another digit": lambda data: data.replace(b'"resets":0', b'"resets":1'),
        "another format": lambda data: data.replace(b'"format":1', b'"format":2'),
        "no JSON": lambda data: b"\xff" * 100,
        "a list": lambda data: b"[]",
        "too deep": lambda data: b"[" * 100_000,
        "too long": lambda data: data + b" " * MAX_BYTES,
    }.values(),
)
def test_a_damaged_ledger_is_moved_aside_and_reported_and_a_new_one_begins(
    tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    first = Monitor(tmp_path)
    first.run(5.0)
    first.ledger_writer.close()
    path = tmp_path / NAME
    damaged = damage(path.read_bytes())
    path.write_bytes(damaged)
    second = Monitor(tmp_path, 60.0)
    assert second.ledger_writer.ledger.id != first.ledger_writer.ledger.id
    assert f"moved to {path}.corrupt-0" in second.ledger_writer.problem
    assert path.with_name(f"{NAME}.corrupt-0").read_bytes() == damaged
    second.run(65.0)
    second.ledger_writer.close()
    assert "corrupt-0" in second.ledger_writer.problem, "the problem remains until the restart"
    assert Monitor(tmp_path, 70.0).ledger_writer.ledger.id == second.ledger_writer.ledger.id


def test_damaged_ledgers_do_not_fill_the_disk(tmp_path: Path) -> None:
    for _ in range(15):
        (tmp_path / NAME).write_bytes(b"damaged")
        Monitor(tmp_path).ledger_writer.close()
    assert len(list(tmp_path.glob("*.corrupt-*"))) == 10


@settings(deadline=None, max_examples=50)
@given(st.binary(max_size=300))
def test_any_invalid_bytes_are_rejected(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    folder = tmp_path_factory.mktemp("ledger")
    (folder / NAME).write_bytes(data)
    file = opened_ledger_file(folder)
    with pytest.raises(CorruptFileError):
        file.read()
    file.close()


def test_an_intact_file_with_an_invalid_record_is_moved_aside(tmp_path: Path) -> None:
    file = opened_ledger_file(tmp_path)
    file.write({"id": "x", "boot": "boot", "accounts": [{"uuid": "GPU-1"}]})
    file.close()
    monitor = Monitor(tmp_path)
    assert "KeyError" in monitor.ledger_writer.problem
    assert monitor.ledger_writer.ledger.id != "x"


def test_two_monitors_never_write_one_ledger_and_the_second_continues_when_the_first_ends(tmp_path: Path) -> None:
    first = Monitor(tmp_path)
    first.run(5.0)
    second = Monitor(tmp_path, 5.0)
    second.run(8.0)
    assert "another agent uses this state folder" in second.ledger_writer.problem
    assert second.ledger_writer.ledger.usages() == second.ledger_writer.ledger.gpus() == ()
    first.ledger_writer.close()
    second.run(12.0)
    assert second.ledger_writer.problem == ""
    assert second.ledger_writer.ledger.id == first.ledger_writer.ledger.id
    assert second.energy > first.energy


def test_on_a_full_disk_the_ledger_stays_in_memory_and_is_written_once_there_is_space(tmp_path: Path) -> None:
    monitor = Monitor(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        monitor.run(20.0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert os.strerror(errno.EFBIG) in monitor.ledger_writer.problem
    assert list(tmp_path.iterdir()) == [], "no partial file is left"
    assert monitor.energy == pytest.approx(18.5 * 300_000, rel=0.1)
    monitor.run(32.0)
    assert monitor.ledger_writer.problem == ""
    assert (tmp_path / NAME).exists()


def test_a_folder_that_cannot_be_created_is_reported_and_tried_again(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file in the folder's place")
    monitor = Monitor(tmp_path / "state" / "monitor")
    monitor.run(5.0)
    assert "can't be stored there" in monitor.ledger_writer.problem
    assert monitor.energy > 0
    (tmp_path / "state").unlink()
    monitor.run(12.0)
    assert monitor.ledger_writer.problem == ""
    assert (tmp_path / "state" / "monitor").stat().st_mode & 0o777 == 0o700


def test_a_ledger_that_could_not_be_read_at_the_start_is_not_overwritten(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    first = Monitor(folder)
    first.run(5.0)
    first.ledger_writer.close()
    folder.rename(tmp_path / "away")
    folder.write_text("a file in the folder's place")
    second = Monitor(folder, 6.0)
    folder.unlink()
    (tmp_path / "away").rename(folder)
    second.run(20.0)
    assert "could not be read at the start" in second.ledger_writer.problem
    assert first.ledger_writer.ledger.id in (folder / f"{NAME}.corrupt-0").read_text()
    assert second.ledger_writer.ledger.id in (folder / NAME).read_text()


@settings(deadline=None, max_examples=25)
@given(st.lists(st.tuples(st.floats(0.5, 15.0), st.floats(0.1, 20.0), st.booleans()), max_size=5))
def test_a_monitor_killed_at_any_moment_loses_no_energy(
    tmp_path_factory: pytest.TempPathFactory, lives: list[tuple[float, float, bool]]
) -> None:
    folder = tmp_path_factory.mktemp("ledger")
    monitor = Monitor(folder)
    monitor.run(4.0)
    start = monitor.ledger_writer.ledger.usages()[0].start_time_seconds
    for running_seconds, away_seconds, closed in lives:
        monitor.run(monitor.moment + running_seconds)
        reported = monitor.energy
        if closed:
            monitor.ledger_writer.close()
        else:
            kill(monitor.ledger_writer)
        monitor = Monitor(folder, monitor.moment + away_seconds)
        monitor.run(monitor.moment + 3.0)
        assert monitor.energy >= reported, "cumulative energy never falls"
    (usage,) = monitor.ledger_writer.ledger.usages()
    actual = (GPU.energy(usage.time_seconds) - GPU.energy(start)) * 1000
    assert abs(usage.energy_millijoules - actual) <= usage.uncertainty_millijoules + 1
    assert usage.uncertainty_millijoules < 700_000
    monitor.ledger_writer.close()


def kill(ledger_writer: LedgerWriter) -> None:
    """Release the lock like the kernel for a killed process, without a write."""
    ledger_writer._file.close()
    ledger_writer._file = None


class Killed(BaseException):
    """Ends the process at this point."""


CALLS = ("open", "fsync", "rename")


def killed_at(point: int, patch: pytest.MonkeyPatch) -> None:
    """Kill the process before or after one of the system calls of a write, counted from 0."""
    passed = itertools.count()

    def around(call: Callable[..., object]) -> Callable[..., object]:
        def counted(*arguments: object, **keywords: object) -> object:
            if next(passed) == point:
                raise Killed
            result = call(*arguments, **keywords)
            if next(passed) == point:
                raise Killed
            return result

        return counted

    for name in CALLS:
        patch.setattr(os, name, around(getattr(os, name)))


@pytest.mark.parametrize("point", range(8))
def test_a_kill_at_any_point_of_a_write_leaves_the_older_or_the_newer_ledger(tmp_path: Path, point: int) -> None:
    file = opened_ledger_file(tmp_path)
    file.write({"number": 1})
    with pytest.MonkeyPatch.context() as patch:
        killed_at(point, patch)
        with pytest.raises(Killed):
            file.write({"number": 2})
    # Points 4 and 5 are before and after the rename.
    assert file.read() == {"number": 1 if point < 5 else 2}
    file.write({"number": 3})
    assert file.read() == {"number": 3}
    assert [path.name for path in tmp_path.iterdir()] == [NAME]
    file.close()


def test_a_write_has_no_further_points(tmp_path: Path) -> None:
    file = opened_ledger_file(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        killed_at(8, patch)
        file.write({"number": 1})
    assert file.read() == {"number": 1}
    file.close()


def restarted_after_gap(
    folder: Path, gpu: TrueGpu, drivers: tuple[str | None, str | None], begin: float = 0.0
) -> tuple[Monitor, float]:
    """Return a monitor that starts after a gap of 55 s, and the GPU's exact energy since the first."""
    first = Monitor(folder, begin, driver=drivers[0], gpu=gpu)
    first.run(begin + 5.0)
    first.ledger_writer.close()
    second = Monitor(folder, begin + 60.0, driver=drivers[1], gpu=gpu)
    second.run(begin + 70.0)
    (reported,) = second.ledger_writer.ledger.gpus()
    return second, (gpu.energy(reported.time_seconds) - gpu.energy(begin + 0.1)) * 1000


RELOADED = TrueGpu([(0.0, 300.0)], resets=[6.0])


def test_a_driver_reload_is_detected_although_the_counter_is_higher_than_before(tmp_path: Path) -> None:
    monitor, actual = restarted_after_gap(tmp_path, RELOADED, ("module 1", "module 2"))
    (reported,) = monitor.ledger_writer.ledger.gpus()
    assert RELOADED.counter(60.0) > RELOADED.counter(5.0), "the counter alone does not show the reset"
    assert monitor.ledger_writer.ledger.resets() == {reported.uuid: 1}
    assert abs(reported.energy_millijoules - actual) <= reported.uncertainty_millijoules
    assert reported.energy_millijoules > RELOADED.counter(60.0), "more than the difference of the readings"


def test_without_a_known_driver_load_the_uncertainty_covers_a_possible_reset(tmp_path: Path) -> None:
    monitor, actual = restarted_after_gap(tmp_path, RELOADED, (None, None))
    (reported,) = monitor.ledger_writer.ledger.gpus()
    assert monitor.ledger_writer.ledger.resets() == {reported.uuid: 0}
    assert actual - reported.energy_millijoules > 1_000_000, "energy that the counter lost"
    assert abs(reported.energy_millijoules - actual) <= reported.uncertainty_millijoules


@pytest.mark.parametrize("drivers", [(None, "module 1"), ("module 1", None)])
def test_a_driver_load_that_is_known_only_once_is_ignored(
    tmp_path: Path, drivers: tuple[str | None, str | None]
) -> None:
    monitor, actual = restarted_after_gap(tmp_path, RELOADED, drivers)
    (reported,) = monitor.ledger_writer.ledger.gpus()
    assert abs(reported.energy_millijoules - actual) <= reported.uncertainty_millijoules


@pytest.mark.parametrize(
    ("drivers", "begin"),
    [(("module 1", "module 1"), 0.0), ((None, None), 3600.0)],
    ids=["the driver is the same", "the counter is higher than any GPU reaches in a minute"],
)
def test_a_counter_that_cannot_have_been_reset_adds_no_uncertainty(
    tmp_path: Path, drivers: tuple[str | None, str | None], begin: float
) -> None:
    monitor, actual = restarted_after_gap(tmp_path, GPU, drivers, begin)
    (reported,) = monitor.ledger_writer.ledger.gpus()
    assert abs(reported.energy_millijoules - actual) <= reported.uncertainty_millijoules
    assert reported.uncertainty_millijoules < 100_000


def test_a_driver_reload_between_two_samplings_is_detected(tmp_path: Path) -> None:
    monitor = Monitor(tmp_path, gpu=RELOADED)
    monitor.run(5.0)
    monitor.moment, monitor.driver = 40.0, "module 2"
    monitor.run(45.0)
    (reported,) = monitor.ledger_writer.ledger.gpus()
    assert monitor.ledger_writer.ledger.resets() == {reported.uuid: 1}
    actual = (GPU.energy(reported.time_seconds) - GPU.energy(0.1)) * 1000
    assert abs(reported.energy_millijoules - actual) <= reported.uncertainty_millijoules


def test_samples_around_a_driver_reload_are_left_out(tmp_path: Path) -> None:
    monitor = Monitor(tmp_path)
    monitor.run(5.0)
    # The driver load was read after the sample, so the load of the sample is unknown.
    monitor.driver = "module 2"
    monitor.moment += 0.1
    monitor.ledger_writer.add_samples([GPU.sample(monitor.moment - 0.005)])
    monitor.gpu = TrueGpu([(0.0, 300.0)], resets=[monitor.moment])
    monitor.run(10.0)
    (reported,) = monitor.ledger_writer.ledger.gpus()
    assert monitor.ledger_writer.ledger.resets() == {reported.uuid: 1}
    actual = (GPU.energy(reported.time_seconds) - GPU.energy(0.1)) * 1000
    assert abs(reported.energy_millijoules - actual) <= reported.uncertainty_millijoules
