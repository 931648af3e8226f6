"""The metric guard of a job: verdicts, comparison runs, condition, event, and what starts it again."""

from itertools import pairwise
from typing import Any

import pytest

from support.backends.model_backend import ModelBackend, backend_with
from wattloop_operator.api.meta import Condition
from wattloop_operator.api.recurring_training_job_status import BestConfiguration
from wattloop_operator.domain.snapshot import Failure
from wattloop_operator.reconcile.learning.guarded_job import guard_of
from wattloop_planner.bandit.feasible_arms import CRASH_BUDGET

UNGUARDED = {"metric": "accuracy", "threshold": "0.9"}
TARGET = {**UNGUARDED, "tolerance": "0.01"}
OBJECTIVE: dict[str, Any] = {"target": TARGET, "maxEpochs": 50}
JOB: dict[str, Any] = {
    "objective": OBJECTIVE,
    "batchSize": {"default": 64, "candidates": [32, 64]},
    "power": {"mode": "None"},
    "retries": 0,
    "successfulRunsHistoryLimit": 1000,
}
CORRECTED = {"spec": {"template": {"spec": {"containers": [{"name": "train", "image": "digits:corrected"}]}}}}
# The final metric of each batch size; the smaller one is cheaper and worse.
FINALS = {64: 0.95, 32: 0.92}


def run_once(
    backend: ModelBackend, finals: dict[int, float], *, sign: float = 1.0, spread: float = 0.001
) -> tuple[int, str]:
    """One recurrence that reaches its target and then reports its final metric; its batch size and kind."""
    backend.reconcile()
    (name,) = backend.running
    spec = backend.recurrences[name].spec
    backend.run_workload(name)
    joules = {64: 10_000.0, 32: 5_000.0, 16: 4_000.0}[spec.batch_size]
    backend.report(name, epoch=10, metric=sign * 0.96, joules=joules, seconds=joules / 100)
    wobble = spread * (spec.index % 3)
    backend.report(
        name,
        sequence=2,
        epoch=10,
        metric=sign * (finals[spec.batch_size] + wobble),
        joules=joules,
        seconds=joules / 100,
        finished=True,
    )
    backend.end_attempt(name)
    backend.advance(3600)
    return spec.batch_size, spec.decision.kind.value


def condition_of(backend: ModelBackend) -> Condition:
    return next(each for each in backend.job.status.conditions if each.type == "MetricKept")


def excluded(backend: ModelBackend) -> tuple[int, ...]:
    """The excluded batch sizes, which must not change if the store or the objects are lost."""
    return backend.read_from_either_memory(lambda context: tuple(each.batch_size for each in context.excluded))


@pytest.fixture
def guarded() -> ModelBackend:
    """A job whose cheaper batch size has been excluded."""
    backend = backend_with(**JOB)
    for _ in range(12):
        run_once(backend, FINALS)
    assert excluded(backend) == (32,)
    return backend


def test_a_cheaper_batch_size_with_a_worse_final_metric_is_no_longer_chosen() -> None:
    backend = backend_with(**JOB)
    sizes = [run_once(backend, FINALS)[0] for _ in range(16)]
    assert 3 <= sizes.count(32) <= 8
    assert set(sizes[-5:]) == {64}
    short = condition_of(backend)
    assert (short.status, short.reason) == ("False", "FallsShort")
    assert "batch size 32 ends at accuracy 0.92" in short.message
    assert "worse by more than 0.01 than 0.95" in short.message
    assert [each.reason for each in backend.events].count("MetricFallsShort") == 1
    (arm,) = [each for each in backend.job.status.arms if each.batch_size == 32]
    assert arm.pruned
    assert arm.note.startswith("batch size 32 ends at accuracy 0.92")
    assert backend.job.status.best == BestConfiguration(batch_size=64)


def test_an_event_names_only_the_batch_sizes_that_fell_short_since_the_last_one() -> None:
    backend = backend_with(**{**JOB, "batchSize": {"default": 64, "candidates": [16, 32, 64]}})
    for _ in range(40):
        run_once(backend, {**FINALS, 16: 0.93})
    assert excluded(backend) == (16, 32)
    events = [each.message for each in backend.events if each.reason == "MetricFallsShort"]
    assert sorted(size for size in (16, 32) for text in events if f"batch size {size} ends" in text) == [16, 32]
    assert all(each in condition_of(backend).message for each in ("batch size 16 ends", "batch size 32 ends"))


def test_without_a_guard_the_cheaper_batch_size_is_chosen() -> None:
    backend = backend_with(**{**JOB, "objective": {**OBJECTIVE, "target": UNGUARDED}})
    assert {run_once(backend, FINALS)[0] for _ in range(16)} == {32, 64}
    assert backend.job.status.best == BestConfiguration(batch_size=32)
    assert all(each.type != "MetricKept" for each in backend.job.status.conditions)


