"""Schedules: complete, without deadlock, with a bounded number of activations in flight."""

from collections import Counter

import numpy as np
import pytest

from wattloop.errors import UsageError
from wattloop_planner.frequency.pipeline.graph import MAX_OPERATIONS, OperationGraph, schedule_graph
from wattloop_planner.frequency.pipeline.schedules import (
    BACKWARD,
    FORWARD,
    FORWARD_BACKWARD,
    RECOMPUTATION,
    SCHEDULES,
    EarlyRecomputation,
    GPipe,
    Interleaved,
    OneForwardOneBackward,
    Schedule,
)
from wattloop_research.command_line.pipeline_options import INTERLEAVED, SCHEDULE_NAMES

SIZES = [(1, 1), (2, 1), (4, 9), (8, 24)]
EVERY = [
    *(schedule(*size) for size in SIZES for schedule in (OneForwardOneBackward, EarlyRecomputation, GPipe)),
    *(
        Interleaved(stages, stages * groups, chunks)
        for stages in (1, 2, 4)
        for groups in (1, 3)
        for chunks in (1, 2, 3)
    ),
]
LABELS = [f"{type(s).__name__}-{s.stages}x{s.microbatches}x{s.chunks}" for s in EVERY]


def names(graph: OperationGraph, stage: int) -> list[tuple[str, int, int]]:
    return [
        (graph.instructions[graph.instruction_of[op]], int(graph.microbatch_of[op]), int(graph.chunk_of[op]))
        for op in graph.order[stage].tolist()
    ]


@pytest.mark.parametrize("schedule", EVERY, ids=LABELS)
def test_every_stage_runs_every_forward_and_backward_once(schedule: Schedule) -> None:
    graph = schedule_graph(schedule)
    assert graph.operations <= schedule.operations
    for stage in range(schedule.stages):
        found = Counter(
            ("up" if name == FORWARD else "down", microbatch, chunk)
            for name, microbatch, chunk in names(graph, stage)
            if name != RECOMPUTATION
        )
        expected = [
            (way, microbatch, chunk)
            for way in ("up", "down")
            for microbatch in range(schedule.microbatches)
            for chunk in range(schedule.chunks)
        ]
        assert found == Counter(expected)


@pytest.mark.parametrize("schedule", EVERY, ids=LABELS)
def test_a_schedule_does_not_deadlock(schedule: Schedule) -> None:
    graph = schedule_graph(schedule)
    missing = np.bincount(graph.afters, minlength=graph.operations)
    afters: list[list[int]] = [[] for _ in range(graph.operations)]
    for before, after in zip(graph.befores.tolist(), graph.afters.tolist(), strict=True):
        afters[before].append(after)
    done = np.flatnonzero(missing == 0).tolist()
    for operation in done:
        for after in afters[operation]:
            missing[after] -= 1
            if missing[after] == 0:
                done.append(after)
    assert len(done) == graph.operations


def in_flight(schedule: Schedule, stage: int) -> int:
    """Maximum number of microbatches (times chunks) between their forward and backward on a stage."""
    graph = schedule_graph(schedule)
    flying = max_in_flight = 0
    for name, _, _ in names(graph, stage):
        flying += {FORWARD: 1, BACKWARD: -1, FORWARD_BACKWARD: -1, RECOMPUTATION: 0}[name]
        max_in_flight = max(max_in_flight, flying)
    return max_in_flight


@pytest.mark.parametrize("schedule", EVERY, ids=LABELS)
def test_no_more_activations_are_in_flight_than_the_schedule_allows(schedule: Schedule) -> None:
    for stage in range(schedule.stages):
        ahead = schedule.stages - stage - 1
        if isinstance(schedule, GPipe):
            max_in_flight = schedule.microbatches
        elif schedule.chunks > 1:
            max_in_flight = min(
                2 * ahead + (schedule.chunks - 1) * schedule.stages + 1, schedule.microbatches * schedule.chunks
            )
        else:
            max_in_flight = min(ahead + 1, schedule.microbatches)
        assert in_flight(schedule, stage) == max_in_flight


