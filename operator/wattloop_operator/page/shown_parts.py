"""What the live page keeps of listed objects, within a bound on the memory of each namespace."""

from __future__ import annotations

from collections import Counter

from wattloop_operator.cluster.api import Body
from wattloop_operator.cluster.informer.object_bytes import parsed_bytes
from wattloop_operator.cluster.informer.stored_parts import own_part

# In place of each object beyond the bound: a list of them takes 8 bytes each.
OMITTED: Body = {}


class ShownParts:
    """Keeps the parts of objects while one reading of the cluster lists them.

    Args:
        namespace_bytes: Bytes of memory that the objects of a namespace may take.
    """

    def __init__(self, namespace_bytes: int) -> None:
        self._namespace_bytes = namespace_bytes
        self._taken: Counter[str] = Counter()

    def part(self, body: Body) -> Body:
        """What is kept of an object; `OMITTED` once its namespace is too large. "" has what is in none."""
        namespace = str(body["metadata"].get("namespace", ""))
        if self._taken[namespace] > self._namespace_bytes:
            return OMITTED
        kept = own_part(body)
        self._taken[namespace] += parsed_bytes(kept)
        return kept

    def too_large(self) -> tuple[str, ...]:
        """The namespaces whose objects take more, of which some are missing."""
        return tuple(name for name, taken in self._taken.items() if taken > self._namespace_bytes)
