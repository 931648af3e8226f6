"""Attribution of energy to pods against known usage, over restarts of the monitor and of the machine."""

import itertools
import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.agents.simulated_day import GPU, TrueGpu, observation_at, pod
from wattloop.wire.node_energy import PodGpuUsage
from wattloop_agent.monitor.energy.attribution import Assignment, drop_oldest_ended
from wattloop_agent.monitor.energy.ledger import Ledger, LedgerState

Change = tuple[float, Sequence[Assignment]]


def restarted(ledger: Ledger, now: float, boot: str = "boot") -> Ledger:
    """Return the ledger that the next monitor reads from the file."""
    record = json.loads(json.dumps(ledger.read(lambda state: state.to_record("boot"))))
    return Ledger(LedgerState.from_record(record, boot, now))


def test_the_usages_are_complete_once_a_complete_observation_is_applied() -> None:
    gpu, ledger = TrueGpu(), Ledger()

    def observe(moment: float, *assignments: Assignment, is_complete: bool = True) -> bool:
        ledger.observe(replace(observation_at(moment, *assignments), is_complete=is_complete))
        ledger.add_samples([gpu.sample(moment + 1.0)], moment + 1.0)
        return ledger.is_complete

    ledger.observe(replace(observation_at(0.0), is_complete=True))
    assert not ledger.is_complete, "no sample was added after it"
    assert observe(1.0)
    assert observe(2.0, pod("u"))
    assert not observe(4.0, is_complete=False)
    assert not observe(6.0, replace(pod("u"), gpu="GPU-without-samples"))


class Day:
    """A monitor that samples a GPU every 0.1 s and observes its assignments every 2 s."""

    def __init__(self, gpu: TrueGpu, changes: Sequence[Change]) -> None:
        self.gpu = gpu
        self.changes = changes
        self.ledger = Ledger()
        self.next_observation = 0.0
        self.moment = 0.0
        self.counts = True
        self.first_processes: dict[str, float] = {}

    def assigned(self, moment: float) -> Sequence[Assignment]:
        return next((pods for since, pods in reversed(self.changes) if since <= moment), ())

    def run(self, until: float) -> None:
        while self.moment < until - 1e-9:
            if self.moment >= self.next_observation - 1e-9:
                observation = observation_at(self.moment, *self.assigned(self.moment))
                self.ledger.observe(replace(observation, first_processes=self.first_processes))
                self.next_observation = self.moment + 2.0
            self.moment += 0.1
            sample = self.gpu.sample(self.moment, counts=self.counts)
            self.ledger.add_samples([sample], self.moment + 0.004, "module 1")

    def away(self, until: float, boot: str = "boot") -> None:
        """Kill the monitor; another one starts at this moment."""
        self.moment = self.next_observation = until
        self.ledger = restarted(self.ledger, until, boot)

    def usage(self, name: str) -> PodGpuUsage:
        return next(each for each in self.ledger.usages() if each.pod == name)


def within(usage: PodGpuUsage, gpu: TrueGpu, begin: float, end: float) -> bool:
    actual = (gpu.energy(end) - gpu.energy(begin)) * 1000
    return abs(usage.energy_millijoules - actual) <= usage.uncertainty_millijoules + 1


WORK = TrueGpu([(0.0, 70.0), (10.0, 600.0), (40.0, 70.0), (50.0, 500.0), (80.0, 70.0)])


@pytest.mark.parametrize("away", [True, False])
@pytest.mark.parametrize("counts", [True, False])
def test_a_pod_that_a_restarted_kubelet_lists_late_has_its_gpu_from_its_first_process_on(
    counts: bool, away: bool
) -> None:
    day = Day(WORK, [(0.0, ()), (16.5, [pod("late")]), (41.0, [])])
    day.counts = counts
    day.first_processes = {"uid-late": 10.5}
    day.run(8.0)
    if away:
        day.away(12.0)
    day.run(45.0)
    late = day.usage("late")
    assert late.ended
    assert within(late, WORK, 10.5, 41.0)
    # The uncertainty is at most the energy before it was listed, and that around both ends.
    assert late.uncertainty_millijoules < 1000 * 600 * (18.5 - 8.0 + 2.0)