def test_1f1b_runs_ahead_then_alternates() -> None:
    graph = schedule_graph(OneForwardOneBackward(3, 4))
    order = [" ".join(f"{name[0]}{microbatch}" for name, microbatch, _ in names(graph, stage)) for stage in range(3)]
    assert order == ["f0 f1 f2 b0 f3 b1 b2 b3", "f0 f1 b0 f2 b1 f3 b2 b3", "f0 b0 f1 b1 f2 b2 f3 b3"]


def test_early_recomputation_recomputes_alone_only_when_no_forward_remains() -> None:
    graph = schedule_graph(EarlyRecomputation(3, 4))
    short = {FORWARD: "f", BACKWARD: "b", RECOMPUTATION: "r", FORWARD_BACKWARD: "fb"}
    order = [
        " ".join(f"{short[name]}{microbatch}" for name, microbatch, _ in names(graph, stage)) for stage in range(3)
    ]
    assert order == ["f0 f1 f2 fb0 f3 fb1 r2 b2 r3 b3", "f0 f1 fb0 f2 fb1 f3 fb2 r3 b3", "f0 fb0 f1 fb1 f2 fb2 f3 fb3"]


def test_interleaved_chunks_take_turns_as_in_megatron() -> None:
    graph = schedule_graph(Interleaved(2, 4, 2))
    order = [" ".join(f"{n[0]}{c}.{m}" for n, m, c in names(graph, stage)) for stage in range(2)]
    assert order == [
        "f0.0 f0.1 f1.0 f1.1 f0.2 b1.0 f0.3 b1.1 f1.2 b0.0 f1.3 b0.1 b1.2 b1.3 b0.2 b0.3",
        "f0.0 f0.1 f1.0 b1.0 f1.1 b1.1 f0.2 b0.0 f0.3 b0.1 f1.2 b1.2 f1.3 b1.3 b0.2 b0.3",
    ]


def test_activations_go_up_and_gradients_come_down_through_the_chunks() -> None:
    graph = schedule_graph(Interleaved(2, 2, 2))
    part = graph.chunk_of * 2 + graph.stage_of
    edges = {
        (graph.instructions[graph.instruction_of[a]][0], int(part[a]), int(part[b]))
        for a, b in zip(graph.befores.tolist(), graph.afters.tolist(), strict=True)
        if graph.microbatch_of[a] == graph.microbatch_of[b] and graph.instruction_of[a] == graph.instruction_of[b]
    }
    assert {("f", 0, 1), ("f", 1, 2), ("f", 2, 3), ("b", 3, 2), ("b", 2, 1), ("b", 1, 0)} <= edges


@pytest.mark.parametrize(("stages", "microbatches"), [(0, 4), (4, 0), (-1, 4)])
def test_a_size_below_one_is_rejected(stages: int, microbatches: int) -> None:
    with pytest.raises(UsageError, match="must be at least 1"):
        OneForwardOneBackward(stages, microbatches)


def test_interleaved_needs_a_multiple_of_the_stages() -> None:
    with pytest.raises(UsageError, match=r"--microbatches 6 must be a multiple of --stages 4"):
        Interleaved(4, 6, 2)


def test_a_pipeline_that_exceeds_memory_is_rejected_with_its_size() -> None:
    with pytest.raises(
        UsageError, match=rf"2,000,000,000 operations would take about .* GB.* the maximum is {MAX_OPERATIONS:,}"
    ):
        schedule_graph(OneForwardOneBackward(1000, 1_000_000))


def test_the_command_line_names_the_existing_schedules() -> None:
    assert tuple(SCHEDULES) == SCHEDULE_NAMES
    assert isinstance(SCHEDULES[INTERLEAVED](2, 4, 2), Interleaved)
