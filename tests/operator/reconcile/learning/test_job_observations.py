"""The objects alone and the store alone lead to the same decisions."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.backends.model_backend import KEY, ModelBackend, job, stated
from wattloop.wire.training_messages import LimitMeasurement
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.reconcile.learning.decision import Attempt, decide, learning_rate_scale
from wattloop_operator.reconcile.learning.job_observations import known_records
from wattloop_planner.bandit.policy import NoFeasibleArmError

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
    snapshot = backend.snapshot(KEY)
    assert snapshot is not None
    decided = decide(snapshot, Attempt(99, 0, "next", backend.now))
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
    snapshot = backend.snapshot(KEY)
    assert snapshot is not None
    assert known_records(snapshot) == tuple(stated(records[key]) for key in sorted(records))


def test_a_lost_store_is_restored_from_the_objects(backend: ModelBackend) -> None:
    run_recurrences(backend, [(True, 5), (True, 6)])
    records = {key: stated(each) for key, each in backend.records.items()}
    assert len(records) == 2
    backend.lose_database()
    backend.reconcile()
    assert {key: backend.records[key] for key in records} == records
    assert [each.gpu_product for each in records.values()] == ["NVIDIA A100"] * 2
    assert backend.profiles == {}


def test_history_beyond_its_limits_is_deleted_but_still_counts(backend_with: Callable[..., ModelBackend]) -> None:
    backend = backend_with(successfulRunsHistoryLimit=2, failedRunsHistoryLimit=1, retries=0)
    run_recurrences(backend, [(True, 5), (False, 50), (True, 6), (False, 50), (True, 7), (True, 8)])
    remaining = sorted(each.spec.index for each in backend.recurrences.values() if each.status.result is not None)
    assert remaining == [3, 4, 5]
    assert len(backend.records) == 6
    assert (backend.job.status.totals.reached, backend.job.status.totals.failed) == (4, 2)


def test_a_job_says_how_many_recurrences_a_lost_database_had_until_a_backup_is_restored(
    backend_with: Callable[..., ModelBackend],
) -> None:
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
    name = backend.start_attempt()
    backend.report(name, metric=0.95, finished=True, profile=PROFILE, power_limit_watts=held)
    backend.end_workload(name)
    backend.reconcile()
    assert [each.power_limit_watts for each in backend.records.values()] == [recorded]


@pytest.mark.parametrize(("scaling", "scale"), [("None", "1"), ("Linear", "1"), ("SquareRoot", "1")])
def test_the_default_batch_size_keeps_the_learning_rate(
    backend_with: Callable[..., ModelBackend], scaling: str, scale: str
) -> None:
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
