"""Windows of a monitor on simulated GPUs in virtual time."""

import asyncio
import copy
import gc
import logging
import math
import pickle
import threading
import time
from collections.abc import Iterator

import pytest

import wattloop
from support.sampled_machine import SampledMachine, square_wave, steady
from wattloop.energy_monitor import EnergyMonitor
from wattloop.energy_monitor.process_sampler import KEPT_SECONDS, ProcessSampler
from wattloop.energy_monitor.readings import Readings
from wattloop.errors import OperationError, UsageError


@pytest.fixture
def monitor(sampled: SampledMachine) -> EnergyMonitor:
    sampled.run(steady(), 3.0)
    return EnergyMonitor._with_sampler(sampled.sampler)


def test_a_window_measures_time_and_the_energy_of_each_gpu(sampled: SampledMachine, monitor: EnergyMonitor) -> None:
    exact = [sampled.joules(gpu) for gpu in (0, 1)]
    monitor.begin_window("epoch")
    sampled.run(steady(), 2.0)
    measurement = monitor.end_window("epoch")
    exact = [sampled.joules(gpu) - exact[gpu] for gpu in (0, 1)]
    sampled.run(steady(), 1.0)
    assert measurement.time_seconds == pytest.approx(2.0)
    assert measurement.gpu_energy_joules == {index: pytest.approx(exact[index], rel=0.005) for index in (0, 1)}
    assert measurement.total_energy_joules == pytest.approx(sum(exact), abs=4 * measurement.uncertainty_joules)
    assert measurement.complete
    assert measurement.reason == ""
    assert measurement.cpu_energy_joules is None
    assert measurement.dram_energy_joules is None


def test_windows_may_be_nested_and_may_overlap(sampled: SampledMachine, monitor: EnergyMonitor) -> None:
    exact = [sampled.joules()]
    measured = {}
    spans = {"a": (0, 3), "b": (1, 4), "c": (1, 2), "d": (3, 5), "e": (0, 5)}
    for part in range(6):
        for name, (begin, end) in spans.items():
            if end == part:
                measured[name] = monitor.end_window(name)
            if begin == part:
                monitor.begin_window(name)
        sampled.run(square_wave(0.2), 0.4)
        exact.append(sampled.joules())
    for name, (begin, end) in spans.items():
        measurement = measured[name]
        assert measurement.time_seconds == pytest.approx(0.4 * (end - begin), abs=1e-6)
        energy = measurement.gpu_energy_joules[0]
        assert energy == pytest.approx(exact[end] - exact[begin], abs=4 * measurement.uncertainty_joules)
    assert measured["a"].total_energy_joules + measured["d"].total_energy_joules == pytest.approx(
        measured["e"].total_energy_joules, abs=1e-6
    )


def test_begin_and_end_call_no_driver(sampled: SampledMachine, monitor: EnergyMonitor) -> None:
    before = sampled.machine.describe().calls
    for _ in range(100):
        monitor.begin_window("step")
        monitor.end_window("step")
    assert sampled.machine.describe().calls == before


def test_begin_and_end_do_not_wait_for_the_sampler(sampled: SampledMachine, monitor: EnergyMonitor) -> None:
    with sampled.sampler._sampled:
        thread = threading.Thread(target=lambda: (monitor.begin_window("a"), monitor.end_window("a")))
        thread.start()
        thread.join(30)
        assert not thread.is_alive()


