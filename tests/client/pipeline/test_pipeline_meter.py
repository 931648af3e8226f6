"""A pipeline's meter measures what its directives say, in virtual time."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from support.instruction_stream import CounterReader, RankOfPipeline, SyntheticGpu
from support.sampled_machine import ScriptedSource
from support.test_sets.parameters import exhaustive_after
from wattloop.energy_monitor.process_sampler import ProcessSampler
from wattloop.energy_monitor.readings import Readings
from wattloop.pipeline.free_iterations import MAX_GROUPS, FreeIterations
from wattloop.pipeline.knobs import KnobChoices
from wattloop.pipeline.local_profile import ProfileRecorder
from wattloop.pipeline.pipeline_meter import PipelineMeter
from wattloop.pipeline.plan_messages import PLAN, PROFILE, Directive, RankReport
from wattloop.pipeline.plan_source import Recorder
from wattloop.pipeline.profile_csv import ProfileFile, ProfileKey
from wattloop_operator.reconcile.pipeline.measured_excess import Comparison
from wattloop_planner.frequency.pipeline.profile_file import read_profile
from wattloop_research.frequency.files.recorded_run_file import read_runs
from wattloop_research.frequency.recorded_runs import run_summary
from wattloop_research.training.run_dump import RunDump

UUID = "GPU-1"


class MeteredRank:
    """A rank, its GPU and its meter, on a clock that the iterations advance."""

    def __init__(self, rank: RankOfPipeline | None = None, seed: int = 1, recorder: Recorder | None = None) -> None:
        self.rank = rank or RankOfPipeline(microbatches=8)
        self.gpu = SyntheticGpu(seed)
        self._reader = CounterReader(self.gpu)
        self._sampler = ProcessSampler(lambda: ScriptedSource([UUID]))
        self.meter = PipelineMeter(
            self._sampler,
            [UUID],
            first_rank=self.rank.stage == 0,
            now=lambda: self.gpu.trace.now,
            recorders=[] if recorder is None else [recorder],
        )
        self.iterations = 0
        self.energies: list[float] = []

    def iterate(self, directive: Directive, clock: int, *, interrupted: bool = False) -> None:
        """One iteration at a clock; 0: free clocks."""
        begin = self.gpu.trace.joules_until(self.gpu.trace.now)
        record = self.gpu.run(self.rank.at(clock or 1410), self.iterations, clock, directive=directive)
        self.energies.append(self.gpu.trace.joules_until(record.end_seconds) - begin)
        self.iterations += 1
        self._read()
        self.meter.iteration_done(replace(record, interrupted=interrupted))

    def profile(self, directive: Directive, iterations: int) -> list[int]:
        """Iterations of a profile, at the clocks that the meter says; returns them."""
        found = []
        for _ in range(iterations):
            clock = self.meter.profiling_clock(directive, self.iterations)
            found.append(clock or 0)
            self.iterate(directive, clock or 0)
            self.measured()
        return found

    def measured(self) -> RankReport:
        return self.meter.measured(RankReport(process="", sequence=0, directive=0, iterations=0))

    def idle(self, seconds: float) -> None:
        self.gpu.trace.add(seconds, 60.0)
        self._read()

    def _read(self) -> None:
        for reading in self._reader.new():
            self._sampler.add(Readings([reading]))


def profile_of(clocks: Sequence[int], iterations: int = 8) -> Directive:
    return Directive(
        number=1,
        mode=PROFILE,
        first_iteration=1,
        clocks_megahertz=tuple(clocks),
        warm_up_iterations=2,
        iterations_per_clock=iterations,
    )


def test_a_profile_measures_each_clock_and_says_when_it_is_through() -> None:
    ranks, clocks = MeteredRank(), (1410, 1200, 990)
    directive = profile_of(clocks)
    ranks.iterate(Directive(), 0)
    held = ranks.profile(directive, 30)
    assert held == [clock for clock in clocks for _ in range(10)]
    assert not ranks.measured().profiled
    # Through once the counter's steps after the last clock are read.
    assert ranks.profile(directive, 4) == [0] * 4
    ranks.idle(6.0)
    found = ranks.measured()
    assert found.profiled
    assert found.measured_iterations == 24
    assert sorted({each.megahertz for each in found.measurements}) == sorted(clocks)
    for each in found.measurements:
        exact = ranks.rank.at(each.megahertz)
        assert each.repetitions == 64
        assert each.time_seconds == pytest.approx(exact.seconds[each.kind], rel=0.01)
        assert each.energy_joules == pytest.approx(exact.joules(each.kind), rel=0.03)
    assert found.blocking_watts == pytest.approx(90.0, rel=0.05)


def test_a_rank_whose_effective_energy_rises_measures_no_lower_clock() -> None:
    """At this rank's low clocks, power hardly falls."""
    rank = MeteredRank(RankOfPipeline(microbatches=8, blocking_watts=60.0, watts={"forward": 120.0, "backward": 130.0}))
    clocks = (1410, 1200, 990, 780, 570, 360)
    directive = profile_of(clocks, iterations=12)
    rank.iterate(Directive(), 0)
    held = rank.profile(directive, 14 * len(clocks))
    stopped = next(index for index, clock in enumerate(held) if index > 14 and clock == 1410)
    assert set(held[stopped:]) == {1410}
    assert rank.measured().profiled
    measured = {each.megahertz for each in rank.measured().measurements if each.energy_joules is not None}
    assert len(measured) < len(clocks)
    assert measured >= {1410, 1200}


