"""The objects of a cluster that the live page shows, by namespace, as they were at one moment."""

from __future__ import annotations

import hashlib
import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from wattloop_operator.cluster.api import Body
from wattloop_operator.domain.names import JOB_LABEL

# Of objects that cannot be read; the list of jobs has a line for each job.
MAX_PROBLEMS = 8


@dataclass(frozen=True)
class NamespaceObjects:
    """The objects of a namespace.

    Attributes:
        jobs: The bodies of the jobs, by name.
        recurrences: The bodies of the recurrences that can be read, by the uid of their job.
        version: Changes with any of them.
        unreadable: Why a job cannot be read, by name.
        lost: Why recurrences cannot be read, by the name of their job, "" if that is not known either.
    """

    jobs: Mapping[str, Body]
    recurrences: Mapping[str, Sequence[Body]]
    version: str
    unreadable: Mapping[str, str] = field(default_factory=dict)
    lost: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def problems(self) -> Iterator[str]:
        """Why objects cannot be read."""
        return itertools.chain(self.unreadable.values(), *self.lost.values())


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
        problems = [problem for each in self.namespaces.values() for problem in each.problems()]
        return (*unread, *filter(None, (self.unreviewed,)), *first_of(problems))


def first_of(problems: Sequence[str]) -> tuple[str, ...]:
    """The first of the problems of objects, and the number of the others."""
    further = len(problems) - MAX_PROBLEMS
    return (*problems[:MAX_PROBLEMS], *([f"{further} more objects cannot be read"] if further > 0 else ()))


def namespace_objects(
    jobs: Sequence[Body], recurrences: Sequence[Body], problems: Mapping[str, str]
) -> NamespaceObjects:
    """The objects of a namespace, with their version.

    Args:
        jobs: The bodies of the jobs.
        recurrences: Those of the recurrences.
        problems: Why some of them cannot be read, by uid.
    """
    named = {str(each["metadata"]["name"]): each for each in jobs}
    of_jobs: defaultdict[str, list[Body]] = defaultdict(list)
    lost: defaultdict[str, list[str]] = defaultdict(list)
    for each in recurrences:
        problem = problems.get(str(each["metadata"]["uid"]))
        if problem is not None:
            lost[str((each["metadata"].get("labels") or {}).get(JOB_LABEL, ""))].append(problem)
        else:
            # A recurrence belongs to a job of its own namespace alone, whatever it says.
            of_jobs[str(each["spec"]["jobRef"]["uid"])].append(each)
    uids = {name: str(each["metadata"]["uid"]) for name, each in named.items()}
    unreadable = {name: problems[uid] for name, uid in uids.items() if uid in problems}
    return NamespaceObjects(named, of_jobs, change_digest(versions((*jobs, *recurrences))), unreadable, lost)


def versions(bodies: Iterable[Body]) -> list[tuple[str, str]]:
    """What changes with any of the objects."""
    return sorted((str(each["metadata"]["uid"]), str(each["metadata"]["resourceVersion"])) for each in bodies)


def change_digest(parts: object) -> str:
    """A short text that changes with the parts."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:24]
