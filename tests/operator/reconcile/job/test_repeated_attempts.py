"""A disrupted attempt is repeated as it was decided, with its seed, unless its job would not decide so any more."""

import functools
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.backends.model_backend import KEY, ModelBackend, backend_with, job
from wattloop.wire.training_messages import LimitMeasurement
from wattloop_operator.api.attempt_state import Result
from wattloop_operator.domain.progress import Progress
from wattloop_operator.domain.snapshot import Failure, WorkloadPhase
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.reconcile.attempt.early_stop import review_cost_limit, with_stop_request
from wattloop_operator.reconcile.job.retry import REPEATS
from wattloop_operator.reconcile.learning.decision import MAX_REASON_CHARACTERS
from wattloop_operator.reconcile.learning.job_observations import known_profiles
from wattloop_planner.bandit.feasible_arms import CRASH_BUDGET

HOUR_SECONDS = 3600
# Epochs to the target and joules of an epoch. The largest batch size does not reach it.
EPOCHS = {16: 8, 32: 10, 64: 14, 128: 60}
JOULES = {16: 1500.0, 32: 900.0, 64: 800.0, 128: 700.0}
LIMITS = {400.0: 1.0, 300.0: 0.8, 250.0: 0.9}
EXHAUSTED_EPOCHS = 20
OBJECTIVE = {"target": {"metric": "accuracy", "threshold": "0.9"}, "maxEpochs": EXHAUSTED_EPOCHS}
RECURRENCES = 6
OTHER_TEMPLATE = {"spec": {"template": {"spec": {"containers": [{"name": "train", "image": "other"}]}}}}


def disrupt(backend: ModelBackend, name: str) -> TrainingAttempt:
    """The machine is taken back; returns the attempt that follows."""
    assert backend.end_attempt(name, Failure.DISRUPTED, "its node was taken back").result is Result.DISRUPTED
    before = backend.recurrences[name].order
    return next(each for each in backend.recurrences.values() if each.order == (before[0], before[1] + 1))


def decision_of(attempt: TrainingAttempt) -> dict[str, Any]:
    """All that was decided of an attempt."""
    spec = attempt.spec.to_wire()
    decision = {**spec.pop("decision"), "reason": attempt.spec.decision.reason.partition(REPEATS)[0]}
    return {**{key: value for key, value in spec.items() if key != "attempt"}, "decision": decision}


def measured_limits(count: int = len(LIMITS)) -> tuple[LimitMeasurement, ...]:
    found = (LimitMeasurement(watts, 1000.0 * factor, 10.0, 0.5) for watts, factor in LIMITS.items())
    return tuple(found)[:count]


def test_a_trial_that_is_disrupted_is_tried_again_and_says_so(backend: ModelBackend) -> None:
    trial = backend.run_until_trial()
    backend.report(trial, epoch=3, metric=0.4, joules=3000.0, seconds=30.0)
    decided = backend.recurrences[trial]
    again = disrupt(backend, trial)
    assert decision_of(again) == decision_of(decided)
    assert again.spec.decision.reason == (
        f"{decided.spec.decision.reason}; this repeats attempt 0, which was disrupted"
    )
    backend.run_workload(again.metadata.name)
    backend.reconcile()
    last = disrupt(backend, again.metadata.name)
    assert decision_of(last) == decision_of(decided)
    assert last.spec.decision.reason.count(REPEATS) == 1
    assert "this repeats attempt 1" in last.spec.decision.reason


def test_a_repeated_attempt_measures_the_power_limits_again(backend: ModelBackend) -> None:
    name = backend.start_attempt()
    backend.report(name, epoch=2, metric=0.1, profile=measured_limits(2), power_limit_watts=250.0)
    assert backend.recurrences[name].spec.profile_power_limits
    again = disrupt(backend, name)
    assert (again.spec.profile_power_limits, again.spec.power_limit_watts) == (True, None)
    assert known_profiles(backend.state) == (), "it was ended between two limits"


