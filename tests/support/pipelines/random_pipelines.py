"""Random graphs and profiles, as hypothesis strategies."""

import itertools
import os
from collections.abc import Sequence

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from wattloop_planner.frequency.pipeline.graph import OperationGraph
from wattloop_planner.frequency.pipeline.instruction_profiles import Option, Profile
from wattloop_planner.frequency.pipeline.planning_problem import Problem, pipeline_problem

# WATTLOOP_EXHAUSTIVE_TESTS=1: 1,000 random cases for each property, and every breakpoint of the large pipelines.
EXHAUSTIVE = os.environ.get("WATTLOOP_EXHAUSTIVE_TESTS") == "1"
randomly = settings(max_examples=1_000 if EXHAUSTIVE else 40, deadline=None)


def options_of(*options: tuple[int, float, float]) -> tuple[Option, ...]:
    """Options from (MHz, s, J), in order of falling frequency."""
    return tuple(Option(*option) for option in sorted(options, reverse=True))


@st.composite
def profiles(draw: st.DrawFn, kinds: Sequence[tuple[int, str]], max_options: int) -> Profile:
    """Arbitrary profiles; times and energies need not be monotonic in the frequency."""
    options = {}
    for kind in kinds:
        rows = draw(
            st.lists(st.tuples(st.integers(10, 400), st.integers(100, 4_000)), min_size=1, max_size=max_options)
        )
        options[kind] = options_of(
            *((300 + 15 * i, time / 1000, joules / 100) for i, (time, joules) in enumerate(rows))
        )
    return Profile("random", options)


@st.composite
def graphs(draw: st.DrawFn, max_operations: int) -> OperationGraph:
    """Arbitrary graphs with randomly numbered operations."""
    count = draw(st.integers(1, max_operations))
    stages = draw(st.integers(1, min(3, count)))
    stage_of = [*range(stages), *(draw(st.integers(0, stages - 1)) for _ in range(count - stages))]
    rank = draw(st.permutations(range(count)))
    edges = {
        (a, b) if rank[a] < rank[b] else (b, a)
        for a, b in itertools.combinations(range(count), 2)
        if draw(st.booleans())
    }
    order = [
        sorted((op for op in range(count) if stage_of[op] == stage), key=rank.__getitem__) for stage in range(stages)
    ]
    edges |= {pair for row in order for pair in itertools.pairwise(row)}
    joined = np.array(sorted(edges), dtype=np.int32).reshape(-1, 2)
    zeros = np.zeros(count, dtype=np.int32)
    return OperationGraph(
        stages,
        1,
        ("forward", "backward"),
        np.array(stage_of, dtype=np.int32),
        np.array([draw(st.integers(0, 1)) for _ in range(count)], dtype=np.int32),
        zeros,
        zeros,
        tuple(np.array(row, dtype=np.int32) for row in order),
        np.ascontiguousarray(joined[:, 0]),
        np.ascontiguousarray(joined[:, 1]),
    )


@st.composite
def problems(draw: st.DrawFn, max_operations: int = 8, max_options: int = 5) -> Problem:
    """Small arbitrary pipelines."""
    graph = draw(graphs(max_operations))
    profile = draw(profiles(graph.kinds, max_options))
    return pipeline_problem(graph, profile, draw(st.sampled_from([0.0, 20.0, 75.0, 400.0])))