def test_the_energy_of_an_iteration_under_a_plan_is_measured_without_its_first() -> None:
    rank = MeteredRank()
    for _ in range(6):
        rank.iterate(Directive(), 0)
    plan = Directive(number=2, mode=PLAN, first_iteration=6, clocks_megahertz=(1200,) * 16)
    for _ in range(15):
        rank.iterate(plan, 1200)
    rank.idle(2.0)
    found = rank.measured()
    assert found.measured_iterations == 14
    assert found.iteration_joules == pytest.approx(sum(rank.energies[7:]) / 14, rel=0.01)
    rank.iterate(Directive(number=3), 0)
    assert rank.measured().measured_iterations == 0


@pytest.mark.parametrize("seed", exhaustive_after(range(4)))
def test_the_exact_energy_of_an_iteration_is_in_a_narrow_interval(seed: int) -> None:
    rank = MeteredRank(seed=seed)
    plan = Directive(number=2, mode=PLAN, first_iteration=0, clocks_megahertz=(1200,) * 16)
    for _ in range(120):
        rank.iterate(plan, 1200)
        rank.measured()
    rank.idle(2.0)
    found = rank.measured()
    exact = sum(rank.energies[1:]) / 119
    assert abs(found.iteration_joules - exact) <= 1.96 * found.iteration_error_joules
    assert 1.96 * found.iteration_error_joules <= 0.002 * exact


def test_instructions_at_clocks_that_the_agent_did_not_hold_are_not_measured() -> None:
    rank = MeteredRank()
    plan = Directive(number=1, mode=PLAN, first_iteration=0, clocks_megahertz=(1200,) * 16)
    for number in range(12):
        rank.iterate(plan, 1200, interrupted=number >= 6)
    assert sum(each.repetitions for each in rank.measured().measurements) == 5 * 16
    rank.iterate(Directive(number=2, mode=PLAN, first_iteration=12), 0)
    rank.iterate(Directive(number=2, mode=PLAN, first_iteration=12), 0)
    assert sum(each.repetitions for each in rank.measured().measurements) == 5 * 16


def profile_file(path: Path, rank: int = 0) -> ProfileFile:
    return ProfileFile(path, rank, ProfileKey("NVIDIA A40", "gpt", "pipeline=2"))


def test_instructions_with_knobs_are_not_measured_and_their_iterations_are() -> None:
    rank = MeteredRank()
    knobs = KnobChoices(("sm",), (("16",),), (0,) * 16)
    plan = Directive(number=1, mode=PLAN, first_iteration=0, clocks_megahertz=(1200,) * 16, knobs=knobs)
    for _ in range(12):
        rank.iterate(plan, 1200)
    rank.idle(2.0)
    measured = rank.measured()
    assert measured.measurements == ()
    assert measured.measured_iterations > 0
    assert measured.iteration_joules is not None


def test_ranks_write_one_profile_that_the_planner_reads(tmp_path: Path) -> None:
    path = tmp_path / "profile.csv"
    for rank in (0, 1):
        ranks = MeteredRank(RankOfPipeline(stage=rank, microbatches=8), rank, ProfileRecorder(profile_file(path, rank)))
        ranks.iterate(Directive(), 0)
        ranks.profile(profile_of((1410, 1200)), 20)
        ranks.meter.close()
    profile = read_profile(path)
    assert sorted(profile.options) == [(stage, kind) for stage in (0, 1) for kind in ("backward", "forward")]
    for (_, kind), options in profile.options.items():
        assert [option.frequency_megahertz for option in options] == [1410, 1200]
        for option in options:
            exact = RankOfPipeline().at(option.frequency_megahertz)
            assert option.energy_joules == pytest.approx(exact.joules(kind), rel=0.03)
            assert option.energy_error_joules is not None