@pytest.mark.parametrize("counts", [True, False])
def test_two_consecutive_pods_each_get_their_energy(counts: bool) -> None:
    day = Day(WORK, [(0.0, ()), (9.0, [pod("one")]), (41.0, []), (49.0, [pod("two")]), (81.0, [])])
    day.counts = counts
    day.run(90.0)
    one, two = day.usage("one"), day.usage("two")
    assert (one.ended, two.ended) == (True, True)
    assert within(one, WORK, 9.0, 41.0)
    assert within(two, WORK, 49.0, 81.0)
    assert max(one.uncertainty_millijoules, two.uncertainty_millijoules) < 700_000
    assert one.start_time_seconds == pytest.approx(9.0, abs=1.1)
    assert one.time_seconds == pytest.approx(41.0, abs=1.1)


def test_a_gpu_reassigned_between_two_observations_is_split_and_never_counted_twice() -> None:
    day = Day(WORK, [(0.0, ()), (9.0, [pod("one")]), (60.7, [pod("two")])])
    day.run(90.0)
    one, two = day.usage("one"), day.usage("two")
    assert within(one, WORK, 9.0, 60.7)
    assert one.uncertainty_millijoules >= 500_000 / 2
    assert one.energy_millijoules + two.energy_millijoules <= day.ledger.gpus()[0].energy_millijoules


def test_two_containers_with_one_gpu_both_get_its_energy_and_are_marked_as_shared() -> None:
    both = [pod("one", shared=True), pod("two", shared=True)]
    day = Day(WORK, [(0.0, ()), (9.0, both)])
    day.run(40.0)
    assert [each.shared for each in day.ledger.usages()] == [True, True]
    assert len({each.energy_millijoules for each in day.ledger.usages()}) == 1


def test_a_pod_that_shared_its_gpu_once_stays_marked_as_shared() -> None:
    day = Day(WORK, [(0.0, ()), (9.0, [pod("one"), pod("two")]), (20.0, [pod("one")])])
    day.run(40.0)
    assert [(each.pod, each.shared) for each in day.ledger.usages()] == [("one", True), ("two", True)]


def test_a_gpu_unknown_to_nvml_is_in_no_usage() -> None:
    day = Day(WORK, [(0.0, [pod("one", "GPU-unknown")])])
    day.run(10.0)
    assert day.ledger.usages() == ()


def test_a_pod_that_is_listed_again_continues_its_usage() -> None:
    day = Day(WORK, [(0.0, ()), (9.0, [pod("one")]), (20.0, []), (30.0, [pod("one")]), (40.0, [])])
    day.run(50.0)
    reported = day.usage("one")
    actual = (WORK.energy(20.0) - WORK.energy(9.0) + WORK.energy(40.0) - WORK.energy(30.0)) * 1000
    assert abs(reported.energy_millijoules - actual) <= reported.uncertainty_millijoules
    assert len(day.ledger.usages()) == 1
    assert reported.start_time_seconds == pytest.approx(9.0, abs=1.1)


def test_only_ended_usages_are_forgotten() -> None:
    day = Day(WORK, [(0.0, [pod("one")]), (20.0, [pod("two")])])
    day.run(30.0)
    day.ledger.forget(["uid-one", "uid-two", "uid-other"])
    assert [each.pod for each in day.ledger.usages()] == ["two"]


def test_energy_used_while_the_monitor_was_away_belongs_to_the_pod() -> None:
    day = Day(WORK, [(0.0, ()), (9.0, [pod("one")]), (81.0, [])])
    day.run(20.0)
    identity = day.ledger.id
    day.away(75.0)
    day.run(90.0)
    assert day.ledger.id == identity
    assert within(day.usage("one"), WORK, 9.0, 81.0)
    assert day.usage("one").uncertainty_millijoules < 700_000
    (gpu,) = day.ledger.gpus()
    assert gpu.energy_millijoules == WORK.counter(day.moment) - WORK.counter(0.1)


def test_a_pod_that_ended_while_the_monitor_was_away_gets_the_energy_as_uncertain() -> None:
    day = Day(WORK, [(0.0, ()), (9.0, [pod("one")]), (45.0, [])])
    day.run(20.0)
    before = day.usage("one").energy_millijoules
    day.away(49.0)
    day.run(55.0)
    reported = day.usage("one")
    assert reported.ended
    assert within(reported, WORK, 9.0, 45.0)
    assert reported.energy_millijoules - before >= (WORK.energy(45.0) - WORK.energy(20.0)) * 1000
    assert reported.uncertainty_millijoules >= (WORK.energy(45.0) - WORK.energy(20.0)) * 1000


