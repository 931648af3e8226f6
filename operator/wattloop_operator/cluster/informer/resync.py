"""Resync: compares the cache with the API server, repairs what a watch has missed, and reports it.

A watch can stop silently, and kopf lists again after a gap without telling which objects were deleted meanwhile. A
resync lists the metadata of all objects and fetches each one whose event is overdue.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from wattloop_operator.cluster.api import ClusterApi
from wattloop_operator.cluster.api_transport import UnreadableResponseError
from wattloop_operator.cluster.informer.object_bytes import Key
from wattloop_operator.cluster.informer.object_cache import identity
from wattloop_operator.cluster.informer.object_store import CachedObject
from wattloop_operator.cluster.informer.stored_parts import Body, metadata_part
from wattloop_operator.cluster.informer.watched_kinds import WatchedKind
from wattloop_operator.domain.names import JobKey

logger = logging.getLogger(__name__)

# An event that takes longer to arrive counts as missed.
GRACE_SECONDS = 5.0


class Resync:
    """A resync of one kind.

    Args:
        api: The API server.
        kind: The kind.
        wait: Waits for seconds; returns False to cancel the resync.
        namespaces: The watched namespaces; empty: all.
    """

    def __init__(
        self, api: ClusterApi, kind: WatchedKind, wait: Callable[[float], bool], namespaces: Sequence[str] = ()
    ) -> None:
        self._namespaces = kind.lists(namespaces)
        self._api = api
        self._kind = kind
        self._wait = wait

    def run(self) -> set[JobKey]:
        """Repair the cache; returns the jobs with a change that the watch missed.

        Raises:
            OperationError: The API server does not answer now.
        """
        kind = self._kind
        listed: dict[Key, Body] = {}
        deleted: list[CachedObject[Any]] = []
        for namespace in self._namespaces:
            items, list_version = self._api.list(
                kind.resource, namespace=namespace, labels=kind.labels, metadata_only=True, part=metadata_part
            )
            listed |= self._wanted(items)
            deleted += kind.missing(listed, namespace, int(list_version))
        late = {key for key, body in listed.items() if self._is_behind(body)}
        if not late and not deleted:
            return set()
        if not self._wait(GRACE_SECONDS):
            return set()
        late = {key for key in late if self._is_behind(listed[key])}
        deleted = [each for each in deleted if kind.object_store.get(each.key) is each]
        return self._repair(late | {each.key for each in deleted}, listed)

    def _is_behind(self, body: Body) -> bool:
        key, _, version = identity(body)
        return self._kind.object_store.known_version(key) < version

    def _wanted(self, items: Sequence[Body]) -> dict[Key, Body]:
        """The objects of a list that are stored. One that fails is as if it were not listed: a known one is fetched."""
        wanted: dict[Key, Body] = {}
        for each in items:
            try:
                if self._kind.wanted(each) and self._kind.has_room(each):
                    wanted[identity(each)[0]] = each
            except Exception:  # the other objects are compared
                namespace, name = (each["metadata"].get(part, "") for part in ("namespace", "name"))
                logger.exception(
                    "%s %s/%s: unexpected failure at a listed object", self._kind.resource.kind, namespace, name
                )
        return wanted

    def _repair(self, keys: set[Key], listed: Mapping[Key, Body]) -> set[JobKey]:
        jobs: set[JobKey] = set()
        for key in sorted(keys):
            before, body, problem = self._kind.object_store.get(key), None, None
            try:
                body = self._api.find(self._kind.resource, *key)
            except UnreadableResponseError as error:
                problem = error.problem
            try:
                if problem is None:
                    self._store(key, before, body, jobs)
                elif key in listed and self._kind.refuse(listed[key], problem):
                    jobs.add(self._kind.job_of(listed[key]))
            except ValidationError as error:
                # The dispatcher has warned of it.
                logger.debug("%s: %s", key, error)
            except Exception:  # the other objects are repaired
                logger.exception("%s %s/%s: unexpected failure at a missed change", self._kind.resource.kind, *key)
        return jobs

    def _store(self, key: Key, before: CachedObject[Any] | None, body: Body | None, jobs: set[JobKey]) -> None:
        """Store a fetched object, or remove one that is gone; adds its job to `jobs` if that changes anything."""
        deleted = before is not None and (body is None or identity(body)[1] != before.uid)
        if before is not None and deleted and self._kind.object_store.remove(key, before.uid):
            # Only Jobs and recurrences get here; the name of their group is that of the job.
            jobs.add(JobKey(key[0], before.group[1]))
        if body is None:
            return
        job = self._kind.job_of(body)
        if self._kind.put(body):
            jobs.add(job)
            logger.warning("%s %s/%s: fetched a change that the watch missed", self._kind.resource.kind, *key)
