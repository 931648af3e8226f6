"""The dispatcher stores objects and enqueues their jobs."""

import copy
from datetime import UTC, datetime
from typing import Any

import pytest

from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.cluster.informer.object_cache import ObjectCache
from wattloop_operator.cluster.informer.watched_kinds import EventDispatcher, WatchedKind, watched_kinds
from wattloop_operator.domain.names import JobKey
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.reconcile.learning.decision import Attempt, decide

KEY = JobKey("team", "digits")
JOB: dict[str, Any] = {
    "apiVersion": "wattloop.dev/v1alpha1",
    "kind": "RecurringTrainingJob",
    "metadata": {"name": "digits", "namespace": "team", "uid": "u", "resourceVersion": "5"},
    "spec": {
        "objective": {"target": {"metric": "accuracy", "threshold": "0.9"}},
        "batchSize": {"default": 64, "candidates": [64]},
        "template": {"spec": {"template": {"spec": {"containers": [{"name": "train"}]}}}},
    },
}
POD: dict[str, Any] = {
    "metadata": {
        "name": "digits-1-0-x",
        "namespace": "team",
        "uid": "p",
        "resourceVersion": "6",
        "labels": {"wattloop.dev/job": "digits", "wattloop.dev/recurrence": "digits-1-0"},
    },
    "status": {"phase": "Running"},
}


class DispatcherFixture:
    """A dispatcher that records its calls."""

    def __init__(self) -> None:
        self.cache = ObjectCache()
        self.enqueued: list[JobKey] = []
        self.deleted: list[tuple[JobKey, str]] = []
        self.beats: list[str] = []
        self.syncs = 0
        self.synced_in_call: list[bool] = []
        self.dispatcher = EventDispatcher(
            watched_kinds(self.cache),
            enqueue=lambda _, key: self.enqueued.append(key),
            job_deleted=lambda key, uid: self.deleted.append((key, uid)),
            heartbeat=self.beats.append,
            all_listed=self._count_sync,
        )

    def kind(self, name: str) -> WatchedKind:
        return next(each for each in self.dispatcher.kinds if each.resource.kind == name)

    def _count_sync(self) -> None:
        self.syncs += 1
        self.synced_in_call.append(self.dispatcher.synced)


def recurrence(result: str | None) -> dict[str, Any]:
    decided = decide(
        Snapshot(RecurringTrainingJob.from_wire(JOB)), Attempt(0, 0, "1", datetime(2026, 3, 1, tzinfo=UTC))
    )
    body = decided.to_wire()
    body["metadata"] |= {"uid": "r", "resourceVersion": "6"}
    body["status"] = {} if result is None else {"result": result}
    return body


@pytest.fixture
def fixture() -> DispatcherFixture:
    return DispatcherFixture()


def test_a_new_version_enqueues_its_job_and_a_repeated_one_does_not(fixture: DispatcherFixture) -> None:
    fixture.dispatcher.on_object(fixture.kind("RecurringTrainingJob"), JOB)
    fixture.dispatcher.on_object(fixture.kind("RecurringTrainingJob"), JOB)
    fixture.dispatcher.on_object(fixture.kind("Pod"), POD)
    assert fixture.enqueued == [KEY, KEY]
    assert fixture.beats == ["RecurringTrainingJob", "RecurringTrainingJob", "Pod"]
    assert fixture.dispatcher.jobs() == [KEY]


def test_an_object_that_cannot_be_parsed_is_logged_and_ignored_but_a_job_is_told_so(
    fixture: DispatcherFixture, caplog: pytest.LogCaptureFixture
) -> None:
    plan = {"metadata": JOB["metadata"], "spec": "Astrology"}
    fixture.dispatcher.on_object(fixture.kind("FrequencyPlan"), plan)
    assert fixture.enqueued == []
    assert "FrequencyPlan team/digits is ignored" in caplog.text
    unparsable = copy.deepcopy(JOB)
    unparsable["spec"]["mode"] = "Astrology"
    for _ in range(2):
        fixture.dispatcher.on_object(fixture.kind("RecurringTrainingJob"), unparsable)
    assert fixture.enqueued == [KEY]
    assert "RecurringTrainingJob team/digits: this version of Wattloop cannot read it (spec.mode: " in caplog.text


