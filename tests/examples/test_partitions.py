"""Partitions of examples/pipeline: every layer is in one stage, and every stage has one."""

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from partitions import balanced, custom, partition_text, shards, uniform, uniform_floor, uniform_transformer

from wattloop.errors import UsageError

stages_of = st.integers(1, 12)
extra_layers = st.integers(0, 40)


def sizes(partition: tuple[int, ...]) -> list[int]:
    return [end - first for first, end in pairwise(partition)]


@given(stages_of, extra_layers)
def test_uniform_stages_cover_all_layers_and_differ_by_one_at_most(stages: int, extra: int) -> None:
    found = sizes(uniform(stages + extra, stages))
    assert len(found) == stages
    assert sum(found) == stages + extra
    assert found == sorted(found, reverse=True)
    assert max(found) - min(found) <= 1


@given(stages_of, extra_layers)
def test_with_uniform_floor_the_last_stage_alone_is_larger(stages: int, extra: int) -> None:
    *others, last = sizes(uniform_floor(stages + extra, stages))
    assert {*others} <= {(stages + extra) // stages}
    assert last == stages + extra - sum(others)


@given(st.integers(0, 3), stages_of, extra_layers, st.integers(0, 2))
def test_uniform_transformer_divides_the_blocks_alone(before: int, stages: int, extra: int, after: int) -> None:
    found = sizes(uniform_transformer(before, stages + extra, after, stages))
    blocks = list(found)
    blocks[0] -= before
    blocks[-1] -= after
    assert blocks == sizes(uniform(stages + extra, stages))


@given(st.lists(st.integers(0, 9), min_size=1, max_size=9), st.data())
def test_no_partition_has_a_less_costly_stage_than_the_balanced_one(costs: list[int], data: st.DataObject) -> None:
    stages = data.draw(st.integers(1, len(costs)))

    def costliest(partition: tuple[int, ...]) -> int:
        return max(sum(costs[first:end]) for first, end in pairwise(partition))

    found = balanced(costs, stages)
    assert len(found) == stages + 1
    assert min(sizes(found)) >= 1
    inner = combinations(range(1, len(costs)), stages - 1)
    assert costliest(found) == min(costliest((0, *cuts, len(costs))) for cuts in inner)


@given(st.data(), stages_of, extra_layers)
def test_a_custom_partition_is_the_one_that_its_name_states(data: st.DataObject, stages: int, extra: int) -> None:
    layers = stages + extra
    inner = (
        data.draw(st.sets(st.integers(1, layers - 1), min_size=stages - 1, max_size=stages - 1)) if stages > 1 else []
    )
    partition = (0, *sorted(inner), layers)
    assert custom(partition_text(partition), layers, stages) == partition


@given(st.lists(st.integers(0, 60), max_size=6), st.integers(1, 5), st.integers(0, 20))
def test_a_refused_custom_partition_comes_with_one_that_is_valid(numbers: list[int], stages: int, extra: int) -> None:
    layers = stages + extra
    try:
        custom("custom:" + ",".join(map(str, numbers)), layers, stages)
    except UsageError as error:
        proposed = str(error).rpartition("such as ")[2]
        assert custom(proposed, layers, stages) == uniform(layers, stages)


@pytest.mark.parametrize(
    ("method", "reason"),
    [
        ("custom:0,8,14,21,26", "layer 26 is in no stage"),
        ("custom:0,8,14,21,25", "layers 25 to 26 are in no stage"),
        ("custom:2,8,14,21,27", "layers 0 to 1 are in no stage"),
        ("custom:0,8,8,21,27", "stage 1 from layer 8 to 8 has no layers"),
        ("custom:0,14,8,21,27", "stage 1 from layer 14 to 8 has no layers"),
        ("custom:0,8,14,21,28", "found 28 layers, but the model has 27"),
        ("custom:0,8,14,27", "found 3 stages, but --pp is 4"),
        ("custom:0,8,x,21,27", "found something else than whole numbers between commas"),
        ("custom:", "found something else than whole numbers between commas"),
    ],
)
def test_a_custom_partition_with_a_gap_is_refused_with_what_would_be_right(method: str, reason: str) -> None:
    with pytest.raises(UsageError) as refused:
        custom(method, 27, 4)
    expected = "expected 5 rising whole numbers from 0 to 27, such as custom:0,7,14,21,27"
    assert str(refused.value) == f"{method}: {reason}, {expected}"


@given(st.lists(st.integers(1, 99), min_size=1, max_size=40), st.integers(1, 60))
def test_shards_cover_all_layers_and_are_as_many_as_asked_at_most(parameters: list[int], count: int) -> None:
    found = shards(parameters, count)
    assert found[0] == 0
    assert found[-1] == len(parameters)
    assert min(sizes(found)) >= 1
    assert len(found) - 1 <= count
    mean = sum(parameters) / count
    # A shard that ends before the last layer is above the mean, and was not before its last layer.
    for first, end in pairwise(found[:-1]):
        assert sum(parameters[first:end]) > mean >= sum(parameters[first : end - 1])


@pytest.mark.parametrize("stages", [0, 5])
def test_stages_without_layers_are_refused(stages: int) -> None:
    for make in (uniform, uniform_floor, lambda layers, count: balanced([1.0] * layers, count)):
        with pytest.raises(UsageError, match=f"--pp: found {stages} stages for 4 layers, expected 1 to 4"):
            make(4, stages)
