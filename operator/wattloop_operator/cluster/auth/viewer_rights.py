"""Which namespaces the viewers of the live page may list, by SubjectAccessReviews of a bounded number.

An answer is remembered for a short time: so long a right that is withdrawn still counts. A viewer who may list all
namespaces takes one review a kind. Of others each namespace is reviewed, those first that they may list, as far as is
known; of the rest a bounded number a second, so that a viewer without a right costs the API server, and those who wait
behind him, no more in a cluster of many namespaces.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from cachetools import LRUCache

from wattloop.errors import OperationError
from wattloop_operator.cluster.api import (
    RECURRING_TRAINING_JOBS,
    SUBJECT_ACCESS_REVIEWS,
    TRAINING_RECURRENCES,
    ClusterApi,
    RejectedError,
    ResourceType,
)
from wattloop_operator.cluster.auth.viewers import MAX_VIEWERS, Viewer
from wattloop_operator.reporting.report_limits import Rate, TokenBuckets

RIGHTS_SECONDS = 30.0
# A refusal counts for so long while no further one is reviewed.
REFUSED_SECONDS = 300.0
# Of all viewers of one owner: reviews, and namespaces that they turn out not to list.
REVIEWS = Rate(per_second=20.0, burst=600.0)
REFUSALS = Rate(per_second=2.0, burst=30.0)
# Of a viewer, a namespace and the kinds.
MAX_RIGHTS = 50_000
LISTED = (RECURRING_TRAINING_JOBS, TRAINING_RECURRENCES)
ALL_NAMESPACES = ""


@dataclass(frozen=True)
class ReadableNamespaces:
    """The namespaces that a viewer may list, as far as it is known.

    Attributes:
        names: Those that he may list.
        complete: Whether it is known of all.
    """

    names: tuple[str, ...]
    complete: bool


class ViewerRights:
    """Whether viewers may list kinds. Thread-safe.

    Args:
        api: The API server.
        clock: Monotonic seconds.
    """

    def __init__(self, api: ClusterApi, clock: Callable[[], float]) -> None:
        self._api = api
        self._clock = clock
        self._lock = threading.Lock()
        # When it was reviewed, and whether it is allowed.
        self._known: LRUCache[tuple[Viewer, str, tuple[ResourceType, ...]], tuple[float, bool]] = LRUCache(MAX_RIGHTS)
        self._reviews: TokenBuckets[str] = TokenBuckets(REVIEWS, clock, MAX_VIEWERS)
        self._refusals: TokenBuckets[str] = TokenBuckets(REFUSALS, clock, MAX_VIEWERS)

    def readable(self, viewer: Viewer, namespaces: Iterable[str]) -> ReadableNamespaces:
        """Those of the namespaces that the viewer may list.

        Raises:
            OperationError: The API server does not answer now.
        """
        names = tuple(namespaces)
        everywhere = self.may_list(viewer, ALL_NAMESPACES)
        if everywhere:
            return ReadableNamespaces(names, complete=True)
        order = sorted(names, key=lambda name: self._order(viewer, name))
        answers = {name: self.may_list(viewer, name, is_asked_for=False) for name in order}
        return ReadableNamespaces(
            tuple(name for name in names if answers[name]), complete=None not in (everywhere, *answers.values())
        )

    def may_list(
        self, viewer: Viewer, namespace: str, kinds: tuple[ResourceType, ...] = LISTED, *, is_asked_for: bool = True
    ) -> bool | None:
        """Whether the viewer may list all the kinds; None: it is not reviewed now, because too much was.

        Args:
            viewer: The viewer.
            namespace: The namespace; `ALL_NAMESPACES`: in all, or of the cluster.
            kinds: The kinds.
            is_asked_for: Whether the viewer names the namespace; else few are reviewed that he may not list.

        Raises:
            OperationError: The API server does not answer now.
        """
        key, now = (viewer, namespace, kinds), self._clock()
        with self._lock:
            reviewed_at, allowed = self._known.get(key, (-math.inf, False))
            if now - reviewed_at < RIGHTS_SECONDS:
                return allowed
            is_asked_for |= allowed or namespace == viewer.home
            if not is_asked_for and self._refusals.wait_seconds(viewer.owner):
                return False if now - reviewed_at < REFUSED_SECONDS else None
            if not self._reviews.take(viewer.owner, len(kinds)):
                return None
        allowed = all(self._is_allowed(viewer, namespace, each) for each in kinds)
        with self._lock:
            self._known[key] = now, allowed
            if not allowed and not is_asked_for:
                self._refusals.take(viewer.owner)
        return allowed

    def _order(self, viewer: Viewer, namespace: str) -> tuple[bool, bool, float, str]:
        """What he may list first, as far as is known; then his own namespace; then what was reviewed longest ago."""
        with self._lock:
            reviewed_at, allowed = self._known.get((viewer, namespace, LISTED), (-math.inf, False))
        return not allowed, namespace != viewer.home, reviewed_at, namespace

    def _is_allowed(self, viewer: Viewer, namespace: str, resource: ResourceType) -> bool:
        spec = {
            "user": viewer.name,
            "uid": viewer.uid,
            "groups": list(viewer.groups),
            "extra": {name: list(values) for name, values in viewer.extra},
            "resourceAttributes": listing(resource, namespace),
        }
        try:
            return self._api.review(SUBJECT_ACCESS_REVIEWS, spec).get("allowed") is True
        except RejectedError as error:
            raise OperationError(f"the rights of viewers cannot be reviewed: {error}") from error


def listing(resource: ResourceType, namespace: str) -> dict[str, str]:
    """What a review of rights asks about: to list a kind in a namespace; `ALL_NAMESPACES`: in all of them."""
    group, _, _ = resource.api_version.rpartition("/")
    return {"group": group, "resource": resource.plural, "verb": "list", "namespace": namespace}
