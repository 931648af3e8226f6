"""Whose a GPU's energy is: from what the kubelet says again and again to spans of (pod, container, GPU)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from wattloop.node_energy import PodGpuUsage
from wattloop_agent.monitor.energy.snapshot import (
    EnergySnapshot,
    end_at_latest,
    end_between,
    energy_from,
    start_between,
)

Key = tuple[str, str, str]
# Pods that have ended and that nobody has taken note of: an hour of eight GPUs with a job a minute, four times over.
ENDED_LIMIT = 2048
# Between two observations so far apart the agent was away: what nobody else can have used was the pod's.
AWAY_SECONDS = 10.0


@dataclass(frozen=True)
class Assignment:
    """A GPU that a container has, wholly or with others."""

    pod_uid: str
    namespace: str
    pod: str
    container: str
    gpu: str
    shared: bool = False

    @property
    def key(self) -> Key:
        """What tells it from all others: pod uid, container, GPU."""
        return self.pod_uid, self.container, self.gpu


@dataclass(frozen=True)
class Observation:
    """Who had which GPU at a moment between begin and end, on the monotonic clock, in seconds.

    Attributes:
        begin_seconds: When the kubelet was asked.
        end_seconds: When all was known.
        assignments: Who had what.
        first_processes: By pod uid, of pods that were not seen before, when their first process began.
    """

    begin_seconds: float
    end_seconds: float
    assignments: tuple[Assignment, ...]
    first_processes: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Around:
    """One GPU's account around an observation.

    Attributes:
        ends: Who is seen no more gave it back between these: when the observation before began, and when this ended.
        starts: Who is new got it between these two: the same, but after a reboot nobody before it.
        begin: When this observation began: who is still seen had it by then.
        away: Whether the agent was away between the two observations.
    """

    ends: tuple[EnergySnapshot, EnergySnapshot]
    starts: tuple[EnergySnapshot, EnergySnapshot]
    begin: EnergySnapshot
    away: bool = False


@dataclass(frozen=True)
class UsageInterval:
    """What a container has used of a GPU so far.

    Attributes:
        assignment: Whose.
        start: Where the GPU's account stood when it got it.
        known: Where it stood when it had it for sure, or when it gave it back.
        ended: Whether it gave it back.
        before_millijoules: What it had used of the GPU in earlier spans.
        before_uncertainty_millijoules: How far that may be off.
        first_seconds: The clock when it first got it.
    """

    assignment: Assignment
    start: EnergySnapshot
    known: EnergySnapshot
    ended: bool
    before_millijoules: float
    before_uncertainty_millijoules: float
    first_seconds: float

    def wire(self) -> PodGpuUsage:
        """The span as it is told."""
        energy, uncertainty = energy_from(self.start, self.known)
        return PodGpuUsage(
            pod_uid=self.assignment.pod_uid,
            namespace=self.assignment.namespace,
            pod=self.assignment.pod,
            container=self.assignment.container,
            gpu=self.assignment.gpu,
            shared=self.assignment.shared,
            energy_millijoules=int(self.before_millijoules + max(energy, 0.0)),
            uncertainty_millijoules=math.ceil(self.before_uncertainty_millijoules + uncertainty),
            start_time_seconds=self.first_seconds,
            time_seconds=max(self.known.time_seconds, self.first_seconds),
            ended=self.ended,
        )


def observed(
    spans: Mapping[Key, UsageInterval], assignments: Iterable[Assignment], around: Mapping[str, Around]
) -> list[UsageInterval]:
    """The spans after an observation, oldest first.

    Args:
        spans: Those before it.
        assignments: Who was seen with what.
        around: By uuid, the accounts of all GPUs that are known; what is seen with another GPU is passed over.
    """
    seen = {each.key: each for each in marked_shared(assignments) if each.gpu in around}
    taken = {each.gpu for key, each in seen.items() if key not in spans or spans[key].ended}
    after = [_continued(span, seen.pop(key, None), around, taken) for key, span in spans.items()]
    return after + [_begun(each, around[each.gpu]) for each in seen.values()]


def _continued(
    span: UsageInterval, seen: Assignment | None, around: Mapping[str, Around], taken: set[str]
) -> UsageInterval:
    if span.assignment.gpu not in around or (seen is None and span.ended):
        return span
    at = around[span.assignment.gpu]
    if seen is None:
        end = end_at_latest if at.away and span.assignment.gpu not in taken else end_between
        return replace(span, known=end(*at.ends).not_before(span.known), ended=True)
    shared = replace(seen, shared=seen.shared or span.assignment.shared)
    if not span.ended:
        return replace(span, assignment=shared, known=at.begin.not_before(span.known))
    # It has the GPU again; what was used meanwhile was not its.
    told = span.wire()
    start = start_between(*at.starts).not_before(span.known)
    before = replace(span, before_millijoules=float(told.energy_millijoules), first_seconds=span.first_seconds)
    before = replace(before, before_uncertainty_millijoules=float(told.uncertainty_millijoules))
    return replace(before, assignment=shared, start=start, known=start, ended=False)


def _begun(seen: Assignment, at: Around) -> UsageInterval:
    start = start_between(*at.starts)
    return UsageInterval(seen, start, start, False, 0.0, 0.0, start.time_seconds)


def marked_shared(assignments: Iterable[Assignment]) -> list[Assignment]:
    """The assignments, with every GPU that several containers have marked as shared.

    Example:
        >>> both = [Assignment("u1", "n", "p", "a", "GPU-1"), Assignment("u1", "n", "p", "b", "GPU-1")]
        >>> [each.shared for each in marked_shared(both)]
        [True, True]
    """
    assigned = list({each.key: each for each in assignments}.values())
    holders = Counter(each.gpu for each in assigned)
    return [replace(each, shared=each.shared or holders[each.gpu] > 1) for each in assigned]


def bounded(spans: Iterable[UsageInterval], limit: int = ENDED_LIMIT) -> tuple[list[UsageInterval], int]:
    """The spans without the oldest of too many ended ones, and how many those were."""
    kept = list(spans)
    surplus = sum(span.ended for span in kept) - limit
    if surplus <= 0:
        return kept, 0
    dropped = {id(span) for span in [span for span in kept if span.ended][:surplus]}
    return [span for span in kept if id(span) not in dropped], surplus
