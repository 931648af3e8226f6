"""Trainings whose processes report no GPUs: energy, cost and epochs are known from the node agents alone."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.backends.model_backend import ModelBackend, job
from support.backends.sample_reports import START, pod_energy, report
from wattloop.wire.training_messages import Report
from wattloop_operator.api.training_recurrence import EnergySource
from wattloop_operator.domain.progress import Progress
from wattloop_operator.domain.records import PodEnergy
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.reconcile.attempt.ordered_limit import MAX_AGE_SECONDS, needs_agents, with_agent_readings
from wattloop_operator.reconcile.attempt.report_effect import progress_after
from wattloop_operator.reconcile.energy.attempt_usage import MIN_COVERAGE_PERCENT, usage_of
from wattloop_operator.reconcile.energy.epoch_usage import epoch_usage
from wattloop_operator.reconcile.learning.decision import Attempt, decide

MAX_WATTS = 700.0
# A mark has milliseconds and millijoules.
ROUNDING_SECONDS, ROUNDING_JOULES = 0.0005, 0.05
UNLIMITED = {"mode": "None"}


def attempt(devices: int = 1) -> TrainingAttempt:
    recurrence = decide(Snapshot(job(power=UNLIMITED)), Attempt(0, 0, "slot", START))
    return recurrence.model_copy(update={"status": recurrence.status.model_copy(update={"devices": devices})})


@dataclass(frozen=True)
class Training:
    """A training on GPUs of equal power, and the agents of its nodes.

    Attributes:
        start_seconds: Time from the assignment of the GPUs to the first epoch.
        epoch_seconds: Time of an epoch.
        powers: Power of a GPU in each tenth of an epoch; while the container starts, a GPU draws the least.
        gpus: Number of GPUs, each on a node of its own.
        ages: By GPU, how old its reading is at each report.
    """

    start_seconds: float
    epoch_seconds: float
    powers: Sequence[float]
    ages: Sequence[float]

    def energy(self, seconds: float) -> float:
        """Joules of one GPU since its assignment."""
        idle = min(self.powers) * min(seconds, self.start_seconds)
        tenths = max(seconds - self.start_seconds, 0.0) / self.epoch_seconds * len(self.powers)
        whole, part = divmod(tenths, 1.0)
        used = sum(self.powers[tenth % len(self.powers)] for tenth in range(int(whole)))
        used += part * self.powers[int(whole) % len(self.powers)]
        return idle + used * self.epoch_seconds / len(self.powers)

    @property
    def rounding_joules(self) -> float:
        """Error of a mark by the rounding of those before: the age is at most half of the time since the last one."""
        return ROUNDING_JOULES + max(self.powers) * ROUNDING_SECONDS * len(self.ages)

    def energies(self, now: float) -> list[PodEnergy]:
        """The agents' latest reports."""
        found = []
        for gpu, age in enumerate(self.ages):
            read = max(now - age, 0.0)
            energy = pod_energy(
                self.energy(read),
                read,
                gpu=gpu,
                ended=False,
                ledger=f"ledger-{gpu}",
                pod_uid=f"pod-{gpu}",
                measured_at=START + timedelta(seconds=read),
                max_power_limit_watts=MAX_WATTS,
            )
            found.append(energy)
        return found

    def after(self, epochs: int) -> Progress:
        """The progress after a report at the start and one after each epoch."""
        recurrence = attempt(len(self.ages))
        for epoch in range(epochs + 1):
            now = self.start_seconds + epoch * self.epoch_seconds
            reported = progress_after(recurrence, report(sequence=epoch + 1, epoch=epoch, gpus=0))
            assert needs_agents(recurrence.progress, reported)
            received = START + timedelta(seconds=now)
            progress = with_agent_readings(recurrence, reported, self.energies(now), received)
            recurrence = recurrence.model_copy(update={"progress": progress})
        return recurrence.progress


TRAININGS = st.builds(
    Training,
    start_seconds=st.floats(20, 120),
    epoch_seconds=st.floats(2, 600),
    powers=st.lists(st.floats(60, MAX_WATTS), min_size=1, max_size=10),
    ages=st.lists(st.floats(0, 8), min_size=1, max_size=4),
)


def epoch_of(progress: Progress) -> tuple[float, float]:
    found = epoch_usage(attempt().spec, progress, usage_of(progress), progress.epoch)
    assert found.energy_joules is not None
    assert found.time_seconds is not None
    return found.energy_joules, found.time_seconds


