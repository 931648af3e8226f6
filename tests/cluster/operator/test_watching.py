"""What the operator sees: events through kopf, and by comparison what a watch has missed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.control_plane.commands import ClusterCommand
from support.control_plane.in_process_operator import InProcessOperator
from support.control_plane.kubelet import Kubelet
from wattloop_operator.cluster.api import ClusterApi
from wattloop_operator.cluster.informer.object_cache import ObjectCache, watched_kinds
from wattloop_operator.cluster.informer.resync import Resync
from wattloop_operator.cluster.transport import HttpTransport
from wattloop_operator.domain.names import JobKey, recurrence_name, slot_of_request

MakeJob = Callable[..., JobKey]


def missed(transport: HttpTransport, cache: ObjectCache, kind: str) -> set[JobKey]:
    (watched,) = [each for each in watched_kinds(cache) if each.resource.kind == kind]
    return Resync(ClusterApi(transport), watched, lambda _: True).run()


def test_what_a_watch_has_missed_is_found_and_mended(
    transport: HttpTransport, operator: InProcessOperator, make_job: MakeJob, kubectl: ClusterCommand
) -> None:
    key = make_job()
    operator.reconcile(key)
    cache = ObjectCache()
    kinds = ("RecurringTrainingJob", "TrainingRecurrence", "Job")
    for kind in kinds:
        assert key in missed(transport, cache, kind)
        assert key not in missed(transport, cache, kind), "what was mended is in line"
    name = recurrence_name(key.name, slot_of_request("first"), 0)
    assert cache.workloads.get((key.namespace, name)) is not None
    kubectl("delete", "rtj", key.name, "--cascade=foreground", namespace=key.namespace)
    for kind in kinds:
        assert key in missed(transport, cache, kind), "that it is gone was told by no event"
    assert cache.jobs.get((key.namespace, key.name)) is None
    assert cache.recurrences.get((key.namespace, name)) is None
    assert cache.workloads.get((key.namespace, name)) is None


def test_of_pods_only_those_are_kept_that_can_still_tell_something(
    transport: HttpTransport, operator: InProcessOperator, make_job: MakeJob, kubelet: Kubelet
) -> None:
    key = make_job()
    operator.reconcile(key)
    name = recurrence_name(key.name, slot_of_request("first"), 0)
    (pod,) = kubelet.pods_of_job(name, key.namespace)
    cache = ObjectCache()
    assert key in missed(transport, cache, "Pod")
    assert cache.pods.get((key.namespace, pod["metadata"]["name"])) is not None


@pytest.mark.parametrize("kind", ["RecurringTrainingJob", "Pod"])
def test_what_comes_while_it_compares_is_not_counted_as_missed(
    kind: str, transport: HttpTransport, operator: InProcessOperator, make_job: MakeJob
) -> None:
    key = make_job()
    operator.reconcile(key)
    cache = ObjectCache()
    (watched,) = [each for each in watched_kinds(cache) if each.resource.kind == kind]

    def events_come(_: float) -> bool:
        api = ClusterApi(transport)
        bodies, _version = api.list(watched.resource, labels=watched.labels)
        for body in bodies:
            watched.put(body)
        return True

    assert Resync(ClusterApi(transport), watched, events_come).run() == set()