def test_a_jump_of_the_wall_clock_changes_nothing(
    sampled: SampledMachine, monitor: EnergyMonitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = sampled.joules() + sampled.joules(1)
    monitor.begin_window("epoch")
    sampled.run(steady(), 1.0)
    monkeypatch.setattr(time, "time", lambda: 0.0)
    sampled.run(steady(), 1.0)
    measurement = monitor.end_window("epoch")
    exact = sampled.joules() + sampled.joules(1) - exact
    sampled.run(steady(), 1.0)
    assert measurement.time_seconds == pytest.approx(2.0)
    assert measurement.total_energy_joules == pytest.approx(exact, rel=0.005)


def test_a_running_window_has_an_estimate_and_goes_on(sampled: SampledMachine, monitor: EnergyMonitor) -> None:
    monitor.begin_window("epoch")
    sampled.run(steady(), 1.0)
    estimate = monitor.running("epoch")
    sampled.run(steady(), 1.0)
    measurement = monitor.end_window("epoch")
    sampled.run(steady(), 1.0)
    assert estimate.time_seconds == pytest.approx(1.0)
    # Later readings have arrived since, so the estimate is as good as an ended window's.
    assert estimate.total_energy_joules == pytest.approx(measurement.total_energy_joules / 2, rel=0.01)


def test_a_restarted_window_begins_again_and_a_cancelled_one_is_gone(
    sampled: SampledMachine, monitor: EnergyMonitor
) -> None:
    monitor.begin_window("cell")
    sampled.run(steady(), 1.0)
    monitor.begin_window("cell", restart=True)
    sampled.run(steady(), 0.5)
    assert monitor.end_window("cell").time_seconds == pytest.approx(0.5)
    monitor.begin_window("cell")
    monitor.cancel_window("cell")
    assert monitor.open_windows() == ()


def test_wrong_use_says_what_was_meant(monitor: EnergyMonitor) -> None:
    monitor.begin_window("epoch")
    with pytest.raises(UsageError, match="'epoch' is open already; end it first, begin it again with restart=True"):
        monitor.begin_window("epoch")
    with pytest.raises(UsageError, match="no window 'epoc' is open; open are 'epoch'"):
        monitor.end_window("epoc")
    monitor.end_window("epoch")
    with pytest.raises(UsageError, match="'epoch' has been ended already; begin it again first"):
        monitor.end_window("epoch")
    with pytest.raises(UsageError, match="no window is open"):
        monitor.running("step")
    with pytest.raises(UsageError, match="no window 'step' is open"):
        monitor.cancel_window("step")
    with pytest.raises(UsageError, match="found the name 3 of a window, expected a string"):
        monitor.begin_window(3)  # type: ignore[arg-type]
    window = monitor.window("step")
    with pytest.raises(UsageError, match="no measurement yet: it has not begun"):
        _ = window.measurement
    with pytest.raises(UsageError, match="is not open, so there is no estimate"):
        window.running()
    with window, pytest.raises(UsageError, match=r"open already; call monitor.window\('step'\) for each use"):
        window.__enter__()


def test_a_window_of_a_block_is_measured_also_if_the_block_raises(
    sampled: SampledMachine, monitor: EnergyMonitor
) -> None:
    window = monitor.window("step")

    def step() -> None:
        with window:
            sampled.run(steady(), 0.25)
            assert window.running().time_seconds == pytest.approx(0.25)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        step()
    assert window.measurement.time_seconds == pytest.approx(0.25)


def test_a_decorator_measures_each_call(sampled: SampledMachine, monitor: EnergyMonitor) -> None:
    window = monitor.window("evaluate")

    @window
    def evaluate(seconds: float, depth: int = 0) -> float:
        """Evaluates."""
        sampled.run(steady(), seconds)
        return evaluate(seconds, depth - 1) if depth else seconds

    assert evaluate(0.25) == 0.25
    assert evaluate.__doc__ == "Evaluates."
    assert window.measurement.time_seconds == pytest.approx(0.25)
    evaluate(0.25, depth=2)
    assert window.measurement.time_seconds == pytest.approx(0.75)
    assert evaluate.measurement is window.measurement  # type: ignore[attr-defined]


def test_a_decorator_of_a_generator_is_refused(monitor: EnergyMonitor) -> None:
    def batches() -> Iterator[int]:
        yield 1

    with pytest.raises(UsageError, match="batches is a generator function"):
        monitor.window("load")(batches)


def test_tasks_may_have_windows_of_one_name_at_a_time(sampled: SampledMachine, monitor: EnergyMonitor) -> None:
    @monitor.window("request")
    async def request(turns: int) -> int:
        for _ in range(turns):
            await asyncio.sleep(0)
            sampled.run(steady(), 0.1)
        return turns

    async def named(turns: int) -> float:
        with monitor.window("request") as window:
            await request(turns)
        return window.measurement.time_seconds

    async def all_of() -> list[float]:
        return await asyncio.gather(named(1), named(2), named(3))

    seconds = asyncio.run(all_of())
    assert seconds == sorted(seconds)
    assert seconds[2] == pytest.approx(0.6)


def test_a_window_may_end_in_another_thread(sampled: SampledMachine, monitor: EnergyMonitor) -> None:
    monitor.begin_window("epoch")
    sampled.run(steady(), 0.5)
    ended: list[wattloop.Measurement] = []
    thread = threading.Thread(target=lambda: ended.append(monitor.end_window("epoch")))
    thread.start()
    thread.join()
    assert ended[0].time_seconds == pytest.approx(0.5)


def test_of_threads_that_begin_one_window_all_but_one_are_refused(monitor: EnergyMonitor) -> None:
    outcomes: list[str] = []

    def begin() -> None:
        try:
            monitor.begin_window("epoch")
            outcomes.append("begun")
        except UsageError:
            outcomes.append("refused")

    threads = [threading.Thread(target=begin) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["begun"] + ["refused"] * 7


def test_some_of_the_gpus_are_measured_under_their_indices(sampled: SampledMachine) -> None:
    sampled.run(steady(), 3.0)
    monitor = EnergyMonitor._with_sampler(sampled.sampler, [sampled.uuids[1]])
    with monitor.window("step") as window:
        sampled.run(steady(), 0.5)
    sampled.run(steady(), 1.0)
    assert monitor.gpu_indices == (1,)
    assert list(window.measurement.gpu_energy_joules) == [1]


@pytest.mark.parametrize(
    ("gpus", "message"),
    [
        ([2], r"found 2, expected indices or UUIDs of this process's GPUs: 0 \(GPU-"),
        (["GPU-no"], "found 'GPU-no', expected indices"),
        ([True], "found True, expected indices"),
        ([0, 0], r"found \[0, 0\], expected each GPU once"),
        ("0", "found '0', expected a list of indices or UUIDs"),
    ],
)
def test_gpus_that_do_not_exist_are_refused(sampled: SampledMachine, gpus: list[int], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        EnergyMonitor._with_sampler(sampled.sampler, gpus)


def test_a_measurement_survives_a_pickle(sampled: SampledMachine, monitor: EnergyMonitor) -> None:
    with monitor.window("step") as window:
        sampled.run(steady(), 0.5)
    sampled.run(steady(), 1.0)
    received = pickle.loads(pickle.dumps(window.measurement))
    assert received.total_energy_joules == window.measurement.total_energy_joules
    assert repr(received) == repr(window.measurement)
    assert repr(received).startswith("Measurement(name='step', time_seconds=0.5, total_energy_joules=")


def test_a_monitor_cannot_be_copied(monitor: EnergyMonitor) -> None:
    with pytest.raises(UsageError, match="make one in each process"):
        copy.deepcopy(monitor)


def test_a_window_that_is_longer_than_readings_are_kept_is_complete(sampled: SampledMachine) -> None:
    machine = sampled
    machine.run(steady(), 3.0)
    monitor = EnergyMonitor._with_sampler(machine.sampler, [0])
    monitor.begin_window("epoch")
    exact = machine.joules()
    machine.run(steady(), 0.5)
    machine.sampling = False
    machine.run(steady(), 1.5 * KEPT_SECONDS)
    machine.sampling = True
    machine.run(steady(), 0.5)
    begin = monitor._windows["epoch"]
    assert begin.energy is not None
    measurement = monitor.end_window("epoch")
    exact = machine.joules() - exact
    machine.run(steady(), 1.0)
    assert measurement.total_energy_joules == pytest.approx(exact, rel=0.001)
    assert measurement.complete


def test_processors_and_memory_are_measured_by_package(sampled: SampledMachine, monitor: EnergyMonitor) -> None:
    def read() -> None:
        now = sampled.now()
        zones = {"package-0": 50 * now, "package-1": 30 * now, "package-0/dram": 5 * now, "psys": 200 * now}
        sampled.sampler.add(Readings((), now, zones))

    with monitor.window("step") as window:
        for _ in range(20):
            read()
            sampled.run(steady(), 0.1)
        read()
    measurement = window.measurement
    assert measurement.cpu_energy_joules == pytest.approx(160.0)
    assert measurement.cpu_energy_joules_by_package == {0: pytest.approx(100.0), 1: pytest.approx(60.0)}
    assert measurement.dram_energy_joules == pytest.approx(10.0)
    assert measurement.dram_energy_joules_by_package == {0: pytest.approx(10.0)}


def test_discarded_measurements_leave_nothing_behind(sampled: SampledMachine, monitor: EnergyMonitor) -> None:
    for _ in range(100):
        monitor.begin_window("step")
        monitor.end_window("step")
    gc.collect()
    assert all(moment() is None for moment in sampled.sampler._moments)
    sampled.run(steady(), 1.0)
    assert not sampled.sampler._moments


class NoSource:
    """A machine without GPUs."""

    def open(self) -> list[str]:
        raise OperationError("no agent: WATTLOOP_AGENT_SOCKET names no socket; no driver")

    def read(self, uuids: object) -> Readings:
        raise NotImplementedError

    def close(self) -> None:
        pass


def test_without_a_source_time_is_measured_and_energy_is_not_a_number(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("wattloop.energy_monitor.energy_monitor.FirstAvailable", NoSource)
    monkeypatch.setattr("wattloop.energy_monitor.energy_monitor._warned", set())
    with caplog.at_level(logging.WARNING, "wattloop"):
        monitors = [wattloop.EnergyMonitor(), wattloop.EnergyMonitor(gpus=[0])]
        for monitor in monitors:
            with monitor.window("step") as window:
                pass
    assert [record.message for record in caplog.records] == [
        "energy is not measured, windows measure time alone: no agent: WATTLOOP_AGENT_SOCKET names no socket; no driver"
    ]
    measurement = window.measurement
    assert measurement.time_seconds >= 0
    assert measurement.gpu_energy_joules == {}
    assert math.isnan(measurement.total_energy_joules)
    assert math.isnan(measurement.uncertainty_joules)
    assert not measurement.complete
    assert measurement.reason.startswith("no agent")


class FailingSource:
    """A source that fails a number of times, then stops the sampler."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.opened = 0
        self.sampler: ProcessSampler | None = None

    def open(self) -> list[str]:
        self.opened += 1
        return ["GPU-1"]

    def read(self, uuids: object) -> Readings:
        self.failures -= 1
        if self.failures >= 0:
            raise OperationError("the driver does not answer")
        self.sampler.stop()
        return Readings()

    def close(self) -> None:
        pass


def test_a_source_that_fails_is_opened_again_until_it_answers(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("wattloop.energy_monitor.process_sampler.RETRY_SECONDS", (0.0, 0.0))
    source = FailingSource(5)
    source.sampler = ProcessSampler(lambda: source)
    source.sampler.add_user(source)
    source.sampler._run()
    assert source.opened == 6
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "the driver does not answer; they are tried again" in caplog.text


def test_a_sampler_without_a_monitor_stops() -> None:
    source = FailingSource(0)
    source.sampler = ProcessSampler(lambda: source)
    source.sampler.start()
    source.sampler._thread.join(30)
    assert not source.sampler.running