def test_a_process_that_is_killed_has_stored_the_clocks_before(tmp_path: Path) -> None:
    path = tmp_path / "profile.csv"
    rank = MeteredRank(recorder=ProfileRecorder(profile_file(path)))
    rank.iterate(Directive(), 0)
    # It ends within the third clock, without a call of close.
    rank.profile(profile_of((1410, 1200, 990)), 26)
    frequencies = {option.frequency_megahertz for options in read_profile(path).options.values() for option in options}
    assert {1410, 1200} <= frequencies


def test_a_profile_without_energies_says_so_at_its_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "profile.csv"
    # An instruction is much shorter than a step of the counter, and there are few steps.
    rank = MeteredRank(
        RankOfPipeline(microbatches=2, seconds={"forward": 0.003, "backward": 0.006}),
        recorder=ProfileRecorder(profile_file(path)),
    )
    rank.profile(profile_of((1410, 1200)), 20)
    rank.meter.close()
    # The first one is that these GPUs list no processes.
    _, record = caplog.records
    assert record.getMessage() == (
        f"the profile {path} has no energy of backward and forward at 1410, 1200 MHz, which were measured too briefly: "
        "energy counters step every 100 ms; a run with the same file measures them again, best with more "
        "iterations at each clock"
    )


def test_a_file_of_another_form_is_not_replaced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "profile.csv"
    path.write_text("stage,instruction,frequency,time,energy\n0,forward,1410,0.1,20\n")
    rank = MeteredRank(recorder=ProfileRecorder(profile_file(path)))
    rank.profile(profile_of((1410, 1200)), 20)
    rank.meter.close()
    assert path.read_text().count("\n") == 2
    # The first one is that these GPUs list no processes.
    _, record = caplog.records
    assert record.getMessage() == (
        f"the profile of this rank is not written: {path}: line 1, column rank: found no such column "
        "(columns: stage, instruction, frequency, time, energy), expected one column rank"
    )


def test_the_dumps_of_ranks_are_joined_by_their_common_iterations(tmp_path: Path) -> None:
    plan = Directive(number=1, mode=PLAN, first_iteration=8, clocks_megahertz=(1200,) * 16)
    energies = []
    for rank, count in ((0, 12), (1, 10)):
        dump = RunDump.of_plan(tmp_path, rank, "freqs_pipeline_00016.py")
        metered = MeteredRank(RankOfPipeline(stage=rank, microbatches=8), rank, dump)
        for _ in range(8):
            metered.iterate(Directive(), 0)
        for _ in range(count):
            metered.iterate(plan, 1200)
        metered.idle(2.0)
        metered.meter.close()
        energies.append(metered.energies)
    free, planned = read_runs(tmp_path)
    assert (free.number, planned.number) == (0, 17)
    # Without the first iteration of each; and the second rank has run two less under the plan.
    assert (free.iterations, planned.iterations) == (7, 9)
    exact = sum(sum(each[9:18]) for each in energies) / 9
    assert run_summary(planned, 0).energy_joules == pytest.approx(exact, rel=0.02)
    assert set(planned.ranks[0].instruction_seconds) == {"forward", "backward"}
    assert all(len(row) == 8 for row in planned.ranks[1].instruction_joules["forward"])
    clocks = json.loads((tmp_path / "17.sched.json").read_text())
    assert [(each["rank"], each["power_states"]) for each in clocks] == [(rank, [1200] * 16) for rank in (0, 1)]
    assert sorted(clocks[1]["instructions"]) == sorted(
        f"{kind}:1:{microbatch}" for kind in ("forward", "backward") for microbatch in range(8)
    )


def test_a_later_experiment_replaces_the_dumps_of_an_earlier_one(tmp_path: Path) -> None:
    for rank, first in ((0, 0), (1, 0), (0, 100)):
        metered = MeteredRank(recorder=RunDump.of_plan(tmp_path, rank, None))
        metered.iterations = first
        for _ in range(6):
            metered.iterate(Directive(), 0)
        metered.idle(2.0)
        metered.meter.close()
    (run,) = read_runs(tmp_path)
    assert [record.rank for record in run.ranks] == [0]


FREE = FreeIterations(block=4, early_cycles=8, early_cycle=12, cycle=40)


