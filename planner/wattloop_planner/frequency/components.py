"""The connected components of an undirected graph, without SciPy, whose import takes longer than most plans."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def connected_components(
    size: int, one: npt.NDArray[np.int64], other: npt.NDArray[np.int64]
) -> tuple[int, npt.NDArray[np.int64]]:
    """The components, numbered from 0 in the order of their lowest nodes.

    Every component is a tree whose root is its lowest node so far. Each round joins the roots at the ends of each edge,
    the higher one below the lower one, and then makes every node a child of its root.

    Args:
        size: Number of nodes, 0 to size - 1.
        one: One end of each edge, shape (edges,).
        other: The other end, shape (edges,).

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
