"""The memory that the objects of a namespace take in the cache is bounded, whatever they are."""

import gc
import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from support.control_plane.job_manifest import job_manifest
from support.recurrence_objects import recurrence_object
from support.test_sets.parameters import exhaustive_after
from wattloop_operator.cluster.informer.object_cache import STARTING_SHARE, ObjectCache
from wattloop_operator.cluster.informer.stored_parts import read_list
from wattloop_operator.cluster.informer.watched_kinds import EventDispatcher, WatchedKind, watched_kinds

SHARE = 2_000_000
LABELS = {"wattloop.dev/recurrence": "digits-0-a", "wattloop.dev/job": "digits"}
LONG_PARAMETERS = [
    {"name": f"p{number}", "default": f"{'x' * 250}0", "candidates": [f"{'x' * 250}{each}" for each in range(16)]}
    for number in range(2)
]
Body = dict[str, Any]


def job(number: int, namespace: str = "team", **spec: Any) -> Body:
    made: Body = job_manifest(f"job-{number}", **spec)
    made["metadata"] |= {"namespace": namespace, "uid": f"job-{number}", "resourceVersion": str(number + 1)}
    return made


def recurrence(number: int, points: int = 1) -> Body:
    curve = [[str(point), f"0.{number + point}"] for point in range(1, points + 1)]
    status = {"progress": {"epoch": str(points), "metric": "0.5", "curve": curve, "energyJoules": "2000.5"}}
    return recurrence_object(f"run-{number}", f"run-{number}", str(number + 1), status)


def labelled(number: int, namespace: str = "team", **fields: Any) -> Body:
    metadata = {"name": f"x-{number}", "namespace": namespace, "uid": f"x-{number}", "resourceVersion": str(number + 1)}
    return {"metadata": metadata | {"labels": LABELS}, **fields}


def pod(number: int, conditions: int = 1) -> Body:
    gate = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": f"gate {number}"}
    return labelled(number, status={"phase": "Pending", "conditions": [gate] * conditions})


def put(cache: ObjectCache, kind: str, body: Body) -> bool:
    return kind_of(cache, kind).put(json.loads(json.dumps(body)))


def kind_of(cache: ObjectCache, name: str) -> WatchedKind:
    return next(each for each in watched_kinds(cache) if each.resource.kind == name)


MAKERS: dict[str, tuple[str, Callable[[int], Body]]] = {
    "recurrences": ("TrainingRecurrence", recurrence),
    "pods": ("Pod", pod),
    "jobs with long parameters": ("RecurringTrainingJob", lambda number: job(number, parameters=LONG_PARAMETERS)),
    "small jobs": ("RecurringTrainingJob", job),
    "recurrences with long curves": ("TrainingRecurrence", lambda number: recurrence(number, 64)),
    "workloads": ("Job", lambda number: labelled(number, spec={"suspend": True})),
    "pods with many conditions": ("Pod", lambda number: pod(number, 50)),
}


@pytest.mark.parametrize("name", exhaustive_after(MAKERS, usual=3))
def test_the_size_that_an_object_counts_is_at_least_what_it_takes_in_memory(name: str) -> None:
    kind, make = MAKERS[name]
    put(ObjectCache(), kind, make(0))
    count = 50
    tracemalloc.start()
    try:
        cache = ObjectCache()
        for number in range(count):
            put(cache, kind, make(number))
        gc.collect()
        taken = tracemalloc.get_traced_memory()[0] / count
    finally:
        tracemalloc.stop()
    counted = kind_of(cache, kind).object_store.bytes_of("team") / count
    assert 0.9 * taken < counted < 7 * taken, (taken, counted)


def test_a_job_beyond_its_namespaces_share_is_refused_with_a_remedy_until_there_is_room() -> None:
    cache = ObjectCache(SHARE)
    for number in range(200):
        put(cache, "RecurringTrainingJob", job(number))
    held = len(cache.jobs)
    assert 0 < held < 200
    first = ("team", f"job-{held}")
    refused = cache.jobs.refused(first)
    assert refused.problem.startswith("the objects of namespace team take 1.4 MiB of the operator's memory, expected")
    assert "at most 1.4 MiB; delete jobs that are no longer needed" in refused.problem
    assert not cache.has_room_for(first, refused)
    assert put(cache, "RecurringTrainingJob", job(500, "other")), "another namespace has room"
    assert cache.crowded("other") == ""
    for number in range(held):
        cache.remove_job(job(number))
    assert cache.has_room_for(first, refused)
    cache.jobs.forget_refused(first)
    assert put(cache, "RecurringTrainingJob", job(held))