@given(TRAININGS, st.integers(1, 12))
def test_the_energy_of_an_epoch_is_known_up_to_the_power_that_changed_since_the_latest_readings(
    training: Training, epochs: int
) -> None:
    energy, time = epoch_of(training.after(epochs))
    gpus, per_epoch = len(training.ages), sum(training.powers) / len(training.powers) * training.epoch_seconds
    # Both marks are off by the age of the readings at most, and readings of several agents by their mean.
    bound = 2 * sum(training.ages) * (max(training.powers) - min(training.powers)) / epochs
    assert time == pytest.approx(training.epoch_seconds, abs=2e-3)
    assert energy == pytest.approx(per_epoch * gpus, abs=bound + training.rounding_joules)


@given(TRAININGS, st.integers(1, 12))
def test_at_a_constant_power_nothing_is_lost(training: Training, epochs: int) -> None:
    constant = replace(training, powers=[300.0])
    progress = constant.after(epochs)
    energy, time = epoch_of(progress)
    gpus, seconds = len(training.ages), training.start_seconds + epochs * training.epoch_seconds
    assert time == pytest.approx(training.epoch_seconds, abs=2e-3)
    assert energy == pytest.approx(300.0 * gpus * training.epoch_seconds, abs=constant.rounding_joules)
    usage = usage_of(progress)
    assert float(usage.gpu_energy_joules) == pytest.approx(300.0 * gpus * seconds, abs=constant.rounding_joules)
    assert float(usage.duration_seconds) == pytest.approx(seconds, abs=2e-3)
    assert (usage.devices, usage.gpu_product, usage.max_power_limit_watts) == (gpus, "NVIDIA A100", 700 * gpus)


@pytest.mark.parametrize("epoch_seconds", [9.0, 13.5, 15.9, 24.0, 60.0])
def test_the_errors_of_marks_do_not_grow_from_epoch_to_epoch(epoch_seconds: float) -> None:
    training = Training(20.0, epoch_seconds, [300.0, 310.0, 290.0], [8.0])
    for epochs in (10, 40, 160):
        usage = usage_of(training.after(epochs))
        # At most the age times the difference of the power in these seconds from the mean.
        exact = training.energy(20.0 + epochs * epoch_seconds)
        assert float(usage.gpu_energy_joules) == pytest.approx(exact, abs=8.0 * 20.0)


STEADY = Training(30.0, 60.0, [300.0], [5.0, 5.0])


@pytest.mark.parametrize(
    "energies",
    [
        [],
        STEADY.energies(90.0)[:1],
        [replace(each, shared=True) for each in STEADY.energies(90.0)],
        STEADY.energies(90.0 - MAX_AGE_SECONDS),
    ],
    ids=["no reading", "one of two GPUs", "shared GPUs", "an agent that is away"],
)
def test_a_report_gets_no_mark_without_recent_readings_of_all_gpus_of_the_attempt_alone(
    energies: list[PodEnergy],
) -> None:
    recurrence = attempt(devices=2)
    progress = progress_after(recurrence, report(epoch=1, gpus=0))
    assert with_agent_readings(recurrence, progress, energies, START + timedelta(seconds=90)) == progress


def test_a_gpu_of_unknown_maximum_power_makes_the_sum_unknown() -> None:
    energies = STEADY.energies(90.0)
    recurrence = attempt(devices=2)
    progress = progress_after(recurrence, report(epoch=1, gpus=0))
    unknown = [energies[0], replace(energies[1], max_power_limit_watts=None)]
    agents = with_agent_readings(recurrence, progress, unknown, START + timedelta(seconds=90)).agents
    assert agents.max_power_limit_watts is None


def test_a_process_that_reports_its_gpus_replaces_the_agents_readings() -> None:
    recurrence = attempt(devices=2)
    before = STEADY.after(2)
    recurrence = recurrence.model_copy(update={"progress": before})
    reported = progress_after(recurrence, report(sequence=9, epoch=3, gpus=2))
    assert not needs_agents(before, reported)
    after = with_agent_readings(recurrence, reported, (), START)
    assert after.agents is None
    assert len(after.gpus) == 2


@pytest.mark.parametrize(
    "sent",
    [report(sequence=2, epoch=2, gpus=0), report(sequence=9, epoch=2, metric=0.5, gpus=0), report(sequence=9)],
    ids=["repeated", "of the same epoch", "with GPUs"],
)
def test_a_report_without_a_new_epoch_or_with_gpus_needs_no_readings(sent: Report) -> None:
    recurrence = attempt(devices=2)
    before = STEADY.after(2)
    after = progress_after(recurrence.model_copy(update={"progress": before}), sent)
    assert not needs_agents(before, after)


