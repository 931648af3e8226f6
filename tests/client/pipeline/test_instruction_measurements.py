"""Time and energy of instructions from stamps and a counter's steps, compared with the exact energy."""

import math
import statistics
from array import array
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.instruction_stream import CounterReader, RankOfPipeline, SyntheticGpu, edges_of, iterations
from support.test_sets.parameters import exhaustive_after
from wattloop.energy.energy_timeline import EnergyTimeline
from wattloop.pipeline.instruction import Instruction
from wattloop.pipeline.instruction_measurements import ProcessMeasurements
from wattloop.pipeline.iteration_record import IterationRecord
from wattloop.pipeline.plan_messages import Directive, InstructionMeasurement
from wattloop.pipeline.standard_errors import RegressionEstimate

SHORT = {"forward": 0.005, "backward": 0.01}
LONG = {"forward": 0.2, "backward": 0.4}
# The rank, the number of iterations, and the counter.
CASES: dict[str, tuple[RankOfPipeline, int, Mapping[str, float]]] = {
    "instructions of 50 ms": (RankOfPipeline(), 15, {}),
    "instructions of 5 ms, few": (RankOfPipeline(seconds=SHORT), 15, {}),
    "the first stage": (RankOfPipeline(stage=0), 15, {}),
    "the last stage": (RankOfPipeline(stage=3), 15, {}),
    "instructions of 5 ms, many": (RankOfPipeline(seconds=SHORT), 100, {}),
    "instructions of 200 ms": (RankOfPipeline(seconds=LONG), 4, {}),
    "few iterations": (RankOfPipeline(), 3, {}),
    "a counter without a period": (RankOfPipeline(), 15, {"jitter_seconds": 0.01}),
    "a counter of 20 ms": (RankOfPipeline(), 15, {"period_seconds": 0.02}),
}
SEEDS = 20


def measured(rank: RankOfPipeline, count: int, seed: int, counter: Mapping[str, float]) -> ProcessMeasurements:
    gpu = SyntheticGpu(seed)
    records = iterations(gpu, rank, count)
    found = ProcessMeasurements([edges_of(gpu.timeline(**counter))], first_rank=rank.stage == 0)
    for record in records:
        found.add(record)
    found.end_phase()
    found.collect(math.inf)
    return found


def by_kind(found: ProcessMeasurements) -> dict[str, InstructionMeasurement]:
    return {each.kind: each for each in found.measurements()}


@pytest.mark.parametrize(("rank", "count", "counter"), exhaustive_after(CASES.values(), usual=2), ids=CASES)
def test_the_stated_interval_contains_the_exact_energy_of_an_instruction_about_as_often_as_it_says(
    rank: RankOfPipeline, count: int, counter: Mapping[str, float]
) -> None:
    standard, relative, missing = [], [], 0
    for seed in range(SEEDS):
        for kind, each in by_kind(measured(rank, count, seed, counter)).items():
            if each.energy_joules is None or each.energy_error_joules is None:
                missing += 1
                continue
            error = each.energy_joules - rank.joules(kind)
            standard.append(error / each.energy_error_joules)
            relative.append(error / rank.joules(kind))
    assert len(standard) > SEEDS, f"{missing} are not known"
    # 19 of 20 within 1.96; the binomial's own deviation over 40 is 3.4 %.
    assert sum(abs(each) <= 1.96 for each in standard) >= 0.86 * len(standard)
    assert max(abs(each) for each in standard) < 5
    # Not so wide either that it says nothing.
    assert statistics.pstdev(standard) > 0.15
    assert abs(statistics.mean(relative)) < 0.03


def test_instructions_that_are_always_in_the_same_proportion_are_not_told_apart() -> None:
    """Forward and backward fill each step of the counter in the same proportion."""
    gpu = SyntheticGpu(1)
    instructions = tuple(Instruction(kind, 0, number) for number in range(1000) for kind in ("forward", "backward"))
    records = []
    for number in range(6):
        stamps, begin = array("d"), gpu.trace.now
        for instruction in instructions:
            stamps.append(gpu.trace.now)
            gpu.trace.add(0.0005, 200.0 if instruction.kind == "forward" else 400.0)
            stamps.append(gpu.trace.now)
        records.append(IterationRecord(number, Directive(), instructions, (), begin, gpu.trace.now, stamps))
    found = ProcessMeasurements([edges_of(gpu.timeline())], first_rank=True)
    for record in records:
        found.add(record)
    found.end_phase()
    (iteration,) = found.collect(math.inf)
    assert [each.energy_joules for each in found.measurements()] == [None, None]
    assert [each.time_error_seconds is not None for each in found.measurements()] == [True, True]
    # Their sum is known all the same.
    assert iteration.joules.value == pytest.approx(300.0, rel=0.01)


def test_a_pause_within_an_instruction_changes_neither_its_time_nor_its_energy() -> None:
    rank, gpu = RankOfPipeline(), SyntheticGpu(3)
    records = [gpu.run(rank, number, pause_seconds=3.0 if number in (7, 11) else 0.0) for number in range(20)]
    found = ProcessMeasurements([edges_of(gpu.timeline())], first_rank=False)
    for record in records:
        found.add(record)
    found.end_phase()
    found.collect(math.inf)
    for kind, each in by_kind(found).items():
        assert each.time_seconds == pytest.approx(rank.seconds[kind], rel=0.01)
        assert each.energy_joules == pytest.approx(rank.joules(kind), rel=0.02)
    assert sum(each.repetitions for each in found.measurements()) == 20 * 32 - 2