def test_a_disrupted_attempt_keeps_its_decision_while_other_results_arrive() -> None:
    backend = backend_with(concurrencyPolicy="Allow")
    trial = backend.run_until_trial()
    for _ in range(3):
        backend.reconcile_after(HOUR_SECONDS)
        other = backend.running[-1]
        assert other != trial
        backend.run_workload(other)
        backend.finish(other, epoch=10, metric=0.95, joules=9000.0, seconds=90.0)
    assert decision_of(disrupt(backend, trial)) == decision_of(backend.recurrences[trial])


@pytest.mark.parametrize(
    ("changes", "repeated"),
    [
        ({}, True),
        ({"retries": 7}, True),
        ({"progressDeadlineSeconds": 600}, True),
        ({"batchSize": {"default": 64, "candidates": [16, 32, 64, 128, 256]}}, True),
        ({"batchSize": {"default": 64, "candidates": [64]}}, False),
        ({"batchSize": {"default": 128, "candidates": [16, 64, 128]}}, True),
        ({"parameters": [{"name": "depth", "default": "1", "candidates": ["1", "2"]}]}, False),
        ({"template": OTHER_TEMPLATE}, False),
        ({"objective": {**OBJECTIVE, "maxEpochs": 60}}, False),
        ({"objective": {**OBJECTIVE, "energyWeightPercent": 10}}, False),
        ({"objective": {**OBJECTIVE, "target": {"metric": "accuracy", "threshold": "0.8"}}}, False),
        ({"batchSize": {"default": 64, "candidates": [16, 32, 64, 128], "policy": "Zeus"}}, False),
        ({"mode": "Advise"}, False),
        ({"mode": "Fixed"}, False),
        ({"reporting": {"source": "Logs"}}, False),
    ],
    ids=lambda each: str(each)[:70],
)
def test_a_job_that_has_changed_repeats_only_what_it_would_decide(changes: dict[str, Any], repeated: bool) -> None:
    backend = backend_with(objective=OBJECTIVE)
    trial = backend.run_until_trial()
    decided = backend.recurrences[trial].spec
    backend.change_spec(**changes)
    again = disrupt(backend, trial).spec
    assert (REPEATS in again.decision.reason) == repeated
    assert (again.batch_size == decided.batch_size and again.decision.seed == decided.decision.seed) or not repeated
    assert again.progress_deadline_seconds == backend.job.spec.progress_deadline_seconds


@pytest.mark.parametrize(
    ("power", "expected"),
    [
        ({"mode": "Auto"}, (None, True)),
        ({"mode": "None"}, (None, False)),
        ({"mode": "Fixed", "watts": 200}, (200, False)),
    ],
)
def test_the_power_limit_of_a_repeated_attempt_follows_a_changed_job(
    backend: ModelBackend, power: dict[str, Any], expected: tuple[int | None, bool]
) -> None:
    name = backend.start_attempt()
    backend.change_spec(power=power)
    again = disrupt(backend, name).spec
    assert REPEATS in again.decision.reason
    assert (again.power_limit_watts, again.profile_power_limits) == expected


def test_a_batch_size_that_crashed_too_often_meanwhile_is_not_repeated() -> None:
    backend = backend_with(concurrencyPolicy="Allow")
    trial = backend.run_until_trial()
    size = backend.recurrences[trial].spec.batch_size
    for _ in range(CRASH_BUDGET):
        backend.reconcile_after(HOUR_SECONDS)
        other = backend.running[-1]
        found = backend.recurrences[other]
        spec = found.spec.model_copy(update={"batch_size": size})
        backend.recurrences[other] = found.model_copy(update={"spec": spec})
        backend.run_workload(other)
        backend.report(other, epoch=1, metric=0.1)
        backend.end_attempt(other, Failure.CRASHED, "CUDA out of memory", exit_code=1)
    again = disrupt(backend, trial).spec
    assert again.batch_size != size
    assert REPEATS not in again.decision.reason