def test_a_gpu_reassigned_while_the_monitor_was_away_is_split_with_half_as_uncertainty() -> None:
    day = Day(WORK, [(0.0, ()), (9.0, [pod("one")]), (45.0, [pod("two")])])
    day.run(20.0)
    day.away(60.0)
    day.run(70.0)
    assert within(day.usage("one"), WORK, 9.0, 45.0)
    assert within(day.usage("two"), WORK, 45.0, 68.0)
    together = sum(each.energy_millijoules for each in day.ledger.usages())
    assert together <= day.ledger.gpus()[0].energy_millijoules


def test_after_a_reboot_sums_continue_and_missing_pods_ended_with_the_boot() -> None:
    day = Day(WORK, [(0.0, ()), (9.0, [pod("one"), pod("two", "GPU-2")]), (20.0, [pod("two"), pod("one", "GPU-2")])])
    day.run(19.0)
    before = day.usage("one").energy_millijoules
    day.ledger = restarted(day.ledger, 0.0, boot="another")
    day.gpu, day.moment, day.next_observation = TrueGpu([(0.0, 300.0)]), 30.0, 30.0
    day.run(40.0)
    one, two = day.usage("one"), day.usage("two")
    assert one.ended
    assert before <= one.energy_millijoules <= WORK.energy(19.0) * 1000
    assert two.energy_millijoules == pytest.approx(8 * 300_000, rel=0.05)
    assert two.time_seconds >= two.start_time_seconds >= one.time_seconds
    (gpu,) = day.ledger.gpus()
    assert gpu.energy_millijoules == pytest.approx((WORK.energy(19.0) + 10 * 300) * 1000, rel=0.01)


def test_the_oldest_of_too_many_ended_intervals_are_dropped() -> None:
    day = Day(WORK, [(2.0 * number, [pod(f"p{number}")]) for number in range(6)])
    day.run(14.0)
    intervals = list(day.ledger.read(lambda state: state.intervals.values()))
    stored, dropped = drop_oldest_ended(intervals, 3)
    assert dropped == 2
    assert [interval.assignment.pod for interval in stored] == ["p2", "p3", "p4", "p5"]


NAMES = st.sampled_from(["a", "b", "c", None])


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.floats(0.4, 9.0), NAMES), min_size=1, max_size=6),
    st.lists(st.tuples(st.floats(0.5, 8.0), st.sampled_from([60.0, 350.0, 700.0])), min_size=1, max_size=6),
    st.lists(st.tuples(st.floats(1.0, 12.0), st.floats(0.3, 15.0)), max_size=3),
)
def test_no_energy_is_counted_twice_no_usage_falls_and_a_restart_loses_nothing(
    changes: list[tuple[float, str | None]], powers: list[tuple[float, float]], restarts: list[tuple[float, float]]
) -> None:
    began = [2.0, *itertools.accumulate((wait for wait, _ in changes), initial=2.0)][1:]
    since = itertools.accumulate((wait for wait, _ in powers), initial=0.0)
    gpu = TrueGpu([(begin, watts) for begin, (_, watts) in zip(since, powers, strict=False)])
    named = [(begin, [] if name is None else [pod(name)]) for begin, (_, name) in zip(began, changes, strict=False)]
    day = Day(gpu, [(0.0, ()), *named])
    reported: dict[tuple[str, str, str], int] = {}

    def check() -> None:
        usages = day.ledger.usages()
        for each in usages:
            assert each.energy_millijoules >= reported.get(each.key, 0), "cumulative energy never falls"
            reported[each.key] = each.energy_millijoules
        (gpu_usage,) = day.ledger.gpus()
        estimation_error = sum(each.uncertainty_millijoules for each in usages) + gpu_usage.uncertainty_millijoules
        assert sum(each.energy_millijoules for each in usages) <= gpu_usage.energy_millijoules + estimation_error

    for running_seconds, away_seconds in restarts:
        day.run(day.moment + running_seconds)
        check()
        day.away(day.moment + away_seconds)
    day.run(max(day.moment, began[-1]) + 5.0)
    check()
    (gpu_usage,) = day.ledger.gpus()
    assert gpu_usage.energy_millijoules == gpu.counter(day.moment) - gpu.counter(0.1)
    assert gpu_usage.uuid == GPU
