"""The objects alone and the store alone lead to the same decisions."""

import dataclasses
import json
import math
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.backends.model_backend import KEY, ModelBackend, backend_with, job, stated
from support.databases.sample_record import RECORD
from wattloop.errors import InputError
from wattloop.wire.training_messages import LimitMeasurement
from wattloop_operator.api.attempt_state import Result
from wattloop_operator.domain.records import ObservationRecord
from wattloop_operator.domain.snapshot import Failure
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.reconcile.learning import job_observations
from wattloop_operator.reconcile.learning.costs import attempt_cost_joules, default_cost
from wattloop_operator.reconcile.learning.decision import Attempt, decide, decision_context, learning_rate_scale
from wattloop_operator.reconcile.learning.job_observations import known_records
from wattloop_operator.reconcile.next_actions import next_actions
from wattloop_planner.bandit.policy import NoFeasibleArmError
from wattloop_planner.metric_curve import MetricCurve
from wattloop_planner.observations import Outcome

PROFILE = (LimitMeasurement(400.0, 120.1, 1.0, 0.1), LimitMeasurement(300.0, 80.3, 1.2, 0.1))


def run_recurrences(backend: ModelBackend, runs: list[tuple[bool, int]]) -> None:
    """Run recurrences one after another. Each reaches the target, or not, after its epochs."""
    for reached, epochs in runs:
        backend.reconcile()
        for name in backend.running:
            backend.run_workload(name)
            backend.report(
                name,
                epoch=epochs,
                metric=0.95 if reached else 0.5,
                joules=epochs * 333.333333 / 7,
                seconds=epochs * 1.1 / 3,
                finished=True,
                profile=PROFILE,
            )
            backend.end_workload(name)
        backend.reconcile()
        backend.advance(3600)


def decision_or_error(backend: ModelBackend) -> TrainingAttempt | str:
    try:
        return next_decision(backend)
    except NoFeasibleArmError as error:
        return str(error)


def next_decision(backend: ModelBackend) -> TrainingAttempt:
    decided = decide(backend.state, Attempt(99, 0, "next", backend.now))
    # The digest covers every input of the policy, to the last bit.
    assert decided.spec.decision.digest
    return decided