@pytest.mark.parametrize("runs_default", [{"mode": "Advise"}, {"mode": "Fixed"}], ids=str)
def test_a_job_that_runs_its_default_alone_repeats_no_other_batch_size(runs_default: dict[str, Any]) -> None:
    backend = backend_with(**runs_default)
    name = backend.start_attempt()
    again = disrupt(backend, name)
    assert decision_of(again) == decision_of(backend.recurrences[name])
    backend.change_spec(batchSize={"default": 32, "candidates": [16, 32, 64, 128]})
    backend.run_workload(again.metadata.name)
    backend.reconcile()
    assert disrupt(backend, again.metadata.name).spec.batch_size == 32


def test_a_size_that_the_published_algorithm_has_pruned_meanwhile_is_not_repeated() -> None:
    backend = backend_with(batchSize={"policy": "Zeus"}, concurrencyPolicy="Allow")
    backend.finish(backend.start_attempt(), epoch=10, metric=0.95, joules=10_000.0, seconds=100.0)
    backend.advance(HOUR_SECONDS)
    pruned = backend.start_attempt()
    size = backend.recurrences[pruned].spec.batch_size
    assert backend.recurrences[pruned].spec.decision.kind == "Prune"
    backend.reconcile_after(HOUR_SECONDS)
    other = backend.running[-1]
    found = backend.recurrences[other]
    backend.recurrences[other] = found.model_copy(update={"spec": found.spec.model_copy(update={"batch_size": size})})
    backend.run_workload(other)
    backend.finish(other, epoch=50, metric=0.5, joules=90_000.0, seconds=900.0)
    again = disrupt(backend, pruned).spec
    assert REPEATS not in again.decision.reason
    assert again.batch_size != size


@pytest.mark.parametrize("failure", [Failure.CRASHED, Failure.DEADLINE])
def test_an_attempt_that_failed_otherwise_is_not_repeated(backend: ModelBackend, failure: Failure) -> None:
    trial = backend.run_until_trial()
    backend.report(trial, epoch=3, metric=0.4, joules=3000.0, seconds=30.0)
    backend.end_attempt(trial, failure, "it failed", exit_code=1)
    (again,) = backend.running
    assert backend.recurrences[again].spec.decision.seed != backend.recurrences[trial].spec.decision.seed


def test_an_attempt_that_never_started_is_decided_by_what_is_known_then(backend: ModelBackend) -> None:
    backend.run_until_trial()
    backend.reconcile()
    (trial,) = backend.running
    # Of an operator that was killed before it saw the start.
    found = backend.recurrences[trial]
    backend.recurrences[trial] = found.model_copy(
        update={"status": found.status.model_copy(update={"start_time": None})}
    )
    backend.workloads[trial] = type(backend.workloads[trial])(trial, phase=WorkloadPhase.PENDING)
    again = disrupt(backend, trial)
    assert REPEATS not in again.spec.decision.reason
    # Nothing has become known.
    assert decision_of(again) == decision_of(backend.recurrences[trial])


def test_a_long_reason_stays_within_its_bound(backend: ModelBackend) -> None:
    name = backend.start_attempt()
    found = backend.recurrences[name]
    decision = found.spec.decision.model_copy(update={"reason": "r" * MAX_REASON_CHARACTERS})
    backend.recurrences[name] = found.model_copy(update={"spec": found.spec.model_copy(update={"decision": decision})})
    reason = disrupt(backend, name).spec.decision.reason
    assert len(reason) == MAX_REASON_CHARACTERS
    assert reason.endswith("which was disrupted")


