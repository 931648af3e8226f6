"""Trials of probes are on the bill of an attempt, and no policy learns from them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from support.backends.model_backend import START, ModelBackend, job, report
from wattloop.wire.training_messages import MAX_PROBE_BATCH_SIZE, ProbeChoice, ProbeReport
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.reconcile.attempt.attempt_conditions import probe_conditions
from wattloop_operator.reconcile.attempt.early_stop import with_stop_request
from wattloop_operator.reconcile.attempt.report_effect import progress_after
from wattloop_operator.reconcile.learning.costs import attempt_cost_joules
from wattloop_operator.reconcile.learning.job_observations import observation_of

Backend = Callable[..., ModelBackend]
JOB: dict[str, Any] = {"power": {"mode": "None"}}
EPOCH_JOULES, EPOCH_SECONDS = 1000.0, 10.0
TRIALS = ProbeReport(4, 500.0, 5.0, (ProbeChoice(0.5, 64, ("learning_rate=0.1",), 300.0, 4, 8),), "maxTrials")


@pytest.fixture
def backend(backend_with: Backend) -> ModelBackend:
    return backend_with(**JOB)


def run(backend: ModelBackend, probes: ProbeReport | None) -> str:
    """An attempt of ten equal epochs that probes after the third one, beside the epochs."""
    name = backend.start_attempt()
    for epoch in range(1, 11):
        used = probes if epoch > 3 else None
        joules, seconds = (0.0, 0.0) if used is None else (used.energy_joules, used.time_seconds)
        received = report(
            sequence=epoch,
            epoch=epoch,
            metric=0.09 * epoch + 0.05,
            joules=epoch * EPOCH_JOULES + joules,
            seconds=epoch * EPOCH_SECONDS + seconds,
            finished=epoch == 10,
        )
        recurrence = backend.recurrences[name]
        progress = progress_after(recurrence, replace(received, probes=used))
        backend.recurrences[name] = backend._versioned(recurrence.model_copy(update={"progress": progress}))
    backend.end_workload(name)
    backend.reconcile()
    return name


def test_the_bill_has_the_trials_and_the_observation_has_not(backend: ModelBackend) -> None:
    name = run(backend, TRIALS)
    status = backend.recurrences[name].status
    assert status.usage is not None
    assert (status.usage.gpu_energy_joules, status.usage.duration_seconds) == (10_500, 105)
    (record,) = backend.records.values()
    assert (record.energy_joules, record.time_seconds) == (10_500.0, 105.0)
    assert (record.probe_trials, record.probe_energy_joules, record.probe_time_seconds) == (4, 500.0, 5.0)
    assert attempt_cost_joules(record, 0.5) == 0.5 * 10_500 + 0.5 * 400 * 105
    observation = observation_of(record, False)
    assert observation is not None
    assert (observation.energy_joules, observation.time_seconds) == (10_000.0, 100.0)
    assert (record.epoch_energy_joules, record.epoch_time_seconds) == pytest.approx((EPOCH_JOULES, EPOCH_SECONDS))


def test_with_and_without_trials_the_same_is_learned(backend_with: Backend) -> None:
    learned = []
    for probes in (TRIALS, None):
        backend = backend_with(**JOB)
        run(backend, probes)
        (record,) = backend.records.values()
        learned.append(observation_of(record, False))
    assert learned[0] == learned[1]


def test_the_status_shows_trials_and_what_was_chosen(backend: ModelBackend) -> None:
    probes = backend.recurrences[run(backend, TRIALS)].progress.probes
    assert probes is not None
    assert (probes.trials, probes.energy_joules, probes.time_seconds) == (4, 500, 5)
    assert probes.to_wire()["choices"] == [
        {
            "threshold": "0.5",
            "batchSize": 64,
            "parameters": ["learning_rate=0.1"],
            "powerLimitWatts": 300,
            "trials": 4,
            "combinations": 8,
        }
    ]
    assert probes.problem == "maxTrials"


@pytest.fixture
def attempt() -> TrainingAttempt:
    backend = ModelBackend(job(**JOB))
    return backend.recurrences[backend.start_attempt()]


def after(attempt: TrainingAttempt, sequence: int, epoch: int, probes: ProbeReport | None) -> TrainingAttempt:
    received = report(
        sequence=sequence, epoch=epoch, metric=0.1 * epoch, joules=1000.0 * sequence, seconds=10 * sequence
    )
    progress = progress_after(attempt, replace(received, probes=probes, evaluations=epoch))
    return attempt.model_copy(update={"progress": progress})


def test_trials_of_a_process_that_was_killed_count_beside_those_of_its_successor(attempt: TrainingAttempt) -> None:
    attempt = after(attempt, 1, 3, ProbeReport(2, 100.0, 1.0))
    # The next process of the attempt counts from 0 and begins its probe again.
    attempt = after(attempt, 2, 1, None)
    attempt = after(attempt, 3, 2, ProbeReport(3, 200.0, 2.0, TRIALS.choices))
    attempt = after(attempt, 4, 3, ProbeReport(4, 250.0, 2.5, TRIALS.choices))
    probes = attempt.progress.probes
    assert probes is not None
    assert (probes.trials, probes.energy_joules, probes.time_seconds) == (6, 350, 3.5)
    assert [choice.threshold for choice in probes.choices] == [0.5]


def test_the_largest_batch_size_that_a_training_may_report_is_in_the_status(attempt: TrainingAttempt) -> None:
    choices = (replace(TRIALS.choices[0], batch_size=MAX_PROBE_BATCH_SIZE),)
    probes = after(attempt, 1, 3, ProbeReport(2, 100.0, 1.0, choices)).progress.probes
    assert probes is not None
    assert [choice.batch_size for choice in probes.choices] == [MAX_PROBE_BATCH_SIZE]


def test_an_attempt_is_not_stopped_for_the_cost_of_its_trials(attempt: TrainingAttempt) -> None:
    spec = attempt.spec.model_copy(update={"stop_cost_joules": 9000})
    attempt = attempt.model_copy(update={"spec": spec})
    # 4 kJ and 40 s cost 10 kJ, of which trials are a half.
    half = after(attempt, 4, 3, ProbeReport(2, 2000.0, 20.0))
    assert not with_stop_request(half, half.progress).stop_requested
    without = after(attempt, 4, 3, None)
    assert with_stop_request(without, without.progress).stop_requested


def test_more_trials_than_the_attempt_used_leave_nothing_to_learn(backend: ModelBackend) -> None:
    name = backend.start_attempt()
    recurrence = after(backend.recurrences[name], 4, 3, ProbeReport(2, 1e9, 1e9))
    backend.recurrences[name] = backend._versioned(recurrence)
    backend.end_workload(name)
    backend.reconcile()
    (record,) = backend.records.values()
    assert observation_of(record, False) is None


@pytest.mark.parametrize("problem", ["", "2 trials were left out"])
def test_a_condition_says_what_the_probes_chose_and_what_limited_them(attempt: TrainingAttempt, problem: str) -> None:
    assert probe_conditions(attempt, START) == ()
    (found,) = probe_conditions(after(attempt, 1, 3, replace(TRIALS, problem=problem)), START)
    assert (found.type, found.status.value) == ("Probed", "False" if problem else "True")
    assert found.message.startswith(f"{TRIALS.trials} trials used ")
    assert "; from 0.5 batch size " in found.message
    assert found.message.endswith(problem)
