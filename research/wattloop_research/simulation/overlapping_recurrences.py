"""Simulates recurring jobs whose recurrences follow each other, or arrive at given times and may overlap.

Time advances from event to event. A decision uses what has ended by then: an attempt becomes an observation when it
ends, and the measured power limits of a configuration are known once its profiled epoch is over. A review of a running
attempt uses its own epochs and what was known when it began.
"""

from __future__ import annotations

import bisect
import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import NamedTuple

from wattloop.wire.environment import RunTarget
from wattloop_planner.bandit.configuration import Configuration
from wattloop_planner.bandit.policy import NoFeasibleArmError, Policy, reviews
from wattloop_planner.metric_curve import MetricCurve
from wattloop_planner.observations import Observation, retargeted
from wattloop_research.simulation.simulator import (
    METRIC,
    Scenario,
    SimulatedAttempt,
    run_decided,
    simulated_context,
    simulated_observation,
)


@dataclass(frozen=True)
class ArrivingJob:
    """A recurring job and the times at which its recurrences arrive.

    Attributes:
        scenario: The job; it has as many recurrences as arrivals.
        arrivals: Seconds, in rising order.
        known: Initial observations, of recurrences below 0.
    """

    scenario: Scenario
    policy: Policy
    arrivals: tuple[float, ...]
    known: tuple[Observation, ...] = ()


@dataclass
class ArrivalsResult:
    """What became of one job.

    Attributes:
        attempts: The attempts in the order of their starts.
        failure: Why no feasible arm was left, or empty; later recurrences did not run.
    """

    attempts: list[SimulatedAttempt] = field(default_factory=list)
    failure: str = ""


class _Kind(IntEnum):
    """Order of what happens at the same moment: what ends is known to what begins."""

    PROFILED = 0
    ENDED = 1
    ARRIVED = 2


class _Event(NamedTuple):
    seconds: float
    kind: _Kind
    number: int
    job: int
    subject: object


class _Waiting(NamedTuple):
    job: int
    recurrence: int


class _JobState:
    """The knowledge and the attempts in flight of one job."""

    def __init__(self, job: ArrivingJob) -> None:
        self.job = job
        self.observations = list(job.known)
        self.profiles: set[Configuration] = set()
        self.running: list[Configuration] = []
        self.result = ArrivalsResult()

    def switch_target(self) -> None:
        """Let the attempts so far say of the other target what they do, as the operator passes it."""
        scenario = self.job.scenario
        # Policies without a model of bounds see the attempts as they were, as in the published simulations.
        if scenario.with_curves and reviews(self.job.policy) and scenario.switch_at is not None:
            target = RunTarget(METRIC, scenario.target_of(scenario.switch_at))
            self.observations = [
                retargeted(each, target) or replace(each, curve=None, other_target=True) for each in self.observations
            ]

    def learn(self, simulated: SimulatedAttempt, curve: MetricCurve | None) -> None:
        """Add an attempt that has ended."""
        self.running.remove(simulated.configuration)
        known = simulated.configuration in self.profiles
        observation = simulated_observation(self.job.scenario, simulated, curve, profile_known=known)
        bisect.insort(self.observations, observation, key=lambda each: (each.recurrence, each.attempt))


