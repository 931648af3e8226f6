"""What the operator records of published models: only of attempts that reached, and until the next one."""

from dataclasses import replace
from typing import Any

import pytest

from support.backends.model_backend import ModelBackend, job
from wattloop.wire.training_messages import PublishedModel, Report
from wattloop_operator.api.attempt_state import Result
from wattloop_operator.api.model_output import CurrentModel
from wattloop_operator.cluster.events import events_of
from wattloop_operator.domain.snapshot import Failure
from wattloop_operator.reconcile.actions import WriteRecurrenceStatus
from wattloop_operator.reconcile.learning.changed_job import source_observations
from wattloop_planner.bandit.feasible_arms import CRASH_BUDGET

OUTPUT = {"directory": "/models/digits"}


def backend_with_output(**changes: Any) -> ModelBackend:
    return ModelBackend(job(output=OUTPUT, **changes))


def run(backend: ModelBackend, digest: str | None, *, metric: float = 0.95, failure: Failure | None = None) -> str:
    """Run one recurrence whose training reports this model; returns its name."""
    name = backend.start_attempt()
    published = None if digest is None else PublishedModel(name, digest)
    backend.report(name, epoch=3, metric=metric, published=published, finished=failure is None)
    backend.end_attempt(name, failure)
    backend.advance(3600)
    return name


def condition_of(backend: ModelBackend, name: str) -> tuple[str, str] | None:
    found = [each for each in backend.recurrences[name].status.conditions if each.type == "Published"]
    return (found[0].status.value, found[0].reason) if found else None


def test_the_status_names_the_model_that_was_published_last() -> None:
    backend = backend_with_output(retries=0)
    assert backend.job.status.published is None
    first = run(backend, "1" * 32)
    published = backend.job.status.published
    assert (published.recurrence, published.path) == (first, f"attempts/{first}")
    assert condition_of(backend, first) == ("True", "Published")
    run(backend, "2" * 32, metric=0.5)
    assert backend.job.status.published == published
    third = run(backend, "3" * 32)
    assert backend.job.status.published.recurrence == third


def test_the_status_keeps_the_model_of_a_deleted_recurrence() -> None:
    backend = backend_with_output()
    name = run(backend, "1" * 32)
    published = backend.job.status.published
    del backend.recurrences[name]
    backend.reconcile()
    assert backend.job.status.published == published is not None


@pytest.mark.parametrize("metric", [0.5, 0.89])
def test_a_model_of_an_attempt_that_did_not_reach_is_not_recorded(metric: float) -> None:
    backend = backend_with_output(retries=0)
    name = run(backend, "1" * 32, metric=metric)
    assert backend.recurrences[name].status.result is Result.EXHAUSTED
    assert backend.recurrences[name].progress.published is None
    assert condition_of(backend, name) is None
    assert backend.job.status.published is None


def test_a_reached_attempt_that_reported_no_model_has_a_warning() -> None:
    backend = backend_with_output()
    name = run(backend, None, failure=Failure.CRASHED)
    recurrence = backend.recurrences[name]
    assert recurrence.status.result is Result.REACHED
    assert condition_of(backend, name) == ("False", "NotReported")
    snapshot = backend.state
    before = recurrence.model_copy(update={"status": recurrence.status.model_copy(update={"conditions": ()})})
    events = events_of(snapshot, WriteRecurrenceStatus(before, recurrence.status))
    assert ("ModelNotPublished", True) in [(each.reason, each.warning) for each in events]


def test_a_published_model_has_one_event() -> None:
    backend = backend_with_output()
    recurrence = backend.recurrences[run(backend, "1" * 32)]
    snapshot = backend.state
    before = recurrence.model_copy(update={"status": recurrence.status.model_copy(update={"conditions": ()})})
    for known, expected in ((before, 1), (recurrence, 0)):
        events = [each.reason for each in events_of(snapshot, WriteRecurrenceStatus(known, recurrence.status))]
        assert events.count("ModelPublished") == expected


def test_without_an_output_nothing_is_recorded() -> None:
    backend = ModelBackend(job())
    assert condition_of(backend, run(backend, "1" * 32)) is None
    assert backend.job.status.published is None


def test_a_report_names_one_folder_of_the_attempts() -> None:
    report = Report("p", 1, 1.0, published=PublishedModel("digits-1", "1" * 32))
    assert Report.from_json(report.to_json()) == report
    for folder in ("../digits", "a/b", "", "x" * 128, "A"):
        spoiled = replace(report, published=PublishedModel(folder, "1" * 32))
        with pytest.raises(ValueError, match="folder"):
            Report.from_json(spoiled.to_json())


def test_attempts_start_warm_once_a_model_is_published_and_are_another_training_then() -> None:
    backend = ModelBackend(job(output=OUTPUT | {"warmStart": True}))
    first = run(backend, "1" * 32)
    second = run(backend, "2" * 32)
    specs = [backend.recurrences[name].spec for name in (first, second)]
    assert [spec.warm_start for spec in specs] == [False, True]
    assert specs[0].template_digest == backend.job.spec.template.digest != specs[1].template_digest
    text = "1 attempt(s) with another image, template or training runtime count until later runs differ"
    assert text in backend.job.status.learning


def test_a_crash_of_a_cold_start_does_not_count_for_warm_ones() -> None:
    backend = ModelBackend(job(output=OUTPUT | {"warmStart": True}, mode="Fixed"))
    backend.reconcile()
    for _ in range(CRASH_BUDGET):
        (name,) = backend.running
        backend.run_workload(name)
        backend.end_attempt(name, Failure.CRASHED)
    assert backend.running == []
    # Its model is published by hand, for example.
    published = CurrentModel(path="attempts/a", recurrence="a", time=backend.now)
    status = backend.job.status.model_copy(update={"published": published})
    backend.job = backend.job.model_copy(update={"status": status})
    backend.reconcile()
    assert len(backend.running) == 1


def test_without_the_wish_every_attempt_starts_cold() -> None:
    backend = backend_with_output()
    names = [run(backend, digit * 32) for digit in "12"]
    assert [backend.recurrences[name].spec.warm_start for name in names] == [False, False]
    assert len({backend.recurrences[name].spec.template_digest for name in names}) == 1


def test_a_job_learns_only_from_a_job_with_the_same_kind_of_start() -> None:
    source = ModelBackend(job(output=OUTPUT | {"warmStart": True}))
    run(source, "1" * 32)
    learns = {}
    for warm in (False, True):
        backend = ModelBackend(
            job(
                output=OUTPUT | {"warmStart": warm}, batchSize={"default": 64, "candidates": [64], "learnFrom": "other"}
            )
        )
        snapshot = backend.state
        if warm:
            status = backend.job.status.model_copy(update={"published": source.job.status.published})
            snapshot = replace(snapshot, job=backend.job.model_copy(update={"status": status}))
        for source_job in (source.job, None):
            known = replace(snapshot, source_job=source_job, source_records=tuple(source.records.values()))
            learns[warm, source_job is not None] = len(source_observations(known))
    assert learns == {(False, True): 0, (False, False): 1, (True, True): 1, (True, False): 0}