def test_a_job_that_is_known_is_updated_although_its_namespace_has_no_room() -> None:
    cache = ObjectCache(SHARE)
    put(cache, "RecurringTrainingJob", job(0))
    for number in range(1, 200):
        put(cache, "RecurringTrainingJob", job(number))
    changed = job(0, suspend=True)
    changed["metadata"]["resourceVersion"] = "1000"
    assert kind_of(cache, "RecurringTrainingJob").has_room(changed)
    assert put(cache, "RecurringTrainingJob", changed)
    cached = cache.jobs.get(("team", "job-0"))
    assert cached.value.spec.suspend


@pytest.mark.parametrize("kind", ["RecurringTrainingJob", "Job", "Pod"])
def test_of_a_namespace_that_has_used_up_its_share_no_unknown_object_reaches_the_cache(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    cache = ObjectCache(SHARE)
    watched = kind_of(cache, kind)
    makers: dict[str, Callable[..., Body]] = {"RecurringTrainingJob": job, "Job": labelled, "Pod": labelled}
    make = makers[kind]
    dispatcher = EventDispatcher(
        (watched,),
        enqueue=lambda *_: None,
        job_deleted=lambda _key, _uid: None,
        heartbeat=lambda _: None,
        all_listed=lambda: None,
    )
    for number in range(1500):
        dispatcher.on_event(watched, "ADDED", watched.part(make(number)))
    assert 0 < len(watched.object_store.all()) < 1000
    assert SHARE < watched.object_store.bytes_of("team") < SHARE + 100_000
    warnings = [each for each in caplog.messages if "are passed over" in each]
    assert len(warnings) == 1
    assert "the objects of namespace team take more than 1.9 MiB of the operator's memory" in warnings[0]
    known, unknown, elsewhere = make(0), make(1700), make(1701, "other")
    page = json.dumps({"items": [known, unknown, elsewhere]}).encode()
    read_list(page, watched.part, lambda item: dispatcher.on_read(watched, item))
    assert watched.object_store.get(("team", known["metadata"]["name"])) is not None
    assert watched.object_store.get(("team", unknown["metadata"]["name"])) is None
    assert watched.object_store.get(("other", elsewhere["metadata"]["name"])) is not None
    dispatcher.on_event(watched, "DELETED", watched.part(known))
    assert watched.object_store.get(("team", known["metadata"]["name"])) is None


def test_recurrences_count_and_are_always_read_because_their_operator_made_them() -> None:
    cache = ObjectCache(SHARE)
    for number in range(300):
        body = recurrence(number)
        assert kind_of(cache, "TrainingRecurrence").has_room(body)
        assert put(cache, "TrainingRecurrence", body)
    assert "the objects of namespace team" in cache.crowded("team")
    for number in range(300):
        cache.remove_recurrence(recurrence(number))
    assert cache.crowded("team") == ""
    assert cache.recurrences.bytes_of("team") == 0


def test_recurrences_that_are_deleted_before_their_job_states_them_take_no_more_than_the_share() -> None:
    cache = ObjectCache(SHARE)
    owner = job(0)
    put(cache, "RecurringTrainingJob", owner)
    for number in range(200):
        made = recurrence(number)
        made["spec"]["jobRef"] = {"name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}
        put(cache, "TrainingRecurrence", made)
        cache.remove_recurrence(made)
    remembered = cache.deleted_recurrences
    assert 0 < len(remembered.of_job("job-0")) < 200
    assert remembered.bytes_of("team") < SHARE + 20_000
    assert cache.crowded("team"), "a slot that is not remembered does not start again"
    for each in remembered.of_job("job-0"):
        remembered.discard(each.metadata.uid)
    assert (remembered.bytes_of("team"), cache.crowded("team")) == (0, "")


def test_a_quarter_of_the_share_is_left_for_what_runs() -> None:
    cache = ObjectCache(SHARE)
    number = 0
    while not cache.crowded("team"):
        put(cache, "RecurringTrainingJob", job(number))
        number += 1
    assert cache.jobs.bytes_of("team") < STARTING_SHARE * SHARE + 20_000
    assert kind_of(cache, "Pod").has_room(pod(0))
    assert put(cache, "Pod", pod(0))
