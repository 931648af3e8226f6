"""Resyncs on a real API server."""

import pytest

from support.control_plane.commands import ClusterCommand
from support.control_plane.driven_job import DrivenJob
from wattloop_operator.cluster.api import ClusterApi
from wattloop_operator.cluster.api_transport import HttpTransport
from wattloop_operator.cluster.informer.informer import Resync
from wattloop_operator.cluster.informer.object_cache import ObjectCache
from wattloop_operator.cluster.informer.watched_kinds import watched_kinds
from wattloop_operator.domain.names import JobKey


def missed(transport: HttpTransport, cache: ObjectCache, kind: str) -> set[JobKey]:
    (watched,) = [each for each in watched_kinds(cache) if each.resource.kind == kind]
    return Resync(ClusterApi(transport), watched, lambda _: True).run()


def test_a_resync_repairs_what_a_watch_has_missed(
    transport: HttpTransport, driven: DrivenJob, kubectl: ClusterCommand
) -> None:
    driven.begin()
    key, name = driven.key, driven.name_of()
    cache = ObjectCache()
    kinds = ("RecurringTrainingJob", "TrainingRecurrence", "Job")
    for kind in kinds:
        assert key in missed(transport, cache, kind)
        assert key not in missed(transport, cache, kind), "the cache is repaired"
    assert cache.workloads.get((key.namespace, name)) is not None
    kubectl("delete", "rtj", key.name, "--cascade=foreground", namespace=key.namespace)
    for kind in kinds:
        assert key in missed(transport, cache, kind), "no event reported the deletion"
    assert cache.jobs.get((key.namespace, key.name)) is None
    assert cache.recurrences.get((key.namespace, name)) is None
    assert cache.workloads.get((key.namespace, name)) is None


def test_only_pods_of_running_recurrences_are_stored(transport: HttpTransport, driven: DrivenJob) -> None:
    driven.begin()
    pod, cache = driven.pending_pod(), ObjectCache()
    assert driven.key in missed(transport, cache, "Pod")
    assert cache.pods.get((driven.key.namespace, pod["metadata"]["name"])) is not None


@pytest.mark.parametrize("kind", ["RecurringTrainingJob", "Pod"])
def test_an_event_during_a_resync_is_not_counted_as_missed(
    kind: str, transport: HttpTransport, driven: DrivenJob
) -> None:
    driven.begin()
    cache = ObjectCache()
    (watched,) = [each for each in watched_kinds(cache) if each.resource.kind == kind]

    def deliver_events(_: float) -> bool:
        api = ClusterApi(transport)
        bodies, _version = api.list(watched.resource, labels=watched.labels)
        for body in bodies:
            watched.put(body)
        return True

    assert Resync(ClusterApi(transport), watched, deliver_events).run() == set()
