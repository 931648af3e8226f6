"""Resyncs on a real API server."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.control_plane.commands import ClusterCommand
from support.control_plane.in_process_operator import InProcessOperator
from support.control_plane.kubelet import Kubelet
from wattloop_operator.cluster.api import ClusterApi
from wattloop_operator.cluster.api_transport import HttpTransport
from wattloop_operator.cluster.informer.object_cache import ObjectCache, watched_kinds
from wattloop_operator.cluster.informer.resync import Resync
from wattloop_operator.domain.names import JobKey, recurrence_name, slot_of_request

MakeJob = Callable[..., JobKey]


def missed(transport: HttpTransport, cache: ObjectCache, kind: str) -> set[JobKey]:
    (watched,) = [each for each in watched_kinds(cache) if each.resource.kind == kind]
    return Resync(ClusterApi(transport), watched, lambda _: True).run()


def test_a_resync_repairs_what_a_watch_has_missed(
    transport: HttpTransport, operator: InProcessOperator, make_job: MakeJob, kubectl: ClusterCommand
) -> None:
    key = make_job()
    operator.reconcile(key)
    cache = ObjectCache()
    kinds = ("RecurringTrainingJob", "TrainingRecurrence", "Job")
    for kind in kinds:
        assert key in missed(transport, cache, kind)
        assert key not in missed(transport, cache, kind), "the cache is repaired"
    name = recurrence_name(key.name, 0, slot_of_request("first"), 0)
    assert cache.workloads.get((key.namespace, name)) is not None
    kubectl("delete", "rtj", key.name, "--cascade=foreground", namespace=key.namespace)
    for kind in kinds:
        assert key in missed(transport, cache, kind), "no event reported the deletion"
    assert cache.jobs.get((key.namespace, key.name)) is None
    assert cache.recurrences.get((key.namespace, name)) is None
    assert cache.workloads.get((key.namespace, name)) is None


def test_only_pods_of_running_recurrences_are_stored(
    transport: HttpTransport, operator: InProcessOperator, make_job: MakeJob, kubelet: Kubelet
) -> None:
    key = make_job()
    operator.reconcile(key)
    name = recurrence_name(key.name, 0, slot_of_request("first"), 0)
    (pod,) = kubelet.pods_of_job(name, key.namespace)
    cache = ObjectCache()
    assert key in missed(transport, cache, "Pod")
    assert cache.pods.get((key.namespace, pod["metadata"]["name"])) is not None


@pytest.mark.parametrize("kind", ["RecurringTrainingJob", "Pod"])
def test_an_event_during_a_resync_is_not_counted_as_missed(
    kind: str, transport: HttpTransport, operator: InProcessOperator, make_job: MakeJob
) -> None:
    key = make_job()
    operator.reconcile(key)
    cache = ObjectCache()
    (watched,) = [each for each in watched_kinds(cache) if each.resource.kind == kind]

    def deliver_events(_: float) -> bool:
        api = ClusterApi(transport)
        bodies, _version = api.list(watched.resource, labels=watched.labels)
        for body in bodies:
            watched.put(body)
        return True

    assert Resync(ClusterApi(transport), watched, deliver_events).run() == set()
