"""Further parameters are chosen with the batch size, and follow an attempt into records, status and costs."""

from dataclasses import replace
from typing import Any

import pytest

from support.backends.model_backend import ModelBackend, backend_with, job
from support.databases.sample_record import RECORD
from wattloop_operator.api.recurring_training_job_status import BestConfiguration
from wattloop_operator.history.job_history import JobHistory
from wattloop_operator.history.rows import rows_of
from wattloop_operator.reconcile.learning.costs import default_cost
from wattloop_operator.reconcile.learning.decision import decision_context

RATE: dict[str, Any] = {"name": "learning_rate", "default": "0.1", "candidates": ["0.1", "0.4", "1.6"]}
JOB: dict[str, Any] = {"parameters": [RATE], "retries": 0, "power": {"mode": "None"}, "maxRecurrences": 100}
BEST = (32, "0.4")


def epochs_of(size: int, rate: str) -> int:
    return 5 if (size, rate) == BEST else 8 if BEST[0] == size or BEST[1] == rate else 12


def run_recurrence(backend: ModelBackend) -> tuple[int, str]:
    """Run one recurrence that reaches the target, and return its configuration."""
    backend.reconcile()
    name = backend.running[0]
    spec = backend.recurrences[name].spec
    chosen = spec.batch_size, spec.parameters["learning_rate"]
    epochs = epochs_of(*chosen)
    backend.run_workload(name)
    backend.finish(name, epoch=epochs, metric=0.95, joules=1000.0 * epochs, seconds=10.0 * epochs)
    backend.advance(3600)
    return chosen


def test_the_defaults_run_first_and_the_best_configuration_is_found() -> None:
    backend = backend_with(**JOB)
    runs = [run_recurrence(backend) for _ in range(20)]
    assert runs[0] == (64, "0.1")
    assert runs[-1] == BEST
    status = backend.job.status
    assert status.best == BestConfiguration(batch_size=BEST[0], parameters={"learning_rate": BEST[1]})


def test_the_status_lists_arms_with_their_parameters_and_recurrences() -> None:
    backend = backend_with(**JOB)
    runs = [run_recurrence(backend) for _ in range(3)]
    status = backend.job.status
    ended = [each for each in status.recent_recurrences if each.result is not None]
    assert [each.batch_size for each in ended] == [size for size, _ in runs[::-1]]
    assert len({(arm.batch_size, arm.parameters["learning_rate"]) for arm in status.arms}) == 4 * 3


def test_the_status_of_many_configurations_has_those_that_ran_and_is_bounded() -> None:
    long = [f"{'x' * 250}{index}" for index in range(16)]
    parameters = [RATE, {"name": "recipe", "default": long[0], "candidates": long}]
    backend = backend_with(**{**JOB, "parameters": parameters})
    runs = [run_recurrence(backend) for _ in range(5)]
    arms = backend.job.status.arms
    assert len(arms) == 64
    assert set(runs) <= {(arm.batch_size, arm.parameters["learning_rate"]) for arm in arms}
    assert len(backend.job.model_dump_json()) < 128 * 1024


def test_records_keep_the_parameters_when_the_objects_are_gone() -> None:
    backend = backend_with(**JOB)
    runs = [run_recurrence(backend) for _ in range(3)]
    snapshot = backend.state
    from_records = decision_context(replace(snapshot, recurrences=()), 3, 0)
    assert from_records.observations == decision_context(replace(snapshot, records=()), 3, 0).observations
    assert [dict(each.parameters)["learning_rate"] for each in from_records.observations] == [rate for _, rate in runs]


def test_a_running_configuration_is_known_to_the_policy() -> None:
    backend = backend_with(**JOB)
    run_recurrence(backend)
    backend.reconcile()
    spec = backend.recurrences[backend.running[0]].spec
    running = decision_context(backend.state, 9, 0).running
    assert [(each.batch_size, dict(each.parameters)) for each in running] == [(spec.batch_size, spec.parameters)]


def test_savings_are_relative_to_the_default_of_every_parameter() -> None:
    backend = backend_with(**{**JOB, "batchSize": {"default": 64, "candidates": [64]}})
    runs = [run_recurrence(backend) for _ in range(12)]
    assert "0.4" in {rate for _, rate in runs}
    snapshot = backend.state
    # 12 epochs of 1,000 J and 10 s at a maximum of 400 W.
    assert default_cost(snapshot).of_run.value == pytest.approx(12 * (0.5 * 1000 + 0.5 * 400 * 10), rel=1e-6)


def test_attempts_before_a_parameter_was_added_had_its_default() -> None:
    backend = backend_with(**{**JOB, "parameters": [{**RATE, "candidates": ["0.1"]}]})
    run_recurrence(backend)
    backend.change_spec(parameters=[RATE, {"name": "dropout", "default": "0.2", "candidates": ["0.2", "0.3"]}])
    context = decision_context(backend.state, 1, 0)
    assert [context.arm_of(each) for each in context.observations] == [context.space.default]


def test_the_history_has_a_column_for_each_parameter() -> None:
    first = replace(RECORD, parameters=(("dropout", "0.1"), ("learning_rate", "1e-3")))
    records = (first, replace(RECORD, recurrence=1, parameters=(("learning_rate", "1e-2"),)))
    history = JobHistory("team", "digits", 0.5, 32, records)
    assert [row.parameters for row in rows_of(history)] == [
        {"dropout": "0.1", "learning_rate": "1e-3"},
        {"learning_rate": "1e-2"},
    ]


def test_a_job_with_parameters_is_supported() -> None:
    backend = ModelBackend(job(**JOB))
    backend.reconcile()
    assert backend.running
