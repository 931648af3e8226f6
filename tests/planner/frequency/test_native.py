"""The C extensions compute small examples and reject invalid arguments."""

from typing import Any

import numpy as np
import pytest

from wattloop_planner.frequency._parametric_flow import ParametricFlow
from wattloop_planner.frequency._rounding import Pipeline
from wattloop_planner.frequency.solver.relaxation import UNLIMITED


def integers(*values: int) -> Any:
    return np.array(values, dtype=np.int32)


def longs(*values: int) -> Any:
    return np.array(values, dtype=np.int64)


INFINITE = float("inf")
# One operation from node 0 to node 1: 10 units long; shortened to 4 units at a cost of 3 per unit.
FLOW: dict[str, Any] = {
    "nodes": 2,
    "source": 0,
    "sink": 1,
    "tails": integers(0),
    "heads": integers(1),
    "first_points": integers(0, 2),
    "lengths": longs(4, 10),
    "capacities": longs(UNLIMITED, 3),
}
PIPELINE: dict[str, Any] = {
    "befores": integers(0),
    "afters": integers(1),
    "kind_of": integers(0, 0),
    "first_options": integers(0, 2),
    "times": np.array([1.0, 2.0]),
    "costs": np.array([5.0, 3.0]),
}


def test_operations_that_cannot_meet_the_deadline_take_their_fastest_option() -> None:
    pipeline = Pipeline(**PIPELINE)
    plan = np.array([1, 1], dtype=np.int16)
    # Of 3.5 s, the first operation may take 1.5 s and the second the rest.
    assert pipeline.fill(np.array([1.5, 2.0]), 3.5, plan) == (3.0, 8.0)
    assert plan.tolist() == [0, 1]
    assert pipeline.fill(np.array([2.0, 2.0]), 1.0, plan) == (2.0, 10.0)
    assert plan.tolist() == [0, 0]
    assert pipeline.round(np.array([1.5, 2.0]), 4.0, plan) == (4.0, 6.0)


def test_one_operation_is_shortened_to_its_fastest() -> None:
    flow = ParametricFlow(**FLOW)
    durations, times, rises = np.empty(1), longs(0, 0), np.empty(2)
    assert (flow.time, flow.previous_time, flow.flow, flow.spread) == (10, 10, 0, 0.0)
    assert flow.advance(INFINITE, times[:1], rises[:1]) == 1
    assert (flow.time, flow.previous_time, flow.flow, flow.finished) == (4, 10, 3, False)
    assert (times[0], rises[0], flow.spread) == (4, 18.0, pytest.approx(6 * 3**0.5))
    flow.durations(7, 0.5, durations)
    assert durations.tolist() == [3.5]
    assert [flow.advance(INFINITE, times, rises) for _ in range(2)] == [0, 0]
    assert flow.finished
    flow.durations(4, 1.0, durations)
    assert durations.tolist() == [4.0]


def test_the_flow_is_that_of_the_last_piece_without_a_further_piece() -> None:
    # Two parallel operations: one can be shortened from 9 to 1 at 5 per unit, the other from 6 to 5 at 7.
    flow = ParametricFlow(
        nodes=2,
        source=0,
        sink=1,
        tails=integers(0, 0),
        heads=integers(1, 1),
        first_points=integers(0, 2, 4),
        lengths=longs(1, 9, 5, 6),
        capacities=longs(UNLIMITED, 5, UNLIMITED, 7),
    )
    times, rises = np.zeros(9, dtype=np.int64), np.zeros(9)
    assert flow.advance(INFINITE, times, rises) == 2
    assert (times[:2].tolist(), rises[:2].tolist()) == ([6, 5], [15.0, 15.0 + 12.0])
    assert (flow.finished, flow.flow) == (True, 12)