def test_a_deleted_job_is_forgotten(fixture: DispatcherFixture) -> None:
    kind = fixture.kind("RecurringTrainingJob")
    fixture.dispatcher.on_object(kind, JOB)
    fixture.dispatcher.on_deleted(kind, JOB)
    assert fixture.deleted == [(KEY, "u")]
    assert fixture.dispatcher.jobs() == []


def test_work_starts_once_when_all_objects_are_listed(fixture: DispatcherFixture) -> None:
    paths = [kind.resource.path() for kind in fixture.dispatcher.kinds]
    for path in [*paths[:-1], *paths[:-1]]:
        fixture.dispatcher.on_listed(path)
    assert not fixture.dispatcher.synced
    for _ in range(2):
        fixture.dispatcher.on_listed(paths[-1])
    assert fixture.dispatcher.synced
    assert fixture.syncs == 1
    assert fixture.synced_in_call == [False], "other threads take work that is still being started for ended"


def test_with_namespaces_work_starts_when_each_of_them_is_listed() -> None:
    synced: list[bool] = []
    dispatcher = EventDispatcher(
        watched_kinds(ObjectCache())[:1],
        enqueue=lambda *_: None,
        job_deleted=lambda *_: None,
        heartbeat=lambda _: None,
        all_listed=lambda: synced.append(True),
        namespaces=("team-a", "team-b"),
    )
    (kind,) = dispatcher.kinds
    for namespace, expected in (("team-a", []), ("team-a", []), ("team-b", [True])):
        dispatcher.on_listed(kind.resource.path(namespace))
        assert synced == expected


def test_work_that_cannot_start_is_noticed() -> None:
    def fail() -> None:
        raise RuntimeError("can't start new thread")

    dispatcher = EventDispatcher(
        (), enqueue=lambda *_: None, job_deleted=lambda *_: None, heartbeat=lambda _: None, all_listed=fail
    )
    with pytest.raises(RuntimeError):
        dispatcher.on_listed("/pods")
    assert dispatcher.synced


@pytest.mark.parametrize(
    ("result", "job_change", "remembered"),
    [
        ("Reached", {}, True),
        (None, {}, True),
        (None, {"status": {"active": [recurrence(None)["metadata"]["name"]]}}, False),
        ("Reached", {"metadata": {"deletionTimestamp": "2026-03-01T10:00:00Z"}}, False),
        ("Reached", {"metadata": {"uid": "a later job of this name"}}, False),
    ],
)
def test_a_deleted_recurrence_is_remembered_if_its_job_is_not_deleted_and_does_not_state_it_as_active(
    fixture: DispatcherFixture, result: str | None, job_change: dict[str, Any], remembered: bool
) -> None:
    job, kind = copy.deepcopy(JOB), fixture.kind("TrainingRecurrence")
    job = {**job, "metadata": job["metadata"] | job_change.get("metadata", {}), "status": job_change.get("status", {})}
    fixture.dispatcher.on_object(fixture.kind("RecurringTrainingJob"), job)
    fixture.dispatcher.on_object(kind, recurrence(result))
    for _ in range(2):
        fixture.dispatcher.on_deleted(kind, recurrence(result))
    found = fixture.cache.deleted_recurrences.of_job("u")
    assert [each.metadata.uid for each in found] == (["r"] if remembered else [])
    fixture.dispatcher.on_deleted(fixture.kind("RecurringTrainingJob"), JOB)
    assert fixture.cache.deleted_recurrences.of_job("u") == ()
