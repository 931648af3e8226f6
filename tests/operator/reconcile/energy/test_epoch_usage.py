"""The cost of an epoch without the start of the training, and the start itself."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.backends.model_backend import ModelBackend, backend_with, job
from support.backends.sample_reports import START, report
from wattloop.wire.training_messages import MAX_PROBE_BATCH_SIZE, LimitMeasurement, ProbeChoice, ProbeReport
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.reconcile.attempt.attempt_conditions import probe_conditions
from wattloop_operator.reconcile.attempt.early_stop import with_stop_request
from wattloop_operator.reconcile.attempt.report_effect import progress_after
from wattloop_operator.reconcile.energy.attempt_usage import usage_of
from wattloop_operator.reconcile.energy.epoch_usage import EpochUsage, epoch_usage
from wattloop_operator.reconcile.learning.costs import attempt_cost_joules
from wattloop_operator.reconcile.learning.job_observations import observation_of
from wattloop_planner.observations import StartUp

NO_LIMIT = {"power": {"mode": "None"}}


@pytest.fixture(scope="module")
def attempt() -> TrainingAttempt:
    """A running attempt that measures no power limits."""
    backend = ModelBackend(job(**NO_LIMIT))
    return backend.recurrences[backend.start_attempt()]


def after(attempt: TrainingAttempt, *reports: tuple[float, float, float]) -> TrainingAttempt:
    """The attempt after reports of (epochs, joules, seconds)."""
    for sequence, (epoch, joules, seconds) in enumerate(reports, 1):
        progress = progress_after(attempt, report(sequence=sequence, epoch=epoch, joules=joules, seconds=seconds))
        attempt = attempt.model_copy(update={"progress": progress})
    return attempt


def usage(attempt: TrainingAttempt) -> EpochUsage:
    progress = attempt.progress
    return epoch_usage(attempt.spec, progress, usage_of(progress), progress.epoch)


@given(
    start_joules=st.floats(0, 1e6),
    start_seconds=st.floats(0, 1e4),
    epoch_joules=st.floats(1, 1e6),
    epoch_seconds=st.floats(2, 1e4),
    seen=st.sets(st.integers(1, 40), min_size=1),
)
def test_the_start_is_measured_exactly_whichever_reports_arrive(
    attempt: TrainingAttempt,
    start_joules: float,
    start_seconds: float,
    epoch_joules: float,
    epoch_seconds: float,
    seen: set[int],
) -> None:
    reports = [
        (float(epoch), start_joules + epoch * epoch_joules, start_seconds + epoch * epoch_seconds)
        for epoch in sorted({1, *(epoch + 1 for epoch in seen)})
    ]
    found = usage(after(attempt, *reports))
    # Counters have millijoules and milliseconds.
    assert found.energy_joules == pytest.approx(epoch_joules, rel=1e-6, abs=0.01)
    assert found.time_seconds == pytest.approx(epoch_seconds, rel=1e-6, abs=0.01)
    assert found.start_up.energy_joules == pytest.approx(start_joules, rel=1e-6, abs=0.5)
    assert found.start_up.time_seconds == pytest.approx(start_seconds, rel=1e-6, abs=0.5)


def test_after_one_epoch_the_start_is_not_known(attempt: TrainingAttempt) -> None:
    assert usage(after(attempt, (0, 900.0, 9.0), (1, 1000.0, 10.0))) == EpochUsage()


def test_the_mean_of_several_epochs_counts_if_only_one_report_arrived(attempt: TrainingAttempt) -> None:
    assert usage(after(attempt, (10, 1000.0, 100.0))) == EpochUsage(100.0, 10.0)


def test_too_short_a_time_gives_the_start_and_no_precise_epoch(attempt: TrainingAttempt) -> None:
    found = usage(after(attempt, (1, 1000.0, 10.0), (4, 1300.0, 11.5)))
    assert found == EpochUsage(None, None, StartUp(900.0, 9.5))


def test_the_start_is_never_negative(attempt: TrainingAttempt) -> None:
    # Later epochs take longer, for example because another process slows the machine.
    assert usage(after(attempt, (1, 100.0, 10.0), (3, 700.0, 70.0))) == EpochUsage(700 / 3, 70 / 3, StartUp(0.0, 0.0))


def profiling(attempt: TrainingAttempt) -> TrainingAttempt:
    return attempt.model_copy(update={"spec": attempt.spec.model_copy(update={"profile_power_limits": True})})


def test_the_start_is_known_while_limits_are_measured(attempt: TrainingAttempt) -> None:
    # The first epoch has 900 J and 9 s of start. The limit may change any time, so the epoch is not known.
    reported = after(profiling(attempt), (1, 1000.0, 10.0), (2, 1100.0, 20.0))
    assert usage(reported) == EpochUsage(start_up=StartUp(900.0, 0.0))


def test_a_training_without_steps_measures_no_limit_and_shows_its_epochs(attempt: TrainingAttempt) -> None:
    reported = after(profiling(attempt), (1, 1900.0, 29.0), (8, 2600.0, 99.0))
    assert usage(reported) == EpochUsage(100.0, 10.0, StartUp(1800.0, 19.0))


@given(
    start_joules=st.floats(0, 1e6),
    start_seconds=st.floats(0, 1e4),
    epochs=st.lists(st.floats(0.05, 0.3), min_size=1, max_size=3),
    joules=st.lists(st.floats(50, 500), min_size=3, max_size=3),
)
def test_measured_power_limits_give_the_epoch_and_the_start(
    attempt: TrainingAttempt, start_joules: float, start_seconds: float, epochs: list[float], joules: list[float]
) -> None:
    measured = tuple(
        LimitMeasurement(300.0 - 50 * index, part * joules[index], part * 9.0, part)
        for index, part in enumerate(epochs)
    )
    held = len(epochs) - 1
    first = sum(each.energy_joules for each in measured) + (1 - sum(epochs)) * joules[held]
    attempt = profiling(attempt)
    for sequence, epoch in enumerate((1, 2, 9), 1):
        received = report(
            sequence=sequence,
            epoch=epoch,
            joules=start_joules + first + (epoch - 1) * joules[held],
            seconds=start_seconds + 9.0 * epoch,
            profile=measured,
        )
        progress = progress_after(attempt, received).model_copy(update={"power_limit_watts": 300 - 50 * held})
        attempt = attempt.model_copy(update={"progress": progress})
        found = usage(attempt)
        assert (found.energy_joules, found.time_seconds) == pytest.approx((joules[held], 9.0), rel=1e-3)
        assert found.start_up.energy_joules == pytest.approx(start_joules, rel=1e-3, abs=1.0)
        assert found.start_up.time_seconds == pytest.approx(start_seconds, rel=1e-3, abs=0.1)


JOB: dict[str, Any] = {"power": {"mode": "None"}}
EPOCH_JOULES, EPOCH_SECONDS = 1000.0, 10.0
TRIALS = ProbeReport(4, 500.0, 5.0, (ProbeChoice(0.5, 64, ("learning_rate=0.1",), 300.0, 4, 8),), "maxTrials")


@pytest.fixture
def backend() -> ModelBackend:
    return backend_with(**JOB)


def run(backend: ModelBackend, probes: ProbeReport | None) -> str:
    """An probing of ten equal epochs that probes after_probes the third one, beside the epochs."""
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
    backend.end_attempt(name)
    return name


def test_the_bill_has_the_trials_and_the_observation_has_not(backend: ModelBackend) -> None:
    status = backend.recurrences[run(backend, TRIALS)].status
    assert (status.usage.gpu_energy_joules, status.usage.duration_seconds) == (10_500, 105)
    (record,) = backend.records.values()
    assert (record.energy_joules, record.time_seconds) == (10_500.0, 105.0)
    assert (record.probe_trials, record.probe_energy_joules, record.probe_time_seconds) == (4, 500.0, 5.0)
    assert attempt_cost_joules(record, 0.5) == 0.5 * 10_500 + 0.5 * 400 * 105
    observation = observation_of(record, False)
    assert (observation.energy_joules, observation.time_seconds) == (10_000.0, 100.0)
    assert (record.epoch_energy_joules, record.epoch_time_seconds) == pytest.approx((EPOCH_JOULES, EPOCH_SECONDS))


def test_with_and_without_trials_the_same_is_learned() -> None:
    learned = []
    for probes in (TRIALS, None):
        backend = backend_with(**JOB)
        run(backend, probes)
        (record,) = backend.records.values()
        learned.append(observation_of(record, False))
    assert learned[0] == learned[1]


def test_the_status_shows_trials_and_what_was_chosen(backend: ModelBackend) -> None:
    probes = backend.recurrences[run(backend, TRIALS)].progress.probes
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
def probing() -> TrainingAttempt:
    backend = ModelBackend(job(**JOB))
    return backend.recurrences[backend.start_attempt()]


def after_probes(probing: TrainingAttempt, sequence: int, epoch: int, probes: ProbeReport | None) -> TrainingAttempt:
    received = report(
        sequence=sequence, epoch=epoch, metric=0.1 * epoch, joules=1000.0 * sequence, seconds=10 * sequence
    )
    progress = progress_after(probing, replace(received, probes=probes, evaluations=epoch))
    return probing.model_copy(update={"progress": progress})


def test_trials_of_a_process_that_was_killed_count_beside_those_of_its_successor(probing: TrainingAttempt) -> None:
    probing = after_probes(probing, 1, 3, ProbeReport(2, 100.0, 1.0))
    # The next process of the probing counts from 0 and begins its probe again.
    probing = after_probes(probing, 2, 1, None)
    probing = after_probes(probing, 3, 2, ProbeReport(3, 200.0, 2.0, TRIALS.choices))
    probing = after_probes(probing, 4, 3, ProbeReport(4, 250.0, 2.5, TRIALS.choices))
    probes = probing.progress.probes
    assert (probes.trials, probes.energy_joules, probes.time_seconds) == (6, 350, 3.5)
    assert [choice.threshold for choice in probes.choices] == [0.5]


def test_the_largest_batch_size_that_a_training_may_report_is_in_the_status(probing: TrainingAttempt) -> None:
    choices = (replace(TRIALS.choices[0], batch_size=MAX_PROBE_BATCH_SIZE),)
    probes = after_probes(probing, 1, 3, ProbeReport(2, 100.0, 1.0, choices)).progress.probes
    assert [choice.batch_size for choice in probes.choices] == [MAX_PROBE_BATCH_SIZE]


def test_an_attempt_is_not_stopped_for_the_cost_of_its_trials(probing: TrainingAttempt) -> None:
    spec = probing.spec.model_copy(update={"stop_cost_joules": 9000})
    probing = probing.model_copy(update={"spec": spec})
    # 4 kJ and 40 s cost 10 kJ, of which trials are a half.
    half = after_probes(probing, 4, 3, ProbeReport(2, 2000.0, 20.0))
    assert not with_stop_request(half, half.progress).stop_requested
    without = after_probes(probing, 4, 3, None)
    assert with_stop_request(without, without.progress).stop_requested


def test_more_trials_than_the_attempt_used_leave_nothing_to_learn(backend: ModelBackend) -> None:
    name = backend.start_attempt()
    recurrence = after_probes(backend.recurrences[name], 4, 3, ProbeReport(2, 1e9, 1e9))
    backend.recurrences[name] = backend._versioned(recurrence)
    backend.end_attempt(name)
    (record,) = backend.records.values()
    assert observation_of(record, False) is None


@pytest.mark.parametrize("problem", ["", "2 trials were left out"])
def test_a_condition_says_what_the_probes_chose_and_what_limited_them(probing: TrainingAttempt, problem: str) -> None:
    assert not list(probe_conditions(probing, START))
    (found,) = probe_conditions(after_probes(probing, 1, 3, replace(TRIALS, problem=problem)), START)
    assert (found.type, found.status.value) == ("Probed", "False" if problem else "True")
    assert found.message.startswith(f"{TRIALS.trials} trials used ")
    assert "; from 0.5 batch size " in found.message
    assert found.message.endswith(problem)
