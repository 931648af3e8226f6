"""The ledger's file: over restarts, on a full disk, without a folder, damaged, cut off, in another monitor's hands."""

from __future__ import annotations

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

from support.agents.simulated_day import TrueGpu, pod, seen
from wattloop_agent.monitor.energy.ledger_file import MAX_BYTES, NAME, CorruptLedger, LedgerFile
from wattloop_agent.monitor.energy.recorder import WRITE_SECONDS, LedgerWriter

GPU = TrueGpu([(0.0, 300.0)])


class Monitor:
    """Books at a virtual time, of a GPU under one load of the driver."""

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
            self.ledger_writer.ledger.observe(seen(self.moment, pod("one")))
            for _ in range(10):
                self.moment += 0.1
                self.ledger_writer.add_samples([self.gpu.sample(self.moment - 0.005)])
            self.ledger_writer.write_if_due()

    @property
    def energy(self) -> int:
        return sum(each.energy_millijoules for each in self.ledger_writer.ledger.usages())


def test_the_next_monitor_goes_on_with_what_was_written(tmp_path: Path) -> None:
    first = Monitor(tmp_path)
    first.run(5.0)
    first.ledger_writer.close()
    second = Monitor(tmp_path, 60.0)
    assert second.ledger_writer.ledger.id == first.ledger_writer.ledger.id
    assert second.energy == first.energy
    second.run(62.0)
    assert second.energy == pytest.approx(60 * 300_000, rel=0.05)


def test_what_changed_hands_is_written_soon_and_what_is_merely_used_now_and_then(tmp_path: Path) -> None:
    monitor = Monitor(tmp_path)
    monitor.run(4.0)
    assert [interval["pod"] for interval in json.loads((tmp_path / NAME).read_text())["ledger"]["intervals"]] == ["one"]
    first = monitor.ledger_writer.written_seconds
    assert first is not None
    monitor.run(first + WRITE_SECONDS - 1.5)
    assert monitor.ledger_writer.written_seconds == first
    monitor.run(first + WRITE_SECONDS + 1.5)
    assert monitor.ledger_writer.written_seconds > first


