"""Connected components, compared with SciPy."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components as reference

from wattloop_planner.frequency.solver.relaxation import connected_components


@st.composite
def graphs(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]]]:
    size = draw(st.integers(1, 40))
    nodes = st.integers(0, size - 1)
    return size, draw(st.lists(st.tuples(nodes, nodes), max_size=60))


def check(size: int, edges: list[tuple[int, int]]) -> None:
    ends = np.array(edges, dtype=np.int64).reshape(-1, 2)
    count, component = connected_components(size, ends[:, 0], ends[:, 1])
    matrix = coo_array((np.ones(len(ends), dtype=np.int8), (ends[:, 0], ends[:, 1])), shape=(size, size))
    expected_count, expected = reference(matrix, directed=False)
    assert count == expected_count
    assert component.tolist() == expected.tolist()


@given(graphs())
def test_components_and_their_numbers_equal_those_of_scipy(graph: tuple[int, list[tuple[int, int]]]) -> None:
    check(*graph)


@pytest.mark.parametrize("seed", range(3))
def test_long_paths_in_any_order_are_one_component_each(seed: int) -> None:
    order = np.random.default_rng(seed).permutation(20_000).tolist()
    edges = [*pairwise(order[:10_000]), *pairwise(order[10_000:])]
    check(20_000, edges)
