"""One thread calls the driver at an interval; subscribers share its samples and cost the driver nothing."""

import asyncio
import functools
import itertools
import json
import logging
import socket
import threading
import time
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import CancelledError

import pytest

from support.agents.agent_fixture import DEADLINE_SECONDS, AgentFixture, until
from wattloop.energy.gpu_reading import GpuReading
from wattloop.gpus.agent import AgentConnection, AgentRequestError
from wattloop_agent.monitor.gpu_meter import DriverThread
from wattloop_agent.monitor.gpu_sampler import GpuStatus, Sampler
from wattloop_agent.refusals import Reason, RequestError

GPU_IS_LOST = 15
COUNTER = "nvmlDeviceGetTotalEnergyConsumption"


@pytest.fixture
def samples_taken() -> list[str]:
    return []


@pytest.fixture
def thread(samples_taken: list[str]) -> Iterator[DriverThread]:
    thread = DriverThread(lambda: samples_taken.append(threading.current_thread().name))
    yield thread
    thread.close()


def test_requests_run_in_order_in_one_thread(thread: DriverThread, samples_taken: list[str]) -> None:
    order: list[int] = []
    futures = [thread.submit(functools.partial(order.append, number)) for number in range(50)]
    assert [future.result(DEADLINE_SECONDS) for future in futures] == [None] * 50
    assert order == list(range(50))
    assert samples_taken == []
    assert thread.submit(lambda: threading.current_thread().name).result(DEADLINE_SECONDS) == "nvml"


def test_a_failed_request_raises_in_its_caller_and_the_thread_continues(thread: DriverThread) -> None:
    with pytest.raises(ZeroDivisionError):
        thread.submit(lambda: 1 / 0).result(DEADLINE_SECONDS)
    assert thread.submit(lambda: 7).result(DEADLINE_SECONDS) == 7


def test_a_cancelled_request_is_not_run(thread: DriverThread) -> None:
    unblock, called = threading.Event(), []
    first = thread.submit(lambda: unblock.wait(DEADLINE_SECONDS))
    second = thread.submit(lambda: called.append(1))
    assert second.cancel()
    unblock.set()
    assert first.result(DEADLINE_SECONDS)
    with pytest.raises(CancelledError):
        second.result(DEADLINE_SECONDS)
    assert thread.submit(lambda: list(called)).result(DEADLINE_SECONDS) == []


def test_samples_are_taken_at_the_interval_until_it_is_removed(thread: DriverThread, samples_taken: list[str]) -> None:
    thread.set_interval(10.0)
    until(lambda: len(samples_taken) == 1, "the first sample is immediate")
    thread.set_interval(0.01)
    until(lambda: len(samples_taken) >= 4, "a shorter interval applies")
    thread.set_interval(None)
    thread.submit(lambda: None).result(DEADLINE_SECONDS)
    count = len(samples_taken)
    thread.submit(lambda: None).result(DEADLINE_SECONDS)
    assert len(samples_taken) == count
    assert set(samples_taken) == {"nvml"}


class FailingGpus:
    """A driver that is not there."""

    def samples(self, uuids: Collection[str] | None = None, uncounted: Collection[str] = ()) -> list[GpuReading]:
        raise RequestError(Reason.NO_DRIVER, "no driver")

    def statuses(self, samples: Sequence[GpuReading] | None = None) -> list[GpuStatus]:
        raise RequestError(Reason.NO_DRIVER, "no driver")


def test_without_a_driver_samples_are_empty_and_the_problem_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    sampler = Sampler(FailingGpus(), lambda _: None)
    taken: list[int] = []
    sampler.start(1e-9, lambda samples: taken.append(len(samples)))
    for _ in range(3):
        sampler.sample()
    assert taken == [0, 0, 0]
    assert sampler.problem == "no driver"
    assert sampler.sampled_seconds is None
    assert [record.message for record in caplog.records] == ["readings"]