def test_an_evaluation_between_iterations_is_not_measured() -> None:
    rank, gpu, records = RankOfPipeline(), SyntheticGpu(4), []
    for number in range(15):
        records.append(gpu.run(rank, number))
        if number % 5 == 4:
            gpu.trace.add(20.0, 650.0)
    found = ProcessMeasurements([edges_of(gpu.timeline())], first_rank=False)
    for record in records:
        found.add(record)
    found.end_phase()
    found.collect(math.inf)
    for kind, each in by_kind(found).items():
        assert each.energy_joules == pytest.approx(rank.joules(kind), rel=0.02)


def test_the_clocks_of_a_profile_are_measured_separately() -> None:
    """Warm-up iterations, in which the GPU still has the former clock, are left out."""
    rank, gpu, number, records = RankOfPipeline(), SyntheticGpu(5), 0, []
    for clock, before in ((1410, 1410), (1200, 1410), (990, 1200)):
        for _ in range(2):
            gpu.run(rank.at(before), number, clock)
            number += 1
        records.append([])
        for _ in range(12):
            records[-1].append(gpu.run(rank.at(clock), number, clock))
            number += 1
    found, results = ProcessMeasurements([edges_of(gpu.timeline())], first_rank=False), []
    for of_clock in records:
        found.begin_phase()
        for record in of_clock:
            found.add(record)
        found.end_phase()
        results += found.collect(of_clock[-1].end_seconds + 6.0)
    assert len(found.measurements()) == 6
    for each in found.measurements():
        exact = rank.at(each.megahertz)
        assert each.energy_joules == pytest.approx(exact.joules(each.kind), rel=0.02)
        assert each.time_seconds == pytest.approx(exact.seconds[each.kind], rel=0.01)
    assert [result.megahertz for result in results if result] == [1410, 1200, 990]
    for result in results:
        exact = rank.at(result.megahertz)
        joules = 16 * sum(map(exact.joules, ("forward", "backward")))
        assert result.joules.value == pytest.approx(joules, rel=0.01)


def test_phases_at_the_same_clocks_are_combined() -> None:
    rank, gpu, errors = RankOfPipeline(), SyntheticGpu(9), []
    found = ProcessMeasurements([edges_of(timeline := EnergyTimeline())], first_rank=False)
    reader, number = CounterReader(gpu), 0
    for _ in range(4):
        found.begin_phase()
        for _ in range(6):
            found.add(gpu.run(rank, number))
            number += 1
        found.end_phase()
        gpu.trace.add(8.0, 60.0)
        for reading in reader.new():
            timeline.add(reading)
        assert len(found.collect(gpu.trace.now)) == 1
        assert not found.is_collecting
        errors.append({kind: each.energy_error_joules for kind, each in by_kind(found).items()})
    for kind, each in by_kind(found).items():
        assert errors[-1][kind] < 0.7 * errors[0][kind]
        assert each.energy_joules == pytest.approx(rank.joules(kind), rel=0.02)
        assert each.repetitions == 4 * 6 * 16


def test_the_energies_of_two_gpus_of_a_process_are_added() -> None:
    rank, gpu = RankOfPipeline(), SyntheticGpu(6)
    records = iterations(gpu, rank, 15)
    timelines = [gpu.timeline(), SyntheticGpu(7, gpu.trace).timeline()]
    found = ProcessMeasurements([edges_of(timeline) for timeline in timelines], first_rank=False)
    for record in records:
        found.add(record)
    found.end_phase()
    found.collect(math.inf)
    for kind, each in by_kind(found).items():
        assert each.energy_joules == pytest.approx(2 * rank.joules(kind), rel=0.02)
    assert found.blocking() == RegressionEstimate(pytest.approx(180.0, rel=0.03), pytest.approx(3.0, abs=3.0))


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32), iterations_before=st.integers(1, 10), count=st.integers(4, 12))
def test_readings_in_parts_give_the_same_measurements_as_all_at_once(
    seed: int, iterations_before: int, count: int
) -> None:
    rank, gpu = RankOfPipeline(microbatches=8), SyntheticGpu(seed)
    records = iterations(gpu, rank, count)
    timeline = gpu.timeline()
    one, other = (ProcessMeasurements([edges_of(timeline)], first_rank=False) for _ in range(2))
    for number, record in enumerate(records):
        one.add(record)
        other.add(record)
        if number >= iterations_before:
            other.collect(record.end_seconds)
    for each in (one, other):
        each.end_phase()
        each.collect(math.inf)
    for this, that in zip(one.measurements(), other.measurements(), strict=True):
        assert this.time_seconds == that.time_seconds
        assert (this.energy_joules is None) == (that.energy_joules is None)
        if this.energy_joules is not None:
            assert that.energy_joules == pytest.approx(this.energy_joules, rel=1e-6)


def test_without_a_counter_the_times_alone_are_measured() -> None:
    gpu = SyntheticGpu(8)
    found = ProcessMeasurements([], first_rank=False)
    for record in iterations(gpu, RankOfPipeline(), 5):
        found.add(record)
    found.end_phase()
    (iteration,) = found.collect(math.inf)
    assert iteration is None
    assert all(each.energy_joules is None and each.time_seconds > 0 for each in found.measurements())
    assert found.blocking() is None