def test_a_monitor_that_is_killed_after_its_first_look_has_forgotten_nothing(tmp_path: Path) -> None:
    first = Monitor(tmp_path)
    woken: list[float] = []
    first.ledger_writer.on_due = lambda: woken.append(first.moment)
    first.moment += 0.1
    first.ledger_writer.add_samples([])
    first.ledger_writer.write_if_due()
    assert (woken, first.ledger_writer.written_seconds) == ([], None), "nothing was seen yet"
    first.ledger_writer.add_samples([GPU.sample(first.moment)])
    assert woken == [first.moment], "it is not waited for the next time"
    first.ledger_writer.write_if_due()
    written = first.ledger_writer.written_seconds
    first.moment += 0.1
    first.ledger_writer.add_samples([GPU.sample(first.moment)])
    first.ledger_writer.write_if_due()
    assert first.ledger_writer.written_seconds == written, "later ones are written now and then"
    # As the kernel does it for one that is killed: the lock goes, and nothing is written.
    assert first.ledger_writer._file is not None
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
def test_a_damaged_ledger_is_set_aside_and_told_and_another_is_begun(
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
    assert "corrupt-0" in second.ledger_writer.problem, "it is told until a person has seen it"
    assert Monitor(tmp_path, 70.0).ledger_writer.ledger.id == second.ledger_writer.ledger.id


def test_damaged_ledgers_do_not_fill_the_disk(tmp_path: Path) -> None:
    for _ in range(15):
        (tmp_path / NAME).write_bytes(b"damaged")
        Monitor(tmp_path).ledger_writer.close()
    assert len(list(tmp_path.glob("*.corrupt-*"))) == 10


@settings(deadline=None, max_examples=50)
@given(st.binary(max_size=300))
def test_no_bytes_make_the_file_do_worse_than_refuse(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    folder = tmp_path_factory.mktemp("ledger")
    (folder / NAME).write_bytes(data)
    file = LedgerFile(folder)
    with pytest.raises(CorruptLedger):
        file.read()
    file.close()


def test_a_record_that_is_whole_and_wrong_is_set_aside_too(tmp_path: Path) -> None:
    file = LedgerFile(tmp_path)
    file.write({"id": "x", "boot": "boot", "accounts": [{"uuid": "GPU-1"}]})
    file.close()
    monitor = Monitor(tmp_path)
    assert "KeyError" in monitor.ledger_writer.problem
    assert monitor.ledger_writer.ledger.id != "x"


def test_two_monitors_never_write_one_ledger_and_the_second_goes_on_where_the_first_ends(tmp_path: Path) -> None:
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


def test_on_a_full_disk_accounting_goes_on_in_memory_and_is_written_once_there_is_space(tmp_path: Path) -> None:
    monitor = Monitor(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        monitor.run(20.0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert os.strerror(errno.EFBIG) in monitor.ledger_writer.problem
    assert list(tmp_path.iterdir()) == [], "half a file is not left behind"
    assert monitor.energy == pytest.approx(18.5 * 300_000, rel=0.1)
    monitor.run(32.0)
    assert monitor.ledger_writer.problem == ""
    assert (tmp_path / NAME).exists()


def test_a_folder_that_can_not_be_made_is_told_and_tried_again(tmp_path: Path) -> None:
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
def test_a_monitor_that_is_killed_at_any_moment_loses_no_energy(
    tmp_path_factory: pytest.TempPathFactory, lives: list[tuple[float, float, bool]]
) -> None:
    folder = tmp_path_factory.mktemp("ledger")
    monitor = Monitor(folder)
    monitor.run(4.0)
    begun = monitor.ledger_writer.ledger.usages()[0].start_time_seconds
    for lived, dead, ended_well in lives:
        monitor.run(monitor.moment + lived)
        told = monitor.energy
        if ended_well:
            monitor.ledger_writer.close()
        else:
            lose_the_lock(monitor.ledger_writer)
        monitor = Monitor(folder, monitor.moment + dead)
        monitor.run(monitor.moment + 3.0)
        assert monitor.energy >= told, "cumulative energy never falls"
    (held,) = monitor.ledger_writer.ledger.usages()
    truth = (GPU.energy(held.time_seconds) - GPU.energy(begun)) * 1000
    assert abs(held.energy_millijoules - truth) <= held.uncertainty_millijoules + 1
    assert held.uncertainty_millijoules < 700_000
    monitor.ledger_writer.close()


def lose_the_lock(ledger_writer: LedgerWriter) -> None:
    """As the kernel does when a process is killed: nothing is written."""
    assert ledger_writer._file is not None
    ledger_writer._file.close()
    ledger_writer._file = None


class Killed(BaseException):
    """The process ends here: nothing after it is carried out."""


CALLS = ("open", "fsync", "rename")


def killed_at(point: int, patch: pytest.MonkeyPatch) -> None:
    """Die before or after one of the system calls of a write, counted from 0."""
    passed = itertools.count()

    def around(call: Callable[..., object]) -> Callable[..., object]:
        def counted(*arguments: object, **words: object) -> object:
            if next(passed) == point:
                raise Killed
            result = call(*arguments, **words)
            if next(passed) == point:
                raise Killed
            return result

        return counted

    for name in CALLS:
        patch.setattr(os, name, around(getattr(os, name)))


@pytest.mark.parametrize("point", range(8))
def test_a_kill_at_every_point_of_a_write_leaves_the_older_or_the_newer_ledger(tmp_path: Path, point: int) -> None:
    file = LedgerFile(tmp_path)
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


def test_a_write_has_no_other_points(tmp_path: Path) -> None:
    file = LedgerFile(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        killed_at(8, patch)
        file.write({"number": 1})
    assert file.read() == {"number": 1}
    file.close()


def away(
    folder: Path, gpu: TrueGpu, drivers: tuple[str | None, str | None], begin: float = 0.0
) -> tuple[Monitor, float]:
    """A monitor that comes back after 55 seconds, and what the GPU truly used since the first one began."""
    first = Monitor(folder, begin, driver=drivers[0], gpu=gpu)
    first.run(begin + 5.0)
    first.ledger_writer.close()
    second = Monitor(folder, begin + 60.0, driver=drivers[1], gpu=gpu)
    second.run(begin + 70.0)
    (told,) = second.ledger_writer.ledger.gpus()
    return second, (gpu.energy(told.time_seconds) - gpu.energy(begin + 0.1)) * 1000


RELOADED = TrueGpu([(0.0, 300.0)], resets=[6.0])


def test_a_driver_that_was_loaded_again_is_noticed_though_its_counter_has_passed_the_old_one(tmp_path: Path) -> None:
    monitor, truth = away(tmp_path, RELOADED, ("module 1", "module 2"))
    (told,) = monitor.ledger_writer.ledger.gpus()
    assert RELOADED.counter(60.0) > RELOADED.counter(5.0), "the counter itself shows nothing"
    assert monitor.ledger_writer.ledger.resets() == {told.uuid: 1}
    assert abs(told.energy_millijoules - truth) <= told.uncertainty_millijoules
    assert told.energy_millijoules > RELOADED.counter(60.0), "more than a difference of two readings"


def test_where_nothing_tells_of_the_driver_the_uncertainty_covers_what_a_load_would_have_hidden(tmp_path: Path) -> None:
    monitor, truth = away(tmp_path, RELOADED, (None, None))
    (told,) = monitor.ledger_writer.ledger.gpus()
    assert monitor.ledger_writer.ledger.resets() == {told.uuid: 0}
    assert truth - told.energy_millijoules > 1_000_000, "what went unseen"
    assert abs(told.energy_millijoules - truth) <= told.uncertainty_millijoules


@pytest.mark.parametrize("drivers", [(None, "module 1"), ("module 1", None)])
def test_a_driver_that_is_known_once_only_tells_nothing(tmp_path: Path, drivers: tuple[str | None, str | None]) -> None:
    monitor, truth = away(tmp_path, RELOADED, drivers)
    (told,) = monitor.ledger_writer.ledger.gpus()
    assert abs(told.energy_millijoules - truth) <= told.uncertainty_millijoules


@pytest.mark.parametrize(
    ("drivers", "begin"),
    [(("module 1", "module 1"), 0.0), ((None, None), 3600.0)],
    ids=["the driver is the same", "its counter says more than any GPU uses in a minute"],
)
def test_a_counter_that_can_not_have_begun_anew_costs_no_certainty(
    tmp_path: Path, drivers: tuple[str | None, str | None], begin: float
) -> None:
    monitor, truth = away(tmp_path, GPU, drivers, begin)
    (told,) = monitor.ledger_writer.ledger.gpus()
    assert abs(told.energy_millijoules - truth) <= told.uncertainty_millijoules
    assert told.uncertainty_millijoules < 100_000


def test_a_driver_that_is_loaded_again_between_two_looks_is_noticed_too(tmp_path: Path) -> None:
    monitor = Monitor(tmp_path, gpu=RELOADED)
    monitor.run(5.0)
    monitor.moment, monitor.driver = 40.0, "module 2"
    monitor.run(45.0)
    (told,) = monitor.ledger_writer.ledger.gpus()
    assert monitor.ledger_writer.ledger.resets() == {told.uuid: 1}
    truth = (GPU.energy(told.time_seconds) - GPU.energy(0.1)) * 1000
    assert abs(told.energy_millijoules - truth) <= told.uncertainty_millijoules


def test_samples_around_a_load_of_the_driver_are_left_out(tmp_path: Path) -> None:
    monitor = Monitor(tmp_path)
    monitor.run(5.0)
    # Looked at before, asked for the driver after: of which load the sample is nobody can say.
    monitor.driver = "module 2"
    monitor.moment += 0.1
    monitor.ledger_writer.add_samples([GPU.sample(monitor.moment - 0.005)])
    monitor.gpu = TrueGpu([(0.0, 300.0)], resets=[monitor.moment])
    monitor.run(10.0)
    (told,) = monitor.ledger_writer.ledger.gpus()
    assert monitor.ledger_writer.ledger.resets() == {told.uuid: 1}
    truth = (GPU.energy(told.time_seconds) - GPU.energy(0.1)) * 1000
    assert abs(told.energy_millijoules - truth) <= told.uncertainty_millijoules