class FewerGpus(FailingGpus):
    """A driver that knows one GPU less at each look."""

    def __init__(self, *uuids: str) -> None:
        self._left = list(uuids)

    def samples(self, uuids: Collection[str] | None = None, uncounted: Collection[str] = ()) -> list[GpuReading]:
        samples = [GpuReading(uuid, 0.0, 0.0, 7, None, 55.0, 0.0, "A100") for uuid in self._left]
        self._left.pop()
        return samples

    def statuses(self, samples: Sequence[GpuReading] | None = None) -> list[GpuStatus]:
        return []


def test_the_samples_of_a_removed_gpu_are_dropped() -> None:
    sampler = Sampler(FewerGpus("a", "b"), lambda _: None)
    sampler.start(1e-9)
    sampler.sample()
    assert set(sampler.samples) == {"a", "b"}
    sampler.sample()
    assert set(sampler.samples) == {"a"}


class CountedGpus(FailingGpus):
    """GPUs that note whose counter each look asked for; one may fail."""

    def __init__(self, *uuids: str) -> None:
        self._uuids = uuids
        self.failed = ""
        self.counted_uuids: list[list[str]] = []

    def samples(self, uuids: Collection[str] | None = None, uncounted: Collection[str] = ()) -> list[GpuReading]:
        self.counted_uuids.append(
            [uuid for uuid in self._uuids if uuid not in uncounted and (uuids is None or uuid in uuids)]
        )
        return [
            GpuReading(uuid, 0.0, 0.0, None if uuid in uncounted or problem else 7, None, 90.0, 0.0, "H200", problem)
            for uuid in self._uuids
            if uuids is None or uuid in uuids
            for problem in ["lost" if uuid == self.failed else ""]
        ]

    def statuses(self, samples: Sequence[GpuReading] | None = None) -> list[GpuStatus]:
        return []


