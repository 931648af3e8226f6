"""Power limits that agents hold on the operator's order: which one, when, and what is measured of them."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from support.backends.model_backend import ModelBackend, job
from support.backends.sample_reports import START, pod_energy, report
from wattloop.wire.node_energy import PodLimitState
from wattloop_operator.api.attempt_state import Result
from wattloop_operator.api.meta import Condition, ConditionStatus
from wattloop_operator.api.power_fields import Power, PowerSelector
from wattloop_operator.domain.gpu_readings import MAX_LIMIT_PODS
from wattloop_operator.domain.progress import Progress
from wattloop_operator.domain.records import PodEnergy
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.reconcile.attempt.attempt_conditions import POWER_LIMIT_HELD
from wattloop_operator.reconcile.attempt.ordered_limit import (
    MAX_CHANGE_PART,
    MAX_ORDERED_LIMITS,
    MIN_WINDOW_SECONDS,
    limits_to_order,
    needs_order,
    ordered_limit,
    with_agent_readings,
    with_limit_measured,
    with_pod_limit,
)
from wattloop_operator.reconcile.attempt.report_effect import progress_after
from wattloop_operator.reconcile.energy.epoch_usage import epoch_usage
from wattloop_operator.reconcile.learning import job_observations
from wattloop_operator.reconcile.learning.decision import Attempt, decide
from wattloop_operator.reconcile.learning.job_observations import complete_points

MIN_WATTS, MAX_WATTS = 200, 700
POWER = Power(selector=PowerSelector.ENERGY)


def attempt(power: dict[str, object] | None = None) -> TrainingAttempt:
    """An attempt that measures limits, or has another power."""
    recurrence = decide(Snapshot(job(power=power or {})), Attempt(0, 0, "slot", START))
    return recurrence.model_copy(update={"status": recurrence.status.model_copy(update={"devices": 1})})


def with_progress(recurrence: TrainingAttempt, progress: Progress) -> TrainingAttempt:
    return recurrence.model_copy(update={"progress": progress})


@dataclass
class SimulatedAttempt:
    """A training on pods of one GPU each, their agents and the operator, in virtual time.

    Attributes:
        epoch_seconds: Seconds of an epoch at the highest limit. The GPUs draw the limit.
        push_seconds: Interval of the agents' reports.
        pods: Number of pods.
        refuses: Why the agents hold no limit; empty if they do.
        recurrence: The attempt.
        now: Seconds since its start.
        joules: Energy of all GPUs since then.
        epoch: Epochs run.
        reported: Epochs at the last report; -1 before it.
        held: By pod, the limit and since when it is held.
        orders: The answers to the agents' reports.
        readings: Seconds and joules at the agents' last report.
    """

    epoch_seconds: float
    push_seconds: float
    pods: int = 1
    refuses: str = ""
    recurrence: TrainingAttempt = field(default_factory=attempt)
    now: float = 0.0
    joules: float = 0.0
    epoch: float = 0.0
    reported: int = -1
    held: list[tuple[int, float] | None] = field(default_factory=list)
    orders: list[int | None] = field(default_factory=list)
    readings: tuple[float, float] = (0.0, 0.0)

    def __post_init__(self) -> None:
        self.held = [None] * self.pods

    @property
    def progress(self) -> Progress:
        return self.recurrence.progress

    def speed(self, watts: int) -> float:
        """Epochs a second at a limit: faster with more power, and less so near the maximum."""
        return (watts / MAX_WATTS) ** 0.5 / self.epoch_seconds

    def energy_of_epoch(self, watts: int) -> float:
        return watts * self.pods / self.speed(watts)

    def watts(self) -> int:
        """The slowest pod makes the others wait; they draw as much as it does."""
        return min(MAX_WATTS if held is None else held[0] for held in self.held)

    def time(self) -> datetime:
        return START + timedelta(seconds=self.now)

    def advance(self, seconds: float) -> None:
        """Time passes; each whole epoch is reported when it ends."""
        until = self.now + seconds
        if self.reported < 0:
            self.report()
        while self.now < until:
            speed = self.speed(self.watts())
            step = min(until - self.now, (int(self.epoch + 1e-9) + 1 - self.epoch) / speed)
            self.now += step
            self.joules += step * self.watts() * self.pods
            self.epoch += step * speed
            if int(self.epoch + 1e-9) > self.reported:
                self.report()

    def energies(self) -> list[PodEnergy]:
        seconds, joules = self.readings
        return [
            pod_energy(
                joules / self.pods,
                seconds,
                gpu=pod,
                ended=False,
                pod_uid=f"pod-{pod}",
                ledger=f"ledger-{pod}",
                measured_at=START + timedelta(seconds=seconds),
                max_power_limit_watts=float(MAX_WATTS),
            )
            for pod in range(self.pods)
        ]

    def report(self) -> None:
        """The training reports its epochs."""
        self.reported = int(self.epoch + 1e-9)
        sent = report(sequence=self.reported + 1, epoch=self.reported, gpus=0)
        before, energies = self.progress, self.energies()
        progress = with_agent_readings(self.recurrence, progress_after(self.recurrence, sent), energies, self.time())
        progress = with_limit_measured(before, progress, {each.pod_uid for each in energies}, self.time())
        self.recurrence = with_progress(self.recurrence, progress)

    def push(self) -> None:
        """The agents report their readings and limits, and carry out the answer a second later."""
        self.readings = self.now, self.joules
        for pod in range(self.pods):
            held = self.held[pod]
            state = PodLimitState(
                f"pod-{pod}",
                None if self.refuses else (float(MIN_WATTS), float(MAX_WATTS)),
                0.0 if held is None else float(held[0]),
                0.0 if held is None else self.now - held[1],
                self.refuses,
            )
            self.recurrence = with_progress(self.recurrence, with_pod_limit(self.progress, state, self.time()))
        order = ordered_limit(self.recurrence, POWER)
        self.orders.append(order)
        if order is not None and not self.refuses:
            self.held = [held if held and held[0] == order else (order, self.now) for held in self.held]

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            self.push()
            self.advance(self.push_seconds)


@settings(max_examples=12)
@given(st.floats(2, 200), st.floats(3, 8), st.integers(1, 2))
@example(9.0, 7.5, 1)
def test_every_ordered_limit_is_measured_over_whole_epochs_and_the_best_one_is_held(
    epoch_seconds: float, push_seconds: float, pods: int
) -> None:
    simulated = SimulatedAttempt(epoch_seconds, push_seconds, pods)
    slowest = epoch_seconds / (MIN_WATTS / MAX_WATTS) ** 0.5
    # Each limit needs the epoch in which it is set, one more, and those of the shortest window.
    while len(simulated.progress.profile) < MAX_ORDERED_LIMITS and simulated.now < 12 * (slowest + MIN_WINDOW_SECONDS):
        simulated.run(push_seconds)
    simulated.run(3 * push_seconds)
    profile = simulated.progress.profile
    assert [point.power_limit_watts for point in profile] == list(limits_to_order(MIN_WATTS, MAX_WATTS))
    assert complete_points(simulated.progress) == profile
    for point in profile:
        assert point.epochs == int(point.epochs)
        energy, seconds = float(point.energy_joules / point.epochs), float(point.time_seconds / point.epochs)
        # A change within the first part of the epoch, at most from the highest limit to the lowest, and the age of the
        # reading at its ends.
        off = MAX_CHANGE_PART + push_seconds / MIN_WINDOW_SECONDS
        assert energy == pytest.approx(simulated.energy_of_epoch(point.power_limit_watts), rel=2 * off)
        assert seconds == pytest.approx(1 / simulated.speed(point.power_limit_watts), rel=MAX_CHANGE_PART + 1e-3)
    # The least energy as measured: with readings of 7.5 s and epochs of 9 s, it is that of another limit.
    cheapest = min(profile, key=lambda point: point.energy_joules / point.epochs)
    assert simulated.orders[-1] == cheapest.power_limit_watts
    assert simulated.progress.power_limit_watts == cheapest.power_limit_watts
    # From now on the cost of an epoch is that at the held limit.
    energy_of_epoch = epoch_usage(simulated.recurrence.spec, simulated.progress, None, None).energy_joules
    assert energy_of_epoch == float(cheapest.energy_joules / cheapest.epochs)


def test_orders_begin_with_the_allowed_range_and_change_once_a_limit_is_measured() -> None:
    simulated = SimulatedAttempt(epoch_seconds=60.0, push_seconds=5.0)
    simulated.run(1800)
    changes = [
        order for order, before in zip(simulated.orders, [0, *simulated.orders], strict=False) if order != before
    ]
    # The range is known after the first report about the pod.
    assert changes == [700, 575, 450, 325, 200]


def test_no_further_limit_is_ordered_after_the_target() -> None:
    simulated = SimulatedAttempt(epoch_seconds=60.0, push_seconds=5.0)
    while len(simulated.progress.profile) < 2:
        simulated.run(5)
    simulated.run(30)
    held = simulated.progress.power_limit_watts
    ended = with_progress(simulated.recurrence, simulated.progress.model_copy(update={"reached": True, "profile": ()}))
    assert ordered_limit(ended, POWER) == held == 450


def test_long_epochs_measure_a_limit_each() -> None:
    simulated = SimulatedAttempt(epoch_seconds=600.0, push_seconds=5.0)
    while len(simulated.progress.profile) < MAX_ORDERED_LIMITS:
        simulated.run(60)
    assert simulated.progress.epoch == MAX_ORDERED_LIMITS


def test_a_pod_that_holds_another_limit_measures_nothing() -> None:
    simulated = SimulatedAttempt(epoch_seconds=60.0, push_seconds=5.0, pods=2)
    simulated.run(5)
    simulated.held[1] = None
    for _ in range(100):
        simulated.push()
        simulated.held[1] = None
        simulated.advance(5)
    assert simulated.progress.profile == ()
    assert simulated.progress.power_limit_watts is None


def test_a_refusal_is_shown_until_a_limit_is_held() -> None:
    simulated = SimulatedAttempt(epoch_seconds=60.0, push_seconds=5.0, refuses="Shared: GPU-0 is shared")
    simulated.run(300)
    assert simulated.progress.power_limit_refusal == "Shared: GPU-0 is shared"
    assert simulated.progress.power_limit_watts is None
    assert set(simulated.orders) == {None}
    assert simulated.progress.profile == ()
    simulated.refuses = ""
    simulated.run(300)
    assert simulated.progress.power_limit_refusal == ""
    assert simulated.progress.power_limit_watts in limits_to_order(MIN_WATTS, MAX_WATTS)


def test_repeated_states_change_nothing() -> None:
    state = PodLimitState("pod-0", (200.0, 700.0), 450.0, 10.0)
    progress = with_pod_limit(Progress(), state, START)
    for seconds in range(1, 60):
        later = replace(state, held_seconds=10.0 + seconds + (seconds % 3) / 2)
        assert with_pod_limit(progress, later, START + timedelta(seconds=seconds)) == progress
    renewed = with_pod_limit(progress, replace(state, held_seconds=0.0), START + timedelta(seconds=60))
    assert renewed.agent_limits.pods[0].held_since == START + timedelta(seconds=60)


@given(st.lists(st.tuples(st.text("ab-", min_size=1), st.floats(0, 1e10), st.floats(0, 1e4)), max_size=30))
def test_any_states_can_be_written(states: Sequence[tuple[str, float, float]]) -> None:
    progress = Progress()
    for uid, seconds, watts in states:
        progress = with_pod_limit(progress, PodLimitState(uid, (0.0, watts), watts, seconds, "no"), START)
    assert Progress.from_wire(progress.to_wire()) == progress
    for power in ({}, {"mode": "Fixed", "watts": 300}):
        watts_ordered = ordered_limit(with_progress(attempt(power), progress), POWER)
        assert watts_ordered is None or watts_ordered >= 1


def test_the_number_of_stored_pods_is_bounded() -> None:
    progress = Progress()
    for pod in range(MAX_LIMIT_PODS + 20):
        progress = with_pod_limit(progress, PodLimitState(f"pod-{pod}", (200.0, 700.0)), START)
    assert len(progress.agent_limits.pods) == MAX_LIMIT_PODS


def test_a_process_that_reports_its_gpus_ends_the_orders() -> None:
    simulated = SimulatedAttempt(epoch_seconds=60.0, push_seconds=5.0)
    simulated.run(200)
    sent = report(sequence=99, epoch=9, gpus=1)
    progress = with_limit_measured(
        simulated.progress, progress_after(simulated.recurrence, sent), {"pod-0"}, simulated.time()
    )
    assert progress.agent_limits is None
    assert with_pod_limit(progress, PodLimitState("pod-0", None, 300.0), START) == progress
    assert not needs_order(with_progress(simulated.recurrence, progress), may_have_socket=False)


FIXED, NONE = {"mode": "Fixed", "watts": 300}, {"mode": "None"}
REPORTED = progress_after(attempt(), report(gpus=0))


@pytest.mark.parametrize(
    ("power", "progress", "sockets", "needed"),
    [
        (FIXED, None, False, True),
        (FIXED, None, True, False),
        (FIXED, REPORTED, True, True),
        (None, REPORTED, True, True),
        (NONE, REPORTED, False, False),
        (FIXED, progress_after(attempt(), report()), False, False),
    ],
)
def test_an_attempt_needs_orders_if_a_limit_is_decided_and_its_processes_cannot_request_it(
    power: dict[str, object] | None, progress: Progress | None, sockets: bool, needed: bool
) -> None:
    recurrence = attempt(power)
    if progress is not None:
        recurrence = with_progress(recurrence, progress)
    assert needs_order(recurrence, may_have_socket=sockets) is needed
    ended = recurrence.status.model_copy(update={"result": Result.REACHED})
    assert not needs_order(recurrence.model_copy(update={"status": ended}), may_have_socket=sockets)


def test_a_decided_limit_is_ordered_at_once() -> None:
    assert ordered_limit(attempt(FIXED), POWER) == 300


@given(st.integers(0, 1000), st.integers(0, 1000))
def test_the_limits_to_measure_are_few_and_within_the_range(one: int, other: int) -> None:
    lowest, highest = sorted((one, other))
    limits = limits_to_order(lowest, highest)
    assert limits[0] == highest
    assert 1 <= len(limits) <= MAX_ORDERED_LIMITS
    assert all(lowest <= watts <= highest for watts in limits)
    assert list(limits) == sorted(set(limits), reverse=True)


REFUSAL = (
    "the agent refused: GPU GPU-0: a power limit of 100 watts is out of range: GPUPowerPolicy fleet allows 150 to 350"
)
FIXED_100 = {"mode": "Fixed", "watts": 100}


def running(power: dict[str, Any]) -> tuple[ModelBackend, str]:
    backend = ModelBackend(job(power=power, mode="Fixed"))
    return backend, backend.start_attempt()


def report_limit(
    backend: ModelBackend, name: str, *, refusal: str = "", limit: float | None = None, **fields: Any
) -> None:
    """A report with the state of the power limit arrives."""
    recurrence = backend.recurrences[name]
    limit_report = replace(report(**fields), power_limit_watts=limit, power_limit_refusal=refusal)
    backend.recurrences[name] = recurrence.model_copy(update={"progress": progress_after(recurrence, limit_report)})


def limit_condition(backend: ModelBackend, name: str) -> Condition | None:
    conditions = backend.recurrences[name].status.conditions
    return next((each for each in conditions if each.type == POWER_LIMIT_HELD), None)


@pytest.mark.parametrize("power", [FIXED_100, {"mode": "Auto", "selector": "Cost"}], ids=["fixed", "to be measured"])
def test_a_refused_limit_sets_a_condition_and_the_training_reaches_its_target(power: dict[str, Any]) -> None:
    backend, name = running(power)
    report_limit(backend, name, refusal=REFUSAL)
    backend.reconcile()
    condition = limit_condition(backend, name)
    assert (condition.status, condition.reason) == (ConditionStatus.FALSE, "Refused")
    assert condition.message.startswith(REFUSAL)
    report_limit(backend, name, refusal=REFUSAL, sequence=2, epoch=5, metric=0.95, finished=True)
    assert backend.end_attempt(name).result is Result.REACHED
    assert limit_condition(backend, name) == condition
    (record,) = backend.records.values()
    assert record.power_limit_watts is None, "its cost counts for no limit"
    assert job_observations.observations((record,)) != ()


def test_a_limit_that_is_set_has_a_true_condition() -> None:
    backend, name = running(FIXED_100)
    report_limit(backend, name, limit=100.0)
    backend.reconcile()
    condition = limit_condition(backend, name)
    assert (condition.status, condition.reason) == (ConditionStatus.TRUE, "Held")


def test_a_limit_that_is_set_after_a_refusal_changes_the_condition() -> None:
    backend, name = running(FIXED_100)
    report_limit(backend, name, refusal=REFUSAL)
    backend.reconcile()
    backend.advance(60)
    report_limit(backend, name, limit=100.0, sequence=2)
    backend.reconcile()
    condition = limit_condition(backend, name)
    assert (condition.status, condition.last_transition_time) == (ConditionStatus.TRUE, backend.now)


@pytest.mark.parametrize(
    ("power", "fields"),
    [({"mode": "None"}, {"refusal": REFUSAL}), (FIXED_100, {}), (FIXED_100, {"refusal": REFUSAL, "gpus": 0})],
    ids=["no limit was chosen", "the report does not mention it", "there are no GPUs"],
)
def test_without_a_limit_or_gpus_there_is_no_condition(power: dict[str, Any], fields: dict[str, Any]) -> None:
    backend, name = running(power)
    report_limit(backend, name, **fields)
    backend.reconcile()
    assert limit_condition(backend, name) is None