def test_a_final_metric_within_the_margin_excludes_nothing() -> None:
    backend = backend_with(**JOB)
    kinds = [run_once(backend, {64: 0.95, 32: 0.945})[1] for _ in range(16)]
    assert backend.job.status.best == BestConfiguration(batch_size=32)
    kept = condition_of(backend)
    assert (kept.status, kept.reason) == ("True", "Compared")
    assert "batch sizes 32 do not fall short of the default batch size 64" in kept.message
    assert kinds.count("Comparison") <= 2


def test_a_loss_is_guarded_like_an_accuracy() -> None:
    target = {"metric": "loss", "threshold": "-0.9", "direction": "Minimize", "tolerance": "0.01"}
    backend = backend_with(**{**JOB, "objective": {**OBJECTIVE, "target": target}})
    for _ in range(12):
        run_once(backend, FINALS, sign=-1.0)
    assert excluded(backend) == (32,)
    assert "ends at loss -0.92" in condition_of(backend).message


def test_the_default_is_run_again_for_the_comparison_in_at_most_one_recurrence_in_four() -> None:
    backend = backend_with(**JOB)
    runs = [run_once(backend, {64: 0.95, 32: 0.945}) for _ in range(16)]
    compared = [index for index, (_, kind) in enumerate(runs) if kind == "Comparison"]
    assert len(compared) == 1
    before = [size for size, _ in runs[: compared[0]]]
    assert before.count(32) >= 3 * (before.count(64) + 1)
    name = next(each for each in backend.recurrences.values() if each.spec.index == compared[0])
    assert (name.spec.batch_size, name.spec.stop_cost_joules) == (64, None)
    assert "objective.target.tolerance compares its final metric" in name.spec.decision.reason


def test_a_suspected_batch_size_is_compared_until_there_are_ten_final_metrics() -> None:
    """The mean is worse by more than the margin, but so is the spread."""
    backend = backend_with(**JOB)
    runs = [run_once(backend, {64: 0.95, 32: 0.925}, spread=0.02) for _ in range(50)]
    compared = [index for index, (_, kind) in enumerate(runs) if kind == "Comparison"]
    assert len(compared) == 9
    assert all(later - earlier >= 4 for earlier, later in pairwise(compared))
    kept = condition_of(backend)
    assert (kept.status, kept.reason) == ("True", "Compared")


def test_the_guard_states_what_it_waits_for() -> None:
    backend = backend_with(**{**JOB, "mode": "Fixed"})
    backend.reconcile()
    first = condition_of(backend)
    assert (first.status, first.reason) == ("Unknown", "WaitsForDefault")
    assert "the default batch size 64 has 0 of 2 final metrics" in first.message
    for _ in range(2):
        run_once(backend, FINALS)
    others = condition_of(backend)
    assert (others.status, others.reason) == ("Unknown", "WaitsForOthers")


@pytest.mark.parametrize(
    "change",
    [
        {"objective": {**OBJECTIVE, "target": {**TARGET, "threshold": "0.91"}}},
        {"template": CORRECTED},
        {"learnSince": "now"},
        {"objective": {**OBJECTIVE, "target": {**TARGET, "tolerance": "0.1"}}},
        {"objective": {**OBJECTIVE, "target": UNGUARDED}},
    ],
    ids=["target", "template", "learnSince", "larger tolerance", "no tolerance"],
)
def test_a_change_of_target_template_or_guard_and_forgetting_free_a_batch_size(
    guarded: ModelBackend, change: dict[str, Any]
) -> None:
    guarded.edit(**change)
    assert excluded(guarded) == ()


def test_other_changes_free_no_batch_size(guarded: ModelBackend) -> None:
    message = condition_of(guarded).message
    guarded.change_spec(retries=5, maxRecurrences=100)
    for _ in range(5):
        assert run_once(guarded, FINALS)[0] == 64
    assert condition_of(guarded).message == message
    assert [each.reason for each in guarded.events].count("MetricFallsShort") == 1


def test_a_worse_final_metric_after_a_change_of_template_is_another_event(guarded: ModelBackend) -> None:
    guarded.change_spec(template=CORRECTED)
    for _ in range(12):
        run_once(guarded, {64: 0.95, 32: 0.93})
    assert excluded(guarded) == (32,)
    assert [each.reason for each in guarded.events].count("MetricFallsShort") == 2


def test_attempts_that_miss_the_target_have_no_final_metric() -> None:
    backend = backend_with(**{**JOB, "mode": "Fixed"})
    backend.reconcile()
    name = backend.running[0]
    backend.run_workload(name)
    backend.finish(name, epoch=50, metric=0.5)
    assert guard_of(backend.state).default_runs == 0


def test_a_default_that_crashes_does_not_block_the_job() -> None:
    """A comparison is due, but the default exceeds its crash budget: the policy decides instead."""
    backend = backend_with(**JOB)
    for _ in range(CRASH_BUDGET):
        backend.reconcile()
        name = backend.running[0]
        backend.run_workload(name)
        backend.end_attempt(name, Failure.CRASHED, "exit code 1")
        backend.advance(3600)
    assert {run_once(backend, FINALS) for _ in range(10)} <= {(32, kind) for kind in ("Trial", "Incumbent", "Default")}
    assert condition_of(backend).reason == "WaitsForDefault"
