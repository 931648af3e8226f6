"""The network on which the parametric flow runs: operations as arcs between events."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from wattloop_planner.frequency._parametric_flow import ParametricFlow
from wattloop_planner.frequency.pipeline.graph import OperationGraph

UNLIMITED = 2**61 - 1


class EventNetwork:
    """The graph with its operations as arcs between events.

    An event is the end of some operations and the start of others. If an operation's end has one
    successor, or a start one predecessor, both are one event: a later end, or an earlier start, costs
    nothing (docs/internals/frequency.md).
    """

    def __init__(self, graph: OperationGraph) -> None:
        count = graph.operations
        after_count = np.bincount(graph.befores, minlength=count)
        before_count = np.bincount(graph.afters, minlength=count)
        together = (after_count[graph.befores] == 1) | (before_count[graph.afters] == 1)
        operations = np.arange(count)
        first, last = operations[before_count == 0], operations[after_count == 0]
        # Starts are 0 … n - 1, ends n … 2n - 1, then the source and the sink.
        joined_from = np.concatenate([graph.befores[together] + count, first, last + count])
        joined_to = np.concatenate(
            [graph.afters[together], np.full(len(first), 2 * count), np.full(len(last), 2 * count + 1)]
        )
        size = 2 * count + 2
        self.events, event_of = connected_components(size, joined_from, joined_to)
        apart = ~together
        self.tails = np.concatenate([event_of[:count], event_of[graph.befores[apart] + count]]).astype(np.int32)
        self.heads = np.concatenate([event_of[count : 2 * count], event_of[graph.afters[apart]]]).astype(np.int32)
        self.source, self.sink = int(event_of[2 * count]), int(event_of[2 * count + 1])

    def flow(
        self,
        graph: OperationGraph,
        lengths: tuple[npt.NDArray[np.int64], ...],
        capacities: tuple[npt.NDArray[np.int64], ...],
    ) -> ParametricFlow:
        """The parametric flow with the corners of each of the graph's kinds.

        Args:
            graph: The graph of this network.
            lengths: Lengths of the corners, per kind.
            capacities: Changes of slope at the corners, per kind.
        """
        # The precedences form an additional kind, with one corner of length 0.
        pools = [*lengths, np.zeros(1, dtype=np.int64)], [*capacities, np.full(1, UNLIMITED, dtype=np.int64)]
        precedences = np.full(len(self.tails) - graph.operations, len(lengths), dtype=np.int32)
        kind_of = np.concatenate([graph.kind_of, precedences])
        sizes = np.array([len(pool) for pool in pools[0]])
        starts = np.cumsum(sizes) - sizes
        counts = sizes[kind_of]
        first_points = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        places = np.arange(first_points[-1]) - np.repeat(first_points[:-1] - starts[kind_of], counts)
        return ParametricFlow(
            nodes=self.events,
            source=self.source,
            sink=self.sink,
            tails=self.tails,
            heads=self.heads,
            first_points=first_points,
            lengths=np.concatenate(pools[0])[places],
            capacities=np.concatenate(pools[1])[places],
        )


def connected_components(
    size: int, one: npt.NDArray[np.int64], other: npt.NDArray[np.int64]
) -> tuple[int, npt.NDArray[np.int64]]:
    """The connected components of an undirected graph, numbered in the order of their lowest nodes.

    Each component is a tree whose root is its lowest node. Each round attaches the higher root of the two
    ends of an edge to the lower root, and then makes every node a child of its root. SciPy's function is
    not used, because its import takes longer than most plans.

    Args:
        size: Number of nodes, 0 to size - 1.
        one: First end of each edge, shape (edges,).
        other: Second end of each edge, shape (edges,).

    Returns:
        The number of components, and the component of each node, shape (size,).

    Example:
        >>> connected_components(5, np.array([3, 4]), np.array([1, 0]))
        (3, array([0, 1, 2, 1, 0]))
    """
    parent = np.arange(size)
    while True:
        low, high = np.minimum(parent[one], parent[other]), np.maximum(parent[one], parent[other])
        apart = low != high
        if not apart.any():
            break
        np.minimum.at(parent, high[apart], low[apart])
        while (parent[parent] != parent).any():
            parent = parent[parent]
    (roots,) = np.nonzero(parent == np.arange(size))
    return len(roots), np.searchsorted(roots, parent)