def run_plan(rank: MeteredRank, cycles: int, *, drift: float = 0.0) -> list[tuple[int, bool, float, float]]:
    """Cycles of a plan at 1,200 MHz and at free clocks.

    Args:
        rank: The rank, which has run nothing.
        cycles: Number of cycles.
        drift: By how much times and powers rise over them.

    Returns:
        Cycle, whether at free clocks, exact time and exact energy of each measured iteration.
    """
    plan = Directive(number=1, mode=PLAN, first_iteration=0, clocks_megahertz=(1200,) * 16, free=FREE)
    found = []
    number, original = 0, rank.rank
    last = min(cycles, FREE.early_cycles) * FREE.early_cycle + max(cycles - FREE.early_cycles, 0) * FREE.cycle
    while (part := FREE.part(number)).cycle < cycles:
        factor = (1 + drift * number / last) ** 0.5
        rank.rank = replace(
            original,
            seconds={kind: value * factor for kind, value in original.seconds.items()},
            watts={kind: value * factor for kind, value in original.watts.items()},
        )
        begin = rank.gpu.trace.now
        rank.iterate(plan, 0 if part.is_free else 1200)
        rank.measured()
        if part.is_measured:
            found.append((part.cycle, part.is_free, rank.gpu.trace.now - begin, rank.energies[-1]))
        number += 1
    rank.rank = original
    # The last cycle ends with the next one.
    rank.iterate(plan, 1200)
    rank.idle(2.0)
    return found


@pytest.mark.parametrize(("seed", "drift"), exhaustive_after([(3, 0.3), (1, 0.0), (2, 0.0), (4, -0.2), (5, 0.3)]))
def test_the_measured_saving_and_slowdown_have_the_true_ones_in_their_intervals(seed: int, drift: float) -> None:
    rank = MeteredRank(seed=seed)
    exact = run_plan(rank, 12, drift=drift)
    found = Comparison(rank.measured().compared)
    assert found.cycles == 12

    def true_percent(column: int) -> float:
        """The mean over cycles of the exact means."""
        sides = [
            sum(statistics.fmean(row[column] for row in exact if row[:2] == (cycle, is_free)) for cycle in range(12))
            for is_free in (False, True)
        ]
        return 100 * (sides[0] / sides[1] - 1)

    assert found.energy is not None
    assert found.time is not None
    for each, true in ((found.time, true_percent(2)), (found.energy, true_percent(3))):
        assert abs(each.percent - true) <= 1.96 * each.error_percent
        assert 1.96 * each.error_percent <= 1.5


def test_iterations_at_free_clocks_are_none_of_the_realised_ones() -> None:
    rank = MeteredRank()
    plan = [joules for _, is_free, _, joules in run_plan(rank, 8) if not is_free]
    measured = rank.measured()
    assert measured.measured_iterations == len(plan) + 1
    assert measured.iteration_joules == pytest.approx(statistics.fmean(plan), rel=0.01)
    assert {each.megahertz for each in measured.measurements} == {1200}


@pytest.mark.parametrize("broken", ["interrupted", "refused", "not free"])
def test_a_cycle_whose_iterations_did_not_run_as_the_directive_says_does_not_count(broken: str) -> None:
    rank = MeteredRank()
    plan = Directive(number=1, mode=PLAN, first_iteration=0, clocks_megahertz=(1200,) * 16, free=FREE)
    for number in range(3 * FREE.early_cycle + 1):
        part = FREE.part(number)
        in_second = part.cycle == 1 and part.is_measured
        clock = 0 if part.is_free else 1200
        if in_second and broken == "refused":
            clock = 0
        if in_second and broken == "not free":
            clock = 1200
        rank.iterate(plan, clock, interrupted=in_second and broken == "interrupted" and clock > 0)
    rank.idle(2.0)
    assert [each.group for each in rank.measured().compared] == [0, 2]


def test_groups_are_joined_in_pairs_and_a_report_stays_small() -> None:
    rank = MeteredRank(RankOfPipeline(microbatches=1, seconds={"forward": 0.01, "backward": 0.02}))
    free = FreeIterations(block=2, early_cycles=0, early_cycle=6, cycle=6)
    plan = Directive(number=1, mode=PLAN, first_iteration=0, clocks_megahertz=(1200,) * 2, free=free)
    for number in range(6 * 70 + 1):
        rank.iterate(plan, 0 if free.part(number).is_free else 1200)
    rank.idle(2.0)
    compared = rank.measured().compared
    assert len(compared) <= MAX_GROUPS
    assert {each.width for each in compared} == {8}
    assert sum(each.cycles for each in compared) == 70