def train(backend: ModelBackend, name: str, epochs_until_disruption: int | None) -> None:
    """Run an attempt whose figures follow from its decision and its seed."""
    backend.run_workload(name)
    backend.reconcile()
    spec = backend.recurrences[name].spec
    draws = random.Random(spec.decision.seed)
    to_target, noise = EPOCHS[spec.batch_size] * draws.uniform(0.9, 1.1), draws.uniform(0.98, 1.02)
    watts = float(spec.power_limit_watts or min(LIMITS, key=LIMITS.__getitem__))
    epoch_joules = JOULES[spec.batch_size] * LIMITS[watts] * noise
    for epoch in range(1, EXHAUSTED_EPOCHS + 1):
        if epoch - 1 == epochs_until_disruption:
            disrupt(backend, name)
            return
        backend.report(
            name,
            sequence=epoch,
            epoch=epoch,
            metric=min(0.9 * (epoch / to_target) ** 0.5, 0.99),
            joules=epoch_joules * epoch,
            seconds=10.0 * epoch,
            profile=measured_limits(min(epoch, len(LIMITS))) if spec.profile_power_limits else (),
            power_limit_watts=watts,
        )
        if review(backend, name).is_ending:
            break
    backend.end_attempt(name)


def review(backend: ModelBackend, name: str) -> Progress:
    """Review the cost limit of an attempt, as the reporting API does; returns its progress."""
    attempt = backend.recurrences[name]
    progress = review_cost_limit(lambda: backend.snapshot(KEY), attempt, attempt.progress)
    progress = with_stop_request(attempt, progress)
    update = {"progress": progress}
    backend.recurrences[name] = attempt.model_copy(update=update)
    return progress


def results(spec: dict[str, Any], disruptions: list[int | None]) -> list[dict[str, Any]]:
    """What was decided for, and became of, the attempts of some recurrences that were not disrupted.

    Args:
        spec: The fields of the job's spec.
        disruptions: After how many epochs each attempt is disrupted; None, and for later ones: it is not.
    """
    fields = {"objective": OBJECTIVE, "maxRecurrences": RECURRENCES, "retries": 20, **spec}
    backend = ModelBackend(job(**fields))
    planned = iter(disruptions)
    while True:
        backend.reconcile()
        if not backend.running:
            if len(backend.recurrences) and backend.job.status.totals.recurrences >= RECURRENCES:
                break
            backend.advance(HOUR_SECONDS)
            continue
        train(backend, backend.running[0], next(planned, None))
    ended = sorted(backend.recurrences.values(), key=lambda each: each.order)
    rows = []
    for each in ended:
        if each.status.result is not Result.DISRUPTED:
            record = backend.records[each.order]
            row = decision_of(each)
            # Which number an earlier attempt had is a part of the digest. When the attempts ran is no result.
            del row["decision"]["digest"], row["slot"], row["scheduledTime"]
            figures = {"result": record.result, "epochs": record.epochs, "joules": record.energy_joules}
            rows.append({**row, **figures})
    return rows


MANY = {"successfulRunsHistoryLimit": 100, "failedRunsHistoryLimit": 100}
SPECS: list[dict[str, Any]] = [
    {},
    {"batchSize": {"policy": "Zeus"}},
    {"mode": "Fixed"},
    {"objective": {**OBJECTIVE, "target": {**OBJECTIVE["target"], "tolerance": "0.05"}}},
    {"mode": "Advise"},
]


@functools.cache
def undisturbed(policy: int) -> list[dict[str, Any]]:
    return results({**MANY, **SPECS[policy]}, [])


@settings(max_examples=settings().max_examples // 4, deadline=None)
@given(
    policy=st.integers(0, len(SPECS) - 1),
    disruptions=st.lists(st.one_of(st.none(), st.integers(0, 8)), min_size=1, max_size=12),
)
def test_a_run_with_disruptions_has_the_results_of_one_without(policy: int, disruptions: list[int | None]) -> None:
    assert results({**MANY, **SPECS[policy]}, disruptions) == undisturbed(policy)
