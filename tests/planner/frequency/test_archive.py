"""The archive of a frontier: complete, exact, the same bytes for the same plans, and bounded when it is read."""

import gzip
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.pipelines.measured_pipelines import measured_problem
from support.pipelines.random_pipelines import problems, randomly
from wattloop.errors import InputError
from wattloop.pipeline.instruction import Instruction
from wattloop_planner.frequency.files import archive as archives
from wattloop_planner.frequency.files.archive import (
    PlanArchive,
    archive_of,
    instruction_texts,
    read_archive,
    write_archive,
    write_within,
)
from wattloop_planner.frequency.pipeline.graph import schedule_graph
from wattloop_planner.frequency.pipeline.planning_problem import Problem
from wattloop_planner.frequency.pipeline.plans import evaluate, plan_settings
from wattloop_planner.frequency.pipeline.schedules import Interleaved
from wattloop_planner.frequency.solver.planning import plan_pipeline
from wattloop_research.frequency.baselines import max_frequency


def packed(text: bytes) -> bytes:
    return gzip.compress(text)


def planned(problem: Problem, count: int = 8) -> PlanArchive:
    return archive_of(
        problem, plan_pipeline(problem, count), max_frequency(problem), schedule="1f1b", gpu_product="A100"
    )


@randomly
@given(problems())
def test_every_plan_reads_back_exactly(problem: Problem) -> None:
    planning = plan_pipeline(problem, 8)
    archive = archive_of(problem, planning, max_frequency(problem), schedule="1f1b")
    read = read_archive(write_archive(archive))
    assert read == archive
    assert write_archive(read) == write_archive(archive)
    for number, plan in enumerate(planning.plans):
        rows = [read.stage_settings(number, stage) for stage in range(read.stages)]
        assert [list(row) for row in rows] == plan_settings(problem, plan)
        realised = evaluate(problem, rows)
        assert realised.time_seconds == pytest.approx(read.realised[number].time_seconds, rel=1e-9)
        assert realised.energy_joules == pytest.approx(read.realised[number].energy_joules, rel=1e-9, abs=1e-9)


def test_instructions_of_a_stage_with_several_parts_have_the_texts_that_training_processes_register() -> None:
    texts = instruction_texts(schedule_graph(Interleaved(2, 2, 2)))
    assert {Instruction.of(text).stage for text in texts[1]} == {1, 3}
    assert texts[0][0] == "forward:0:0"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(format="other"), "another document"),
        (lambda d: d.update(version=2), "found version 2, expected version 1"),
        (lambda d: d.pop("points"), "points: found None"),
        (lambda d: d.update(points=[]), "points: found none"),
        (lambda d: d["points"][0].__setitem__(0, 0), r"points\[0\]\[0\]: found 0.0, expected a time above 0"),
        (lambda d: d["points"][0].__setitem__(1, float("nan")), "a finite number"),
        (lambda d: d["points"][0][2].pop(), r"points\[0\]: found .* operations a stage, expected"),
        (lambda d: d["points"][0][2][0].__setitem__(0, True), r"points\[0\]: found another entry than an index"),
        (lambda d: d["points"][0][2][0].__setitem__(0, -1), r"points\[0\]: found another entry than an index"),
        (lambda d: d["points"][0][2][0].__setitem__(0, 10**6), r"points\[0\]: found another entry than an index"),
        (lambda d: d["settings"][0].append("x"), r"settings\[0\]: found 2 entries"),
        (lambda d: d["settings"][0].__setitem__(0, 10**6), r"settings\[0\]"),
        (lambda d: d["instructions"][0].__setitem__(0, "a b"), "found 'a b', expected kind:part:microbatch"),
        (lambda d: d.update(stages=2000), "stages"),
        (lambda d: d.update(stages=7), "instructions: found 8 stages, expected 7"),
        (lambda d: d.update(gpu_product="\x00"), "gpu_product"),
        (lambda d: d.update(blocking_power_watts=-1), "blocking_power_watts"),
    ],
)
def test_invalid_content_is_refused_with_its_place(change: Callable[[dict[str, Any]], Any], message: str) -> None:
    document = json.loads(gzip.decompress(write_archive(planned(measured_problem("gpt3", 2), 3))))
    change(document)
    with pytest.raises(InputError, match=message):
        read_archive(gzip.compress(json.dumps(document).encode()))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: b"", "incomplete data"),
        (lambda: b"[1]", "data that gzip does not read"),
        (lambda: packed(b"[" * 100_000), "invalid JSON"),
        (lambda: packed(b"\xff"), "invalid JSON"),
        (lambda: packed(b"{}") + b"more", "data after its end"),
        (lambda: packed(b"{}")[:-3], "incomplete data"),
        (lambda: packed(b"[]"), "another document"),
        (lambda: packed(b" " * (archives.MAX_BYTES + 1)), "after decompression"),
        (lambda: b"0" * (archives.MAX_COMPRESSED_BYTES + 1), "bytes, expected at most"),
    ],
)
def test_other_data_is_refused_within_bounds(make: Callable[[], bytes], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_archive(make())


@given(st.binary(max_size=200))
def test_arbitrary_bytes_give_an_input_error(data: bytes) -> None:
    for candidate in (data, gzip.compress(data)):
        with pytest.raises(InputError):
            read_archive(candidate)


def test_plans_beyond_a_limit_are_thinned_and_both_ends_remain() -> None:
    archive = planned(measured_problem("gpt3", 12), 40)
    complete = write_archive(archive)
    thinned, data = write_within(archive, len(complete) // 2)
    assert len(data) <= len(complete) // 2
    assert (thinned.points[0], thinned.points[-1]) == (archive.points[0], archive.points[-1])
    assert 10 <= len(thinned.points) < len(archive.points)
    with pytest.raises(InputError, match="bytes for 2 plans of 192 operations"):
        write_within(archive, 100)


def test_forty_plans_of_thousands_of_operations_fit_into_a_manifest() -> None:
    problem = measured_problem("gpt3", 256)
    archive = planned(problem, 40)
    assert archive.operations == 4096
    assert len(write_archive(archive)) < 192 * 1024
