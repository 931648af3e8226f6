"""Comparing what was seen with what the API server has: what a watch has missed is found, mended and counted.

A watch can die without a word, and an object that is deleted while a watch is being opened anew is told of by no event
(kopf lists again, and a list does not name what is gone). So every few minutes the objects' versions are listed, their
metadata alone, and whatever the watch should have told by then is fetched.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from pydantic import ValidationError

from wattloop_operator.cluster.api import (
    ClusterApi,
)
from wattloop_operator.cluster.informer.object_cache import Body, WatchedKind, identity
from wattloop_operator.cluster.informer.object_store import CachedObject, Key
from wattloop_operator.domain.names import JobKey

logger = logging.getLogger(__name__)

# How long an event may be under way before it counts as missed.
GRACE_SECONDS = 5.0


class Resync:
    """Compares and mends.

    Args:
        api: The API server.
        kind: The kind to compare.
        wait: Waits for seconds; returns False where there is no use in going on.
        namespaces: The namespaces that are watched; empty: all.
    """

    def __init__(
        self, api: ClusterApi, kind: WatchedKind, wait: Callable[[float], bool], namespaces: Sequence[str] = ()
    ) -> None:
        self._namespaces = namespaces or ("",)
        self._api = api
        self._kind = kind
        self._wait = wait

    def missed(self) -> set[JobKey]:
        """Mend what a watch has missed; returns the jobs that it concerns.

        Raises:
            OperationError: The API server could not be asked now.
        """
        kind = self._kind
        listed: dict[Key, int] = {}
        stale: list[CachedObject[Any]] = []
        kept = [] if kind.outlive else kind.object_store.all()
        for namespace in self._namespaces:
            items, list_version = self._api.list(
                kind.resource, namespace=namespace, labels=kind.labels, metadata_only=True
            )
            listed |= {key: version for key, _, version in map(identity, filter(kind.wanted, items))}
            here = [held for held in kept if namespace in ("", held.key[0])]
            stale += [held for held in here if held.key not in listed and held.version <= int(list_version)]
        late = {key for key, version in listed.items() if self._is_behind(key, version)}
        if not late and not stale:
            return set()
        if not self._wait(GRACE_SECONDS):
            return set()
        late = {key for key in late if self._is_behind(key, listed[key])}
        stale = [held for held in stale if kind.object_store.get(held.key) is held]
        return self._mended(late, stale)

    def _is_behind(self, key: Key, version: int) -> bool:
        held = self._kind.object_store.get(key)
        return held is None or held.version < version

    def _mended(self, late: set[Key], stale: list[CachedObject[Any]]) -> set[JobKey]:
        jobs: set[JobKey] = set()
        for key in sorted(late | {held.key for held in stale}):
            before = self._kind.object_store.get(key)
            body = self._api.find(self._kind.resource, *key)
            gone = before is not None and (body is None or identity(body)[1] != before.uid)
            if before is not None and gone and self._kind.object_store.remove(key, before.uid):
                # Jobs and recurrences alone get here, and their groups are named as the job.
                jobs.add(JobKey(key[0], before.group[1]))
            if body is not None and self._taken_in(body):
                jobs.add(self._kind.job_of(body))
                logger.warning(
                    "%s %s/%s: its watch has missed a change, which was fetched", self._kind.resource.kind, *key
                )
        return jobs

    def _taken_in(self, body: Body) -> bool:
        try:
            return self._kind.put(body)
        except ValidationError as error:
            # Said when it was first seen, too: it is passed over, and stops no other.
            logger.debug("%s: %s", identity(body)[0], error)
            return False