@pytest.fixture
def backend() -> ModelBackend:
    return ModelBackend(job(power=UNLIMITED), devices=2, agent_report_timeout_seconds=10)


def run(backend: ModelBackend, training: Training, epochs: int, *, coverage: float = 1.0) -> str:
    """Run an attempt to its target; its agents cover this part of its time. Returns its name."""
    name = backend.start_attempt()
    began, total = backend.now, training.start_seconds + epochs * training.epoch_seconds
    uid = f"pod-of-{name}"

    def pods(now: float) -> list[PodEnergy]:
        return [
            replace(each, pod_uid=uid, measured_at=began + ((each.measured_at or START) - START))
            for each in training.energies(now)
        ]

    for epoch in range(1, epochs + 1):
        now = training.start_seconds + epoch * training.epoch_seconds
        backend.now = began + timedelta(seconds=now)
        backend.report_energy(name, *pods(min(now, total * coverage)))
        last = epoch == epochs
        backend.report(name, sequence=epoch, epoch=epoch, metric=0.95 if last else 0.5, finished=last, gpus=0)
    if coverage == 1.0:
        backend.report_energy(
            name, *(replace(each, ended=True) for each in replace(training, ages=[0.0, 0.0]).energies(total))
        )
    backend.end_attempt(name)
    backend.reconcile_after(11)
    return name


def test_a_job_learns_from_trainings_whose_processes_report_no_gpus(backend: ModelBackend) -> None:
    sizes = set()
    for _ in range(4):
        name = run(backend, STEADY, epochs=5)
        sizes.add(backend.recurrences[name].spec.batch_size)
        backend.advance(7200)
    status = backend.recurrences[name].status
    assert status.cost_joules is not None
    assert (status.usage.energy_source, status.usage.devices) == (EnergySource.AGENT, 2)
    assert status.usage.gpu_energy_joules == 2 * 300 * 330
    assert status.cost_joules == Decimal("0.5") * 2 * 300 * 330 + Decimal("0.5") * 1400 * 330
    for record in backend.records.values():
        assert (record.gpu_product, record.gpu_count, record.max_power_watts) == ("NVIDIA A100", 2, 1400.0)
        # Without the 30 s before the first epoch.
        assert (record.epoch_energy_joules, record.epoch_time_seconds) == pytest.approx((36_000.0, 60.0))
    assert len(sizes) > 1, "the policy tries other batch sizes"
    snapshot = backend.state
    assert not [each for each in snapshot.job.status.conditions if each.type == "Learns"]


def test_an_attempt_of_one_epoch_has_a_cost_and_no_cost_of_an_epoch(backend: ModelBackend) -> None:
    # Its start and its epoch cannot be told apart.
    run(backend, STEADY, epochs=1)
    (record,) = backend.records.values()
    assert (record.energy_joules, record.max_power_watts) == (2 * 300 * 90.0, 1400.0)
    assert (record.epoch_energy_joules, record.epoch_time_seconds) == (None, None)


@pytest.mark.parametrize("coverage", [0.5, 0.9])
def test_an_attempt_whose_agents_were_away_has_no_cost(backend: ModelBackend, coverage: float) -> None:
    assert coverage * 100 < MIN_COVERAGE_PERCENT
    name = run(backend, STEADY, epochs=5, coverage=coverage)
    usage = backend.recurrences[name].status.usage
    assert float(usage.gpu_energy_joules) > 0
    assert backend.recurrences[name].status.cost_joules is None
    (record,) = backend.records.values()
    assert record.max_power_watts == 0
    assert math.isclose(record.energy_joules, float(usage.gpu_energy_joules))


def test_an_attempt_is_stopped_at_its_cost_limit_by_the_agents_readings(backend: ModelBackend) -> None:
    name = backend.start_attempt()
    recurrence = backend.recurrences[name]
    limited = recurrence.spec.model_copy(update={"stop_cost_joules": Decimal(100_000)})
    backend.recurrences[name] = recurrence.model_copy(update={"spec": limited})
    stops = []
    for epoch in range(1, 5):
        now = STEADY.start_seconds + epoch * STEADY.epoch_seconds
        backend.now = START + timedelta(seconds=now)
        backend.pod_energies[name] = tuple(STEADY.energies(now))
        backend.report(name, sequence=epoch, epoch=epoch, metric=0.5, gpus=0)
        stops.append(backend.recurrences[name].progress.stop_requested)
    # (600 W + 1400 W) / 2 for 30 s and 60 s an epoch.
    assert stops == [False, True, True, True]
