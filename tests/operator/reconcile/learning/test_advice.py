"""Mode Advise: every attempt has the default configuration, and the status shows what the policy would do."""

from typing import Any

import pytest

from support.backends.model_backend import KEY, ModelBackend, backend_with
from support.backends.sample_reports import report
from wattloop.wire.training_messages import LimitMeasurement
from wattloop_operator.api.recurring_training_job_status import BestConfiguration, NextRecurrence
from wattloop_operator.domain.quantities import saving_text
from wattloop_operator.domain.snapshot import Failure
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.reconcile.attempt.early_stop import review_cost_limit, with_stop_request
from wattloop_operator.reconcile.attempt.report_effect import progress_after
from wattloop_operator.reconcile.learning.advice import advice_text, next_saving
from wattloop_operator.reconcile.learning.costs import default_cost
from wattloop_operator.reconcile.learning.decision import decision_context
from wattloop_operator.workloads.injection import RunAddresses, run_environment

JOB: dict[str, Any] = {
    "objective": {"target": {"metric": "accuracy", "threshold": "0.9"}, "maxEpochs": 50, "energyWeightPercent": 100},
    "batchSize": {"default": 64, "candidates": [32, 64]},
    "retries": 0,
    "successfulRunsHistoryLimit": 1000,
}
ADVISE: dict[str, Any] = {**JOB, "mode": "Advise"}
NO_LIMITS: dict[str, Any] = {"power": {"mode": "None"}}
EPOCHS = 10
# Joules of an epoch without a limit. 200 W takes 70 % of the energy.
EPOCH_JOULES = {64: 1000.0, 32: 600.0}
SAVED_BY_LIMIT = 0.7
PROFILES = {
    size: (LimitMeasurement(400, joules, 10.0, 1.0), LimitMeasurement(200, SAVED_BY_LIMIT * joules, 11.0, 1.0))
    for size, joules in EPOCH_JOULES.items()
}


def run_once(backend: ModelBackend) -> TrainingAttempt:
    """One recurrence that reaches its target; it measures and holds power limits if its decision says so."""
    backend.reconcile()
    (name,) = backend.running
    spec = backend.recurrences[name].spec
    limited = spec.power_limit_watts is not None or spec.profile_power_limits
    joules = EPOCHS * EPOCH_JOULES[spec.batch_size] * (SAVED_BY_LIMIT if limited else 1.0)
    backend.run_workload(name)
    profile = PROFILES[spec.batch_size] if spec.profile_power_limits else ()
    backend.finish(name, epoch=EPOCHS, metric=0.95, joules=joules, seconds=joules / 100, profile=profile)
    backend.advance(3600)
    return backend.recurrences[name]


def advice(backend: ModelBackend) -> NextRecurrence:
    found = backend.job.status.next
    assert found.kind == "Advise"
    return found


def after_optimizing(**changes: Any) -> ModelBackend:
    """A job in mode Advise that ran both batch sizes in mode Optimize before."""
    backend = backend_with(**{**JOB, **changes})
    assert {run_once(backend).spec.batch_size for _ in range(8)} == {32, 64}
    backend.change_spec(mode="Advise")
    return backend


def test_every_attempt_has_the_default_configuration() -> None:
    backend = backend_with(**ADVISE)
    for _ in range(6):
        recurrence = run_once(backend)
        spec = recurrence.spec
        assert (spec.batch_size, spec.power_limit_watts, spec.profile_power_limits) == (64, None, False)
        assert (spec.stop_cost_joules, spec.decision.kind) == (None, "Advise")
        environment = run_environment(backend.job, recurrence, RunAddresses(), 1)
        assert (environment.power_limit_watts, environment.profile_power_limits) == (None, False)


def test_the_advice_is_the_decision_of_the_policy_for_the_next_recurrence() -> None:
    backend = backend_with(**ADVISE)
    run_once(backend)
    assert advice(backend).batch_size == 32
    assert "batch size 32 may be cheaper than 64" in advice(backend).reason
    recurrence = run_once(backend)
    assert recurrence.spec.decision.reason.startswith("mode Advise runs the default configuration; advised is")
    assert "batch size 32 may be cheaper than 64" in recurrence.spec.decision.reason
    backend.edit(mode="Optimize")
    assert backend.job.status.next.kind != "Advise"
    (running,) = backend.running
    assert backend.recurrences[running].spec.batch_size == 32