@settings(max_examples=settings().max_examples // 4, deadline=None)
@given(
    runs=st.lists(st.tuples(st.booleans(), st.integers(1, 50)), min_size=1, max_size=8),
    policy=st.sampled_from(["ThompsonSampling", "Zeus"]),
)
def test_losing_the_objects_changes_no_decision_and_losing_the_store_leaves_what_the_objects_state(
    runs: list[tuple[bool, int]], policy: str
) -> None:
    keep_all = {"retries": 0, "successfulRunsHistoryLimit": 1000, "failedRunsHistoryLimit": 1000}
    backend = ModelBackend(job(batchSize={"policy": policy}, **keep_all))
    run_recurrences(backend, runs)
    decided = decision_or_error(backend)
    recurrences, records = dict(backend.recurrences), dict(backend.records)
    backend.recurrences.clear()
    assert decision_or_error(backend) == decided
    backend.recurrences = recurrences
    backend.lose_database()
    assert known_records(backend.state) == tuple(stated(records[key]) for key in sorted(records))


def test_a_lost_store_is_restored_from_the_objects(backend: ModelBackend) -> None:
    run_recurrences(backend, [(True, 5), (True, 6)])
    records = {key: stated(each) for key, each in backend.records.items()}
    assert len(records) == 2
    backend.lose_database()
    backend.reconcile()
    assert {key: backend.records[key] for key in records} == records
    assert [each.gpu_product for each in records.values()] == ["NVIDIA A100"] * 2
    assert backend.profiles == {}


def test_history_beyond_its_limits_is_deleted_but_still_counts() -> None:
    backend = backend_with(successfulRunsHistoryLimit=2, failedRunsHistoryLimit=1, retries=0)
    run_recurrences(backend, [(True, 5), (False, 50), (True, 6), (False, 50), (True, 7), (True, 8)])
    remaining = sorted(each.spec.index for each in backend.recurrences.values() if each.status.result is not None)
    assert remaining == [3, 4, 5]
    assert len(backend.records) == 6
    assert (backend.job.status.totals.reached, backend.job.status.totals.failed) == (4, 2)


def test_a_job_says_how_many_recurrences_a_lost_database_had_until_a_backup_is_restored() -> None:
    def stated_loss() -> tuple[int | None, int, int]:
        status = backend.job.status
        messages = [each.message for each in status.conditions if each.type == "HistoryLost"]
        assert all(f"has no observation of {status.totals.lost} recurrence(s) any more" in each for each in messages)
        return status.totals.deleted, status.totals.lost, len(messages)

    backend = backend_with(successfulRunsHistoryLimit=2, retries=1)
    run_recurrences(backend, [(True, 5), (True, 6), (False, 50), (True, 7), (True, 8)])
    backend.reconcile()
    backend.delete(backend.running[0])
    backend.reconcile()
    assert stated_loss() == (1, 0, 0)
    backup = dict(backend.records)
    backend.events.clear()
    backend.lose_database()
    backend.reconcile()
    assert {recurrence for recurrence, _ in backend.records} == {2, 3}
    assert stated_loss() == (1, 2, 1)
    run_recurrences(backend, [(True, 5), (True, 5)])
    assert stated_loss() == (1, 2, 1)
    assert [each.reason for each in backend.events if each.warning] == ["HistoryLost"]
    backend.records |= backup
    backend.reconcile()
    assert stated_loss() == (1, 0, 0)
    # A version that did not count the deleted ones has written the status.
    totals = backend.job.status.totals.model_copy(update={"deleted": None})
    backend.job = backend.job.model_copy(update={"status": backend.job.status.model_copy(update={"totals": totals})})
    backend.reconcile()
    assert stated_loss() == (1, 0, 0)


def test_a_profiled_batch_size_gets_its_cheapest_limit(backend: ModelBackend) -> None:
    run_recurrences(backend, [(True, 5)])
    first = next(each for each in backend.recurrences.values() if each.spec.index == 0)
    assert (first.spec.power_limit_watts, first.spec.profile_power_limits) == (None, True)
    backend.change_spec(mode="Fixed")
    decided = next_decision(backend)
    # At 400 W: (120.1 + 400·1.0)/2 = 260 J; at 300 W: (80.3 + 400·1.2)/2 = 280 J, each for a tenth
    # of an epoch.
    assert (decided.spec.power_limit_watts, decided.spec.profile_power_limits) == (400, False)
    backend.change_spec(
        mode="Fixed", objective={**backend.job.to_wire()["spec"]["objective"], "energyWeightPercent": 100}
    )
    assert next_decision(backend).spec.power_limit_watts == 300


@pytest.mark.parametrize(("held", "recorded"), [(300.0, 300.0), (200.0, None)])
def test_an_attempt_that_ends_while_it_measures_limits_ran_with_none_of_them(
    backend: ModelBackend, held: float, recorded: float | None
) -> None:
    backend.finish(backend.start_attempt(), metric=0.95, profile=PROFILE, power_limit_watts=held)
    assert [each.power_limit_watts for each in backend.records.values()] == [recorded]


@pytest.mark.parametrize(("scaling", "scale"), [("None", "1"), ("Linear", "1"), ("SquareRoot", "1")])
def test_the_default_batch_size_keeps_the_learning_rate(scaling: str, scale: str) -> None:
    batch_size = {"default": 64, "candidates": [16, 64], "learningRateScaling": scaling}
    assert str(next_decision(backend_with(batchSize=batch_size)).spec.learning_rate_scale) == scale


@pytest.mark.parametrize(
    ("scope", "devices", "batch_size", "scale"),
    [
        # 100 on 8 GPUs trains 96.
        ("Global", 8, 96, 1.0),
        ("Global", 8, 100, 1.0),
        ("Global", 8, 150, 1.5),
        ("Global", 8, 3, 8 / 96),
        ("Global", 0, 150, 1.5),
        ("PerDevice", 8, 150, 1.5),
    ],
)
def test_the_learning_rate_follows_the_batch_sizes_that_are_trained(
    scope: str, devices: int, batch_size: int, scale: float
) -> None:
    sizes = {"default": 100, "candidates": [100], "learningRateScaling": "Linear", "scope": scope}
    assert learning_rate_scale(job(batchSize=sizes).spec, batch_size, devices) == pytest.approx(scale)


UNMEASURED = [
    pytest.param({"joules": 0.0, "seconds": 100.0}, "counters of its GPU did not advance in 100 s", id="no energy"),
    pytest.param({"joules": 0.0, "seconds": 0.0}, "no time passed on its GPUs", id="no time"),
    pytest.param({"gpus": 0}, "neither its processes nor a node agent", id="no GPU"),
]


def run_attempt(backend: ModelBackend, **reported: Any) -> str:
    return backend.run_once(epoch=10, metric=0.95, **reported)


@pytest.mark.parametrize(("reported", "cause"), UNMEASURED)
def test_an_attempt_without_a_measured_energy_has_no_cost_and_says_what_to_do(
    reported: dict[str, Any], cause: str
) -> None:
    backend = backend_with()
    status = backend.recurrences[run_attempt(backend, **reported)].status
    assert status.cost_joules is None
    assert "no energy was measured, so nothing is learned from it" in status.message
    assert cause in status.message
    assert attempt_cost_joules(next(iter(backend.records.values())), 0.5) is None
    snapshot = backend.state
    assert decision_context(snapshot, 1, 0).observations == ()
    assert default_cost(snapshot) is None


def test_attempts_without_a_measured_energy_change_no_expectation() -> None:
    backend = backend_with()
    run_attempt(backend, joules=10_000.0, seconds=100.0)
    snapshot = backend.state
    before = default_cost(snapshot), decision_context(snapshot, 9, 0).observations
    message = backend.recurrences[run_attempt(backend, joules=0.0, seconds=100.0)].status.message
    snapshot = backend.state
    assert (default_cost(snapshot), decision_context(snapshot, 9, 0).observations) == before
    assert message.startswith("accuracy reached 0.95 after 10 epochs; no energy")


def test_a_crash_has_no_remedy_for_its_energy() -> None:
    backend = backend_with()
    name = backend.start_attempt()
    backend.end_attempt(name, Failure.CRASHED)
    assert "no energy" not in backend.recurrences[name].status.message


NUMBERS = st.sampled_from([-0.0, 0.0, 5e-324, 1e-300, 1e-9, 1.0, 10.0, 1e14, 1e300, 1.7e308, math.inf, -1.0, math.nan])
METRICS = st.sampled_from([-1.7e308, -0.0, 5e-324, 0.9, 1.7e308, math.nan, -math.inf])
NOW = datetime(2026, 3, 2, tzinfo=UTC)
TIMES = st.sampled_from(
    [datetime(1, 1, 2, tzinfo=UTC), NOW - timedelta(days=1), NOW, datetime(9999, 12, 30, tzinfo=UTC)]
)
POISON = st.fixed_dictionaries(
    {},
    optional={
        "epochs": NUMBERS,
        "energy_joules": NUMBERS,
        "time_seconds": NUMBERS,
        "max_power_watts": NUMBERS,
        "power_limit_watts": NUMBERS,
        "epoch_energy_joules": NUMBERS,
        "epoch_time_seconds": NUMBERS,
        "start_up_energy_joules": NUMBERS,
        "start_up_time_seconds": NUMBERS,
        "metric": METRICS,
        "scheduled_at": TIMES,
        "finished_at": TIMES,
        "result": st.sampled_from(["Reached", "Stopped", "Exhausted", "Crashed", "Plateaued"]),
        "curve": st.sampled_from(
            [None, ((5e-324, 1.0), (-1.7e308, 1.7e308)), ((1.0, 1.7e308), (0.5, 0.6)), ((1.0, 2.0), (0.0, -0.0))]
        ),
    },
)


def record(number: int, poison: dict[str, Any]) -> ObservationRecord | None:
    """A record of the job; None if its values are refused."""
    values = dict(poison)
    size = (32, 64, 128)[number % 3]
    name = f"{KEY.name}-{number:05}-0"
    try:
        if values.get("curve") is not None:
            values["curve"] = MetricCurve(*values["curve"])
        return replace(
            RECORD, job_uid="uid", namespace=KEY.namespace, job_name=KEY.name, recurrence=number,
            recurrence_name=name, batch_size=size, **values,
        )  # fmt: skip
    except (InputError, ValueError):
        return None


def numbers(value: object) -> Iterator[float]:
    """All floats in a value."""
    if isinstance(value, float):
        yield value
    elif is_dataclass(value):
        for each in fields(value):
            yield from numbers(getattr(value, each.name))
    elif isinstance(value, dict):
        for each in value.values():
            yield from numbers(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from numbers(each)


@settings(deadline=None, max_examples=settings().max_examples // 2, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(POISON, min_size=1, max_size=8))
def test_poisoned_observations_are_refused_or_decisions_and_statuses_stay_finite(poisons: list[dict[str, Any]]) -> None:
    backend = ModelBackend(job(batchSize={"default": 64, "candidates": [32, 64, 128]}))
    snapshot = backend.state
    found = (record(number, poison) for number, poison in enumerate(poisons))
    records = tuple(each for each in found if each is not None)
    for known in (replace(snapshot, records=records), replace(snapshot, source_records=records)):
        decided = decide(known, Attempt(len(poisons), 0, "next", NOW))
        assert all(map(math.isfinite, numbers(decided.spec.model_dump())))
        assert decided.spec.batch_size in (32, 64, 128)
        json.dumps(decided.spec.model_dump(mode="json"), allow_nan=False)
        for action in next_actions(known, NOW).actions:
            status = getattr(action, "status", None)
            if status is not None:
                json.dumps(status.to_wire(), allow_nan=False)


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
    backend.end_attempt(evaluated(backend, FIRST, finished=False), Failure.DISRUPTED)
    backend.advance(60)
    backend.end_attempt(evaluated(backend, second, finished=True))
    backend.reconcile()
    first, last = (backend.records[key] for key in sorted(backend.records))
    assert (first.result, last.result) == (Result.DISRUPTED.value, Result.REACHED.value)
    assert (first.resumed, last.resumed) == (False, resumed)
    outcomes = [each.outcome for each in job_observations.observations([first, last])]
    assert outcomes == ([] if resumed else [Outcome.REACHED])
    learns = [each for each in backend.job.status.conditions if each.type == "Learns"]
    assert [each.reason for each in learns] == (["Resumed"] if resumed else [])
    assert job_observations.known_records(backend.state)[-1] == last


def test_each_attempt_that_goes_on_after_several_disruptions_counts_as_resumed() -> None:
    backend = ModelBackend(job(retries=2))
    parts = (FIRST, curve(4, 0.82, 0.84), curve(6, 0.86, 0.95))
    for points in parts:
        is_last = points is parts[-1]
        name = evaluated(backend, points, finished=is_last)
        backend.end_attempt(name, None if is_last else Failure.DISRUPTED)
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
        backend.end_attempt(name)
        backend.advance(60)
    last = backend.recurrences[name]
    other_size = backend.records[0, 0]
    before = dataclasses.replace(other_size, batch_size=last.spec.batch_size)
    others = (before, other_size, dataclasses.replace(before, recurrence=1))
    records = [job_observations.record_of(last, [each]) for each in others]
    assert [each.resumed for each in records] == [True, False, False]
