"""The objects of a cluster that the live page shows, by namespace, as they were at one moment."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from wattloop_operator.cluster.api import Body


@dataclass(frozen=True)
class NamespaceObjects:
    """The objects of a namespace.

    Attributes:
        jobs: The bodies of the jobs, by name.
        recurrences: The bodies of the recurrences, by the uid of their job.
        version: Changes with any of them.
    """

    jobs: Mapping[str, Body]
    recurrences: Mapping[str, Sequence[Body]]
    version: str


@dataclass(frozen=True)
class ClusterObjects:
    """The objects that a reader may list, as they were at one moment.

    Attributes:
        namespaces: The objects, by namespace.
        unread: Why the objects of a namespace are missing, by namespace.
        unreviewed: Why it is not known of each namespace whether the viewer may list it; empty if it is.
    """

    namespaces: Mapping[str, NamespaceObjects]
    unread: Mapping[str, str] = field(default_factory=dict)
    unreviewed: str = ""

    @cached_property
    def version(self) -> str:
        """Changes with any object."""
        versions_of_namespaces = sorted((name, each.version) for name, each in self.namespaces.items())
        return change_digest((versions_of_namespaces, sorted(self.unread.items()), self.unreviewed))

    def of(self, names: Iterable[str], unreviewed: str = "") -> ClusterObjects:
        """Those of some of the namespaces; why it is not known of each whether it is one of them."""
        chosen = set(names)
        return ClusterObjects(
            {name: each for name, each in self.namespaces.items() if name in chosen},
            {name: each for name, each in self.unread.items() if name in chosen},
            unreviewed,
        )

    def missing(self) -> tuple[str, ...]:
        """What is missing, and why."""
        unread = (f"namespace {name} is not shown: {reason}" for name, reason in self.unread.items())
        return (*unread, *filter(None, (self.unreviewed,)))


def namespace_objects(jobs: Mapping[str, Body], recurrences: Mapping[str, Sequence[Body]]) -> NamespaceObjects:
    """The objects of a namespace, with their version."""
    bodies = [*jobs.values(), *(each for of_job in recurrences.values() for each in of_job)]
    return NamespaceObjects(jobs, recurrences, change_digest(versions(bodies)))


def versions(bodies: Iterable[Body]) -> list[tuple[str, str]]:
    """What changes with any of the objects."""
    return sorted((str(each["metadata"]["uid"]), str(each["metadata"]["resourceVersion"])) for each in bodies)


def change_digest(parts: object) -> str:
    """A short text that changes with the parts."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:24]