def saving(backend: ModelBackend) -> tuple[float, float, float]:
    """Lower bound, value and upper bound of the expected saving."""
    found = advice(backend)
    return float(found.low_saving_percent), float(found.saving_percent), float(found.high_saving_percent)


def test_a_saving_that_was_never_measured_is_expected_from_the_model_by_the_second_run() -> None:
    backend = backend_with(**ADVISE)
    run_once(backend)
    low, value, high = saving(backend)
    # Half the batch size costs 40 % less, and a limit is expected to save a tenth of the rest.
    assert low < 46 < high
    assert low < value < high
    assert advice(backend).power_limit_watts is None
    assert "batch size 32, whose cost is expected from the model" in advice(backend).unknown
    assert "the effect of a power limit, which is expected from measured trainings" in advice(backend).unknown
    assert run_once(backend).spec.decision.reason.startswith("mode Advise runs the default configuration; advised is")
    assert backend.savings["Cost"].value is None


@pytest.mark.parametrize("policy", ["Zeus", "ThompsonSampling"])
def test_the_advice_of_every_policy_has_an_expected_saving(policy: str) -> None:
    backend = backend_with(**{**ADVISE, "batchSize": {**JOB["batchSize"], "policy": policy}})
    run_once(backend)
    low, value, high = saving(backend)
    assert low <= value <= high


def test_a_saving_that_was_measured_in_mode_optimize_is_stated_with_its_interval() -> None:
    backend = after_optimizing()
    for _ in range(5):
        assert run_once(backend).spec.batch_size == 64
    found = advice(backend)
    assert (found.batch_size, found.power_limit_watts, found.unknown) == (32, 200, "")
    low, value, high = saving(backend)
    # 32 costs 60 % of 64, and the limit takes 70 % of the energy.
    assert value == pytest.approx(58, abs=2)
    assert low < 58 < high


def test_without_limits_measured_their_effect_is_expected_from_other_trainings() -> None:
    backend = after_optimizing(**NO_LIMITS)
    backend.change_spec(power={"mode": "Auto"})
    run_once(backend)
    found = advice(backend)
    assert (found.batch_size, found.power_limit_watts) == (32, None)
    low, value, high = saving(backend)
    # The batch size alone saves 40 %.
    assert low < 40 < value < high
    assert found.unknown.startswith("the effect of a power limit")


@pytest.mark.parametrize(
    ("power", "profiled", "holds", "unknown"),
    [
        ({"mode": "Auto"}, True, 30, ""),
        ({"mode": "Auto"}, False, 10, "the effect of a power limit, which is expected from measured"),
        ({"mode": "Fixed", "watts": 250}, False, 0, "the effect of the power limit of 250 W"),
    ],
)
def test_with_the_default_batch_size_only_a_power_limit_saves(
    power: dict[str, Any], profiled: bool, holds: float, unknown: str
) -> None:
    only_default = {"batchSize": {"default": 64, "candidates": [64]}, "power": power}
    backend = backend_with(**{**JOB, **only_default, "mode": "Optimize" if profiled else "Advise"})
    run_once(backend)
    backend.change_spec(mode="Advise")
    run_once(backend)
    found = advice(backend)
    low, value, high = saving(backend)
    assert found.batch_size == 64
    assert low <= holds <= high
    assert low <= value <= high
    assert found.unknown.startswith(unknown)
    assert bool(found.unknown) == bool(unknown)


def test_an_advice_of_the_default_claims_no_saving_and_says_what_would_make_one_known() -> None:
    only_default = {"batchSize": {"default": 64, "candidates": [64]}, **NO_LIMITS}
    backend = backend_with(**{**ADVISE, **only_default})
    for _ in range(4):
        run_once(backend)
        found = advice(backend)
        assert (found.saving_percent, found.low_saving_percent, found.high_saving_percent) == (None, None, None)
        assert found.unknown.startswith("what another batch size costs: none has run")
        assert "expected saving not known yet" in advice_text(found)


