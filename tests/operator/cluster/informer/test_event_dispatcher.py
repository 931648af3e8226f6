"""What becomes of what the handlers see."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from wattloop_operator.cluster.informer.event_dispatcher import EventDispatcher
from wattloop_operator.cluster.informer.object_cache import ObjectCache, WatchedKind, watched_kinds
from wattloop_operator.domain.names import JobKey

KEY = JobKey("team", "digits")
JOB: dict[str, Any] = {
    "apiVersion": "wattloop.dev/v1alpha1",
    "kind": "RecurringTrainingJob",
    "metadata": {"name": "digits", "namespace": "team", "uid": "u", "resourceVersion": "5"},
    "spec": {
        "trigger": {"manual": {}},
        "objective": {"target": {"metric": "accuracy", "threshold": "0.9"}},
        "batchSize": {"default": 64, "candidates": [64]},
        "template": {"job": {"template": {"spec": {"containers": [{"name": "train"}]}}}},
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


class Office:
    """A desk and what it has passed on."""

    def __init__(self) -> None:
        self.cache = ObjectCache()
        self.asked: list[JobKey] = []
        self.gone: list[tuple[JobKey, str]] = []
        self.beats: list[str] = []
        self.openings = 0
        self.dispatcher = EventDispatcher(
            watched_kinds(self.cache),
            ask=self.asked.append,
            job_deleted=lambda key, uid: self.gone.append((key, uid)),
            heartbeat=self.beats.append,
            all_listed=self._open,
        )

    def kind(self, name: str) -> WatchedKind:
        return next(each for each in self.dispatcher.kinds if each.resource.kind == name)

    def _open(self) -> None:
        self.openings += 1


@pytest.fixture
def office() -> Office:
    return Office()


def test_news_has_its_job_looked_at_and_an_echo_does_not(office: Office) -> None:
    office.dispatcher.seen(office.kind("RecurringTrainingJob"), JOB)
    office.dispatcher.seen(office.kind("RecurringTrainingJob"), JOB)
    office.dispatcher.seen(office.kind("Pod"), POD)
    assert office.asked == [KEY, KEY]
    assert office.beats == ["RecurringTrainingJob", "RecurringTrainingJob", "Pod"]
    assert office.dispatcher.jobs() == [KEY]


def test_an_object_that_cannot_be_read_is_said_and_passed_over(
    office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    strange = copy.deepcopy(JOB)
    strange["spec"]["policy"] = {"astrology": {}}
    office.dispatcher.seen(office.kind("RecurringTrainingJob"), strange)
    assert office.asked == []
    assert "RecurringTrainingJob team/digits is passed over" in caplog.text
    assert "astrology" in caplog.text


def test_a_job_that_is_gone_is_forgotten(office: Office) -> None:
    kind = office.kind("RecurringTrainingJob")
    office.dispatcher.seen(kind, JOB)
    office.dispatcher.gone(kind, JOB)
    assert office.gone == [(KEY, "u")]
    assert office.dispatcher.jobs() == []


def test_work_begins_once_when_everything_was_listed(office: Office) -> None:
    assert not office.dispatcher.opened
    office.dispatcher.everything_was_listed()
    office.dispatcher.everything_was_listed()
    assert office.dispatcher.opened
    assert office.openings == 1
