"""Policies that are kept between decisions, so that each updates its model with new observations only.

The cache holds no state: a policy decides the same whether it is kept or created. A policy is not
thread-safe, so a decision takes it out of the cache and puts it back; a decision of the same job on
another thread creates one meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from cachetools import LRUCache

from wattloop_planner.bandit.policy import Policy

# A model has about six matrices of the arms, of 8 bytes a cell: this many cells are 24 MB.
MAX_CELLS = 500_000
# What a model has besides, in cells.
OTHER_CELLS = 200


@dataclass(frozen=True)
class _Entry:
    policy: Policy
    cells: int


class PolicyCache:
    """The most recently used policies, up to a bound of their size. Thread-safe.

    Args:
        max_cells: Bound of the sum of the policies' sizes, in cells of one matrix of the arms.
    """

    def __init__(self, max_cells: int = MAX_CELLS) -> None:
        self._lock = threading.Lock()
        self._entries: LRUCache[Hashable, _Entry] = LRUCache(max_cells, getsizeof=lambda entry: entry.cells)

    @contextmanager
    def policy(self, key: Hashable, create: Callable[[], Policy], arms: int) -> Iterator[Policy]:
        """A policy that no other thread uses within the context.

        Args:
            key: Identifies the job and all settings of the policy.
            create: Creates the policy if none is kept.
            arms: Number of arms of its model, which determines its size.
        """
        with self._lock:
            entry = self._entries.pop(key, None)
        policy = create() if entry is None else entry.policy
        yield policy
        # Not after an exception, which may have left the model with a part of the observations.
        cells = arms**2 + OTHER_CELLS
        with self._lock:
            if cells <= self._entries.maxsize:
                self._entries[key] = _Entry(policy, cells)