def test_the_default_costs_the_same_in_the_arms_the_savings_and_the_advice() -> None:
    backend = backend_with(**{**JOB, **NO_LIMITS})
    for _ in range(6):
        run_once(backend)
    status = backend.job.status
    (arm,) = (each for each in status.arms if each.batch_size == 64)
    default = backend.savings["DefaultCost"]
    assert (arm.low_cost_joules, arm.mean_cost_joules) == (default.low, default.value)
    assert arm.high_cost_joules == default.high
    assert float(arm.low_cost_joules or 0) < 10_000 < float(arm.high_cost_joules or 0)


def advice_check(backend: ModelBackend) -> tuple[str, str]:
    (found,) = (each for each in backend.job.status.conditions if each.type == "AdviceChecked")
    return found.reason, found.message


def test_the_expected_saving_is_shown_beside_the_measured_one() -> None:
    backend = backend_with(**ADVISE)
    for _ in range(2):
        run_once(backend)
    expected = f"Mode Advise expected batch size 32 to cost {saving_text(next_saving(advice(backend)))}; measured:"
    backend.edit(mode="Optimize")
    assert advice_check(backend) == ("NotMeasured", f"{expected} not known yet.")
    for _ in range(5):
        run_once(backend)
    reason, message = advice_check(backend)
    assert reason == "Measured"
    assert message.startswith(f"{expected} 58 % less")
    # What is advised later, and the limits that were measured since, do not change what was expected.
    backend.edit(mode="Advise")
    assert all(each.type != "AdviceChecked" for each in backend.job.status.conditions)


def test_switching_the_mode_back_and_forth_keeps_what_was_learned() -> None:
    backend = after_optimizing()
    for mode in ("Advise", "Optimize", "Advise"):
        backend.change_spec(mode=mode)
        for _ in range(3):
            run_once(backend)
    costs = {arm.batch_size: float(arm.mean_cost_joules or 0) for arm in backend.job.status.arms}
    assert backend.job.status.best == BestConfiguration(batch_size=32)
    # Attempts without a power limit do not look like more expensive epochs.
    assert costs == {
        size: pytest.approx(EPOCHS * joules * SAVED_BY_LIMIT, rel=0.03) for size, joules in EPOCH_JOULES.items()
    }


def test_the_default_configuration_costs_what_attempts_in_mode_advise_cost() -> None:
    backend = backend_with(**{**JOB, "power": {"mode": "Fixed", "watts": 200}})
    run_once(backend)
    snapshot = backend.state
    expected = default_cost(snapshot)
    assert expected.of_run.value == pytest.approx(7_000)
    backend.change_spec(mode="Advise")
    run_once(backend)
    snapshot = backend.state
    expected = default_cost(snapshot)
    assert expected.of_run.value == pytest.approx(10_000)


def test_an_attempt_in_mode_advise_is_never_stopped_for_its_cost() -> None:
    backend = after_optimizing()
    backend.reconcile()
    (name,) = backend.running
    backend.run_workload(name)
    recurrence = backend.recurrences[name]
    progress = progress_after(recurrence, report(epoch=2, metric=0.2, joules=1e9, seconds=1e6))
    reviewed = review_cost_limit(lambda: backend.snapshot(KEY), recurrence, progress)
    assert reviewed is progress
    assert not with_stop_request(recurrence, reviewed).stop_requested


def test_what_runs_does_not_change_the_advice() -> None:
    backend = after_optimizing()
    run_once(backend)
    before = advice(backend)
    backend.reconcile()
    assert backend.running
    assert advice(backend).model_copy(update={"time": before.time}) == before
    assert decision_context(backend.state, 99, 0).running == ()


def test_a_policy_that_has_no_choice_left_does_not_keep_the_default_from_running() -> None:
    backend = backend_with(**{**ADVISE, "batchSize": {**JOB["batchSize"], "policy": "Zeus"}})
    backend.run_once(epoch=50, metric=0.5)
    assert run_once(backend).spec.decision.reason.startswith("mode Advise runs the default configuration; advised is")


def test_a_default_that_crashes_too_often_stops_the_job() -> None:
    backend = backend_with(**ADVISE)
    for _ in range(3):
        backend.reconcile()
        (name,) = backend.running
        backend.run_workload(name)
        backend.end_attempt(name, Failure.CRASHED, "exit code 1")
        backend.reconcile_after(3600)
    ready = next(each for each in backend.job.status.conditions if each.type == "Ready")
    assert ready.reason == "NoArmLeft"
    assert "the default batch size 64 crashed 3 times in a row" in ready.message
    assert "mode Advise" in ready.message