@pytest.fixture
def moment(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that the sampler sees; its first element is the clock."""
    clock = [1000.0]
    monkeypatch.setattr("wattloop_agent.monitor.gpu_sampler.time.monotonic", lambda: clock[0])
    return clock


def looked(sampler: Sampler, moment: list[float], samples_taken: int, interval: float) -> None:
    for _ in range(samples_taken):
        sampler.sample()
        moment[0] += interval


def test_counters_are_read_at_their_interval_one_gpu_at_a_time_and_power_in_each_sample(moment: list[float]) -> None:
    gpus = CountedGpus("a", "b", "c", "d")
    sampler = Sampler(gpus, lambda _: None)
    taken: list[int] = []
    sampler.start(0.1, lambda samples: taken.append(len(samples)), counter_interval_seconds=2.0)
    looked(sampler, moment, 101, 0.1)
    assert taken == [4] * 101
    assert gpus.counted_uuids[0] == ["a", "b", "c", "d"]
    assert max(len(each) for each in gpus.counted_uuids[1:]) == 1
    counts = [sum(uuid in each for each in gpus.counted_uuids[1:]) for uuid in "abcd"]
    assert counts == [5, 5, 5, 5]
    assert {uuid: sample.energy_millijoules for uuid, sample in sampler.counted.items()} == dict.fromkeys("abcd", 7)


@pytest.mark.parametrize("counter_interval", [0.0, 0.5, 1.0])
def test_samples_at_the_counter_interval_read_all_counters(moment: list[float], counter_interval: float) -> None:
    gpus = CountedGpus("a", "b", "c")
    sampler = Sampler(gpus, lambda _: None)
    sampler.start(1.0, counter_interval_seconds=counter_interval)
    looked(sampler, moment, 20, 1.0)
    assert gpus.counted_uuids == [["a", "b", "c"]] * 20


def test_when_a_gpu_changes_hands_the_next_sample_reads_all_counters(moment: list[float]) -> None:
    gpus = CountedGpus("a", "b")
    sampler = Sampler(gpus, lambda _: None)
    sampler.start(0.1, counter_interval_seconds=10.0)
    looked(sampler, moment, 3, 0.1)
    sampler.read_counters()
    looked(sampler, moment, 2, 0.1)
    assert gpus.counted_uuids == [["a", "b"], [], [], ["a", "b"], []]


def test_the_counter_of_a_failed_gpu_is_dropped_and_read_until_it_succeeds(moment: list[float]) -> None:
    gpus = CountedGpus("a", "b")
    sampler = Sampler(gpus, lambda _: None)
    sampler.start(0.1, counter_interval_seconds=10.0)
    looked(sampler, moment, 2, 0.1)
    gpus.failed = "b"
    looked(sampler, moment, 2, 0.1)
    assert set(sampler.counted) == {"a"}
    gpus.failed = ""
    looked(sampler, moment, 2, 0.1)
    assert set(sampler.counted) == {"a", "b"}
    assert gpus.counted_uuids == [["a", "b"], [], [], ["b"], ["b"], []]


def test_a_subscription_has_its_gpus_counter_read_at_its_interval(moment: list[float]) -> None:
    gpus = CountedGpus("a", "b")
    sampler = Sampler(gpus, lambda _: None)

    async def watch() -> None:
        sampler.start(0.1, counter_interval_seconds=10.0)
        looked(sampler, moment, 1, 0.1)
        with sampler.subscribed(["b"], 0.1):
            looked(sampler, moment, 4, 0.1)

    asyncio.run(watch())
    assert gpus.counted_uuids[0] == ["a", "b"]
    assert [each for each in gpus.counted_uuids[1:] if each] == [["b"]] * 3
    looked(sampler, moment, 110, 0.1)
    assert [each for each in gpus.counted_uuids[5:] if each] == [["a"], ["b"]], "the subscription has ended"


def test_the_fastest_subscription_sets_the_interval_while_it_lasts() -> None:
    intervals: list[float | None] = []
    sampler = Sampler(FailingGpus(), intervals.append)

    async def watch() -> None:
        sampler.start(1.0)
        with sampler.subscribed(["a"], 0.5), sampler.subscribed(["b"], 0.1):
            pass

    asyncio.run(watch())
    assert intervals == [1.0, 0.5, 0.1, 0.5, 1.0]


def samples_in(seconds: float, interval: float) -> float:
    """The most samples that one monitor takes in this time: this test itself may wait for the machine."""
    return seconds / interval + 2


def test_many_subscribers_cost_the_driver_no_more_than_one(agent: AgentFixture) -> None:
    def calls() -> int:
        described: dict[str, int] = agent.gpus.describe().calls
        return described.get(COUNTER, 0)

    connections = [AgentConnection(agent.socket) for _ in range(8)]
    streams = [connection.subscribe(0.05) for connection in connections]
    for stream in streams:
        next(stream)
    begin, before = time.monotonic(), calls()
    for _ in range(10):
        for stream in streams:
            assert len(next(stream)) == 3
    # Three GPUs; eight monitors would take eight times as many samples.
    made = calls() - before
    assert made < 3 * 2 * samples_in(time.monotonic() - begin, 0.05)
    for connection in connections:
        connection.close()


def test_a_subscription_to_one_gpu_costs_no_readings_of_the_others(agent: AgentFixture) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(agent.socket))
        counted_uuids = {"verb": "subscribe", "interval_seconds": 0.02, "gpus": agent.uuids[:1]}
        connection.sendall(json.dumps(counted_uuids).encode() + b"\n")
        with connection.makefile() as lines:
            assert [reading["uuid"] for reading in json.loads(lines.readline())["result"]] == agent.uuids[:1]
            begin, before = time.monotonic(), agent.gpus.describe().calls[COUNTER]
            deque(itertools.islice(lines, 40), maxlen=0)
            made = agent.gpus.describe().calls[COUNTER] - before
            seconds = time.monotonic() - begin
    # At its interval the one GPU, and once a second all three.
    assert made < 1.5 * samples_in(seconds, 0.02) + 3 * samples_in(seconds, 1.0)


def test_a_subscription_to_a_gpu_whose_counter_fails_ends_with_the_drivers_error(agent: AgentFixture) -> None:
    with AgentConnection(agent.socket) as connection:
        stream = connection.subscribe(0.02)
        next(stream)
        agent.gpus.inject_fault(COUNTER, code=GPU_IS_LOST, gpu=agent.uuids[1])
        with pytest.raises(AgentRequestError, match=agent.uuids[1]):
            deque(itertools.islice(stream, 100))