class _Clock:
    """The events of one simulation of all jobs under one seed."""

    def __init__(self, jobs: Sequence[ArrivingJob], seed: int, slots: int | None) -> None:
        self.states = [_JobState(job) for job in jobs]
        self._seed = seed
        self._free = slots
        self._events: list[_Event] = []
        self._queue: deque[_Waiting] = deque()
        self._number = 0
        arrivals = sorted(
            (seconds, number, recurrence)
            for number, job in enumerate(jobs)
            for recurrence, seconds in enumerate(job.arrivals)
        )
        for seconds, number, recurrence in arrivals:
            self._schedule(seconds, _Kind.ARRIVED, number, recurrence)

    def run(self) -> None:
        """Run until nothing is left to do."""
        while self._events:
            seconds, kind, _, job, subject = heapq.heappop(self._events)
            state = self.states[job]
            if kind is _Kind.PROFILED:
                assert isinstance(subject, Configuration)
                state.profiles.add(subject)
            elif kind is _Kind.ENDED:
                assert isinstance(subject, _Ending)
                self._end(seconds, job, subject)
            elif not state.result.failure:
                assert isinstance(subject, int)
                self._queue.append(_Waiting(job, subject))
                self._start_waiting(seconds)

    def _schedule(self, seconds: float, kind: _Kind, job: int, subject: object) -> None:
        self._number += 1
        heapq.heappush(self._events, _Event(seconds, kind, self._number, job, subject))

    def _start_waiting(self, seconds: float) -> None:
        while self._queue and self._free != 0:
            waiting = self._queue.popleft()
            if self.states[waiting.job].result.failure:
                continue
            if self._start(seconds, waiting.job, waiting.recurrence, 0) and self._free is not None:
                self._free -= 1

    def _start(self, seconds: float, job: int, recurrence: int, attempt: int) -> bool:
        """Decide and begin an attempt; returns False if no feasible arm is left."""
        state = self.states[job]
        scenario = state.job.scenario
        if attempt == 0 and recurrence == scenario.switch_at:
            state.switch_target()
        context = simulated_context(
            scenario, recurrence, attempt, tuple(state.observations), self._seed, running=tuple(state.running)
        )
        try:
            simulated, curve = run_decided(
                scenario, state.job.policy, context, state.profiles, self._seed, start_seconds=seconds
            )
        except NoFeasibleArmError as error:
            state.result.failure = str(error)
            return False
        end = simulated.end_seconds
        state.result.attempts.append(simulated)
        state.running.append(simulated.configuration)
        if simulated.completes_profile:
            profiled = scenario.trace.by_configuration[simulated.configuration].profiled
            # Never after the end, whatever the rounding.
            known = min(seconds + profiled.time_seconds, end)
            self._schedule(known, _Kind.PROFILED, job, simulated.configuration)
        self._schedule(end, _Kind.ENDED, job, _Ending(simulated, curve))
        return True

    def _end(self, seconds: float, job: int, ending: _Ending) -> None:
        simulated = ending.simulated
        self.states[job].learn(simulated, ending.curve)
        # The next attempt of a recurrence keeps its place.
        if not simulated.ends_recurrence and self._start(seconds, job, simulated.recurrence, simulated.attempt + 1):
            return
        if self._free is not None:
            self._free += 1
        self._start_waiting(seconds)


@dataclass(frozen=True)
class _Ending:
    simulated: SimulatedAttempt
    curve: MetricCurve | None


def simulate_arrivals(jobs: Sequence[ArrivingJob], seed: int, slots: int | None = None) -> list[ArrivalsResult]:
    """Run all recurrences of some jobs that share a cluster.

    Args:
        jobs: The jobs.
        seed: Seed of the training paths, which all policies share, and of the policies.
        slots: Recurrences that can run at once, in the order of their arrivals; None: any number.

    Returns:
        The result of each job, in the order of the jobs.
    """
    clock = _Clock(jobs, seed, slots)
    clock.run()
    return [state.result for state in clock.states]


def simulate(
    scenario: Scenario, policy: Policy, seed: int, known: tuple[Observation, ...] = ()
) -> list[SimulatedAttempt]:
    """Run all recurrences of a job, one after the other.

    Args:
        scenario: The job.
        policy: The policy.
        seed: Seed of the training paths, which all policies and GPU models share, and of the policy.
        known: Initial observations, of recurrences below 0.

    Raises:
        NoFeasibleArmError: The policy has pruned every batch size.
    """
    (result,) = simulate_arrivals([ArrivingJob(scenario, policy, (0.0,) * scenario.recurrences, known)], seed, slots=1)
    if result.failure:
        raise NoFeasibleArmError(result.failure)
    return result.attempts
