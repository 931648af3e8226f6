"""An attempt that went on from an earlier one's checkpoint says nothing of a whole training."""

import dataclasses
from typing import Any

import pytest

from support.backends.model_backend import KEY, ModelBackend, job
from wattloop_operator.api.attempt_state import Result
from wattloop_operator.domain.snapshot import Failure
from wattloop_operator.reconcile.learning import job_observations
from wattloop_planner.observations import Outcome


def curve(first_epoch: int, *metrics: float) -> list[dict[str, Any]]:
    return [{"epoch": first_epoch + number, "metric": metric} for number, metric in enumerate(metrics)]


def evaluated(backend: ModelBackend, points: list[dict[str, Any]], *, finished: bool) -> str:
    """The next attempt, after these evaluations."""
    name = backend.start_attempt()
    for sequence, point in enumerate(points, start=1):
        backend.advance(10)
        backend.report(
            name,
            sequence=sequence,
            joules=1000.0 * sequence,
            seconds=10.0 * sequence,
            **point,
            finished=finished and sequence == len(points),
        )
    return name


FIRST = curve(1, 0.5, 0.7, 0.8)


@pytest.mark.parametrize(
    ("second", "resumed"),
    [
        (curve(1, 0.5, 0.7, 0.8, 0.95), False),
        (curve(1, 0.55, 0.72, 0.95), False),
        (curve(4, 0.85, 0.95), True),
        (curve(3, 0.79, 0.95), True),
        (curve(1, 0.82, 0.95), True),
    ],
    ids=["again from the first", "again with noise", "next epoch", "last epoch again", "epochs count from one again"],
)
def test_nothing_is_learned_from_an_attempt_that_went_on_from_an_earlier_one(
    second: list[dict[str, Any]], resumed: bool
) -> None:
    backend = ModelBackend(job(retries=2))
    disrupted = evaluated(backend, FIRST, finished=False)
    backend.end_workload(disrupted, Failure.DISRUPTED)
    backend.reconcile()
    backend.advance(60)
    reached = evaluated(backend, second, finished=True)
    backend.end_workload(reached)
    backend.reconcile()
    backend.reconcile()
    first, last = (backend.records[key] for key in sorted(backend.records))
    assert (first.result, last.result) == (Result.DISRUPTED.value, Result.REACHED.value)
    assert (first.resumed, last.resumed) == (False, resumed)
    outcomes = [each.outcome for each in job_observations.observations([first, last])]
    assert outcomes == ([] if resumed else [Outcome.REACHED])
    learns = [each for each in backend.job.status.conditions if each.type == "Learns"]
    assert [each.reason for each in learns] == (["Resumed"] if resumed else [])
    snapshot = backend.snapshot(KEY)
    assert snapshot is not None
    assert job_observations.known_records(snapshot)[-1] == last


def test_each_attempt_that_goes_on_after_several_disruptions_counts_as_resumed() -> None:
    backend = ModelBackend(job(retries=2))
    parts = (FIRST, curve(4, 0.82, 0.84), curve(6, 0.86, 0.95))
    for points in parts:
        is_last = points is parts[-1]
        name = evaluated(backend, points, finished=is_last)
        backend.end_workload(name, None if is_last else Failure.DISRUPTED)
        backend.reconcile()
        backend.advance(60)
    records = [backend.records[key] for key in sorted(backend.records)]
    assert [(each.result, each.resumed) for each in records] == [
        ("Disrupted", False),
        ("Disrupted", True),
        ("Reached", True),
    ]
    assert len({each.batch_size for each in records}) == 1
    assert job_observations.observations(records) == ()


def test_an_attempt_in_another_configuration_is_a_training_of_its_own() -> None:
    backend = ModelBackend(job(retries=2))
    for points in (FIRST, curve(4, 0.85, 0.87)):
        name = evaluated(backend, points, finished=True)
        backend.end_workload(name)
        backend.reconcile()
        backend.advance(60)
    last = backend.recurrences[name]
    other_size = backend.records[0, 0]
    before = dataclasses.replace(other_size, batch_size=last.spec.batch_size)
    others = (before, other_size, dataclasses.replace(before, recurrence=1))
    records = [job_observations.record_of(last, [each]) for each in others]
    assert [each.resumed for each in records] == [True, False, False]
