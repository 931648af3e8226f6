"""Every branch of the pruning stage, worked out by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattloop_planner.bandit.zeus_policy import Pruning, RunResult, pruning_after

SIZES = (8, 16, 32, 64)


def requested_sizes(default: int, outcomes: list[tuple[float, bool]]) -> tuple[list[int], Pruning]:
    """The requested sizes if they end as given, and the state afterwards."""
    results: list[RunResult] = []
    for cost, reached in outcomes:
        next_batch_size = pruning_after(SIZES, default, results).next_batch_size
        assert next_batch_size is not None
        results.append(RunResult(next_batch_size, cost, reached))
    return [result.batch_size for result in results], pruning_after(SIZES, default, results)


ok, no = True, False
CASES = {
    "down to the end, up to the end, twice, the second round from the cheapest": (
        32,
        [(5, ok), (4, ok), (6, ok), (7, ok), (4, ok), (6, ok), (5, ok), (7, ok)],
        [32, 16, 8, 64, 16, 8, 32, 64],
        Pruning(None, (8, 16, 32, 64)),
    ),
    "a failure ends the walk down, sizes beyond it are dropped": (
        32,
        [(5, ok), (9, no), (6, ok), (5, ok), (6, ok)],
        [32, 16, 64, 32, 64],
        Pruning(None, (32, 64)),
    ),
    "a failure ends the walk up": (
        16,
        [(5, ok), (6, ok), (9, no), (5, ok), (6, ok)],
        [16, 8, 32, 16, 8],
        Pruning(None, (8, 16)),
    ),
    "the default fails first: the walk goes up, the second round starts from the cheapest of those": (
        16,
        [(9, no), (6, ok), (5, ok), (5, ok), (6, ok)],
        [16, 32, 64, 64, 32],
        Pruning(None, (32, 64)),
    ),
    "the default fails and so does the next larger: all are pruned": (
        16,
        [(9, no), (9, no)],
        [16, 32],
        Pruning(None, ()),
    ),
    "the smallest is the default: nothing below": (8, [(5, ok), (9, no), (5, ok)], [8, 16, 8], Pruning(None, (8,))),
    "the largest is the default: nothing above": (64, [(5, ok), (9, no), (5, ok)], [64, 32, 64], Pruning(None, (64,))),
    "a tie: the one tried first starts the second round": (
        32,
        [(5, ok), (5, ok), (9, no), (5, ok)],
        [32, 16, 8, 64],
        Pruning(32),
    ),
    "the second round drops a size that survived the first": (
        32,
        [(5, ok), (4, ok), (9, no), (9, no), (9, no), (5, ok)],
        [32, 16, 8, 64, 16, 32],
        Pruning(None, (32,)),
    ),
    "every survivor of the first round fails in the second": (
        32,
        [(5, ok), (9, no), (9, no), (9, no)],
        [32, 16, 64, 32],
        Pruning(None, ()),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_pruning_stage_requests_the_sizes_worked_out_by_hand(name: str) -> None:
    default, outcomes, next_batch_size, after = CASES[name]
    assert requested_sizes(default, outcomes) == (next_batch_size, after)


def test_a_result_of_another_size_does_not_advance_the_stage() -> None:
    first = RunResult(16, 5, True)
    beside = RunResult(64, 1, True)
    assert pruning_after(SIZES, 16, [beside, first, beside, beside]) == Pruning(8)


@given(st.sampled_from(SIZES), st.lists(st.tuples(st.floats(0, 100), st.booleans()), min_size=20, max_size=20))
def test_pruning_ends_and_every_survivor_reached_the_target_twice(
    default: int, outcomes: list[tuple[float, bool]]
) -> None:
    results: list[RunResult] = []
    state = pruning_after(SIZES, default, results)
    while state.next_batch_size is not None:
        cost, reached = outcomes[len(results)]
        results.append(RunResult(state.next_batch_size, cost, reached))
        state = pruning_after(SIZES, default, results)
    assert len(results) <= 2 * len(SIZES)
    for size in state.survivors:
        assert [r.reached for r in results if r.batch_size == size] == [True, True]