def test_one_call_walks_breakpoints_up_to_the_requested_spread() -> None:
    corners = {"first_points": integers(0, 4), "lengths": longs(1, 3, 6, 10), "capacities": longs(UNLIMITED, 9, 4, 1)}
    complete, parts = (ParametricFlow(**{**FLOW, **corners}) for _ in range(2))
    times, rises = np.zeros(9, dtype=np.int64), np.zeros(9)
    assert complete.advance(INFINITE, times, rises) == 3
    assert times[:4].tolist() == [6, 3, 1, 0]
    assert rises[:4].tolist() == [4.0, 4.0 + 3 * 5, 4.0 + 3 * 5 + 2 * 14, 0.0]
    # The spreads of the pieces are 4, 3 · √5 and 2 · √14. A call walks at least one piece.
    assert [parts.advance(until, times, rises) for until in (0.0, 4.0, 5.0, 99.0)] == [1, 1, 1, 0]
    parts = ParametricFlow(**{**FLOW, **corners})
    assert [parts.advance(until, times, rises) for until in (4.1, 99.0)] == [2, 1]
    assert parts.time == 1


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"tails": longs(0)}, TypeError, "tails: expected int32 items"),
        ({"tails": [0]}, TypeError, "bytes-like object"),
        ({"heads": integers(1, 1)}, ValueError, "heads: expected 1 items, found 2"),
        ({"heads": integers(2)}, ValueError, "an activity's node is out of range"),
        ({"heads": integers(0)}, ValueError, "the network has a cycle"),
        ({"sink": 0}, ValueError, "source and sink must be two of the nodes"),
        ({"nodes": 1}, ValueError, "source and sink must be two of the nodes"),
        ({"first_points": integers(0, 1)}, ValueError, "first_points: the last must be the number of lengths"),
        ({"first_points": integers(-1, 2)}, ValueError, "first_points: must rise from 0"),
        ({"lengths": longs(10, 4)}, ValueError, "lengths must rise"),
        ({"lengths": longs(-1, 4)}, ValueError, "lengths must rise from at least 0"),
        ({"capacities": longs(UNLIMITED, 0)}, ValueError, "capacities must be above 0"),
    ],
)
def test_an_invalid_network_is_rejected(changes: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ParametricFlow(**{**FLOW, **changes})


def test_durations_of_another_time_or_of_too_many_activities_are_rejected() -> None:
    flow = ParametricFlow(**FLOW)
    assert flow.advance(INFINITE, longs(0), np.empty(1)) == 1
    with pytest.raises(TypeError, match="times: expected int64 items"):
        flow.advance(INFINITE, np.empty(1), np.empty(1))
    with pytest.raises(ValueError, match="rises: expected 1 items, found 2"):
        flow.advance(INFINITE, longs(0), np.empty(2))
    with pytest.raises(ValueError, match="time: must lie between"):
        flow.durations(3, 1.0, np.empty(1))
    with pytest.raises(ValueError, match="more items than activities"):
        flow.durations(5, 1.0, np.empty(2))
    with pytest.raises(TypeError, match="durations: expected float64 items"):
        flow.durations(5, 1.0, longs(1))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"afters": integers(2)}, "an edge's operation is out of range"),
        ({"befores": integers(0, 1), "afters": integers(1, 0)}, "wait for each other in a cycle"),
        ({"kind_of": integers(0, 1)}, "an operation's kind is out of range"),
        ({"first_options": integers(0, 1)}, "the last must be the number of times"),
        ({"first_options": integers(0, 0, 2)}, "every kind needs an option"),
        ({"times": np.array([2.0, 2.0])}, "times must rise and its costs fall"),
        ({"costs": np.array([5.0])}, "costs: expected 2 items, found 1"),
    ],
)
def test_an_invalid_pipeline_is_rejected(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Pipeline(**{**PIPELINE, **changes})


def test_a_plan_of_other_options_or_another_size_is_rejected() -> None:
    pipeline = Pipeline(**PIPELINE)
    assert pipeline.realise(np.array([0, 1], dtype=np.int16)) == (3.0, 8.0)
    for plan in ([0, 2], [-1, 0]):
        with pytest.raises(ValueError, match="plan: an operation has no such option"):
            pipeline.reclaim(np.array(plan, dtype=np.int16))
    with pytest.raises(ValueError, match="plan: expected 2 items, found 1"):
        pipeline.realise(np.zeros(1, dtype=np.int16))
    with pytest.raises(TypeError, match="plan: expected int16 items"):
        pipeline.realise(np.zeros(2, dtype=np.uint16))
    frozen = np.zeros(2, dtype=np.int16)
    frozen.setflags(write=False)
    with pytest.raises((BufferError, ValueError), match=r"read-only|writable|not writeable"):
        pipeline.reclaim(frozen)


@pytest.mark.parametrize("count", [1, 2, 3, 40])
def test_an_operation_takes_the_slowest_of_its_options_that_fits(count: int) -> None:
    times = np.arange(1.0, count + 1)
    one = {"befores": integers(), "afters": integers(), "kind_of": integers(0), "first_options": integers(0, count)}
    pipeline = Pipeline(**one, times=times, costs=times[::-1].copy())
    plan = np.zeros(1, dtype=np.int16)
    for deadline in np.arange(1.0, count + 1, 0.5).tolist():
        slowest = int(deadline) - 1
        assert pipeline.round(np.array([deadline]), deadline, plan) == (times[slowest], times[count - 1 - slowest])
        assert plan.tolist() == [slowest]
    # Parallel to a longer operation, it is slowed down from any option.
    both = {"befores": integers(), "afters": integers(), "kind_of": integers(0, 1)}
    first_options, longer = integers(0, count, count + 1), np.append(times, count - 0.5 if count > 1 else 1.0)
    pipeline = Pipeline(**both, first_options=first_options, times=longer, costs=np.append(times[::-1], 1.0))
    for option in range(max(count - 1, 1)):
        plan = np.array([option, 0], dtype=np.int16)
        pipeline.reclaim(plan)
        assert plan.tolist() == [max(count - 2, 0), 0]
