"""Recurrences of one job under one policy: ask, run on the traces, tell the policy what it cost."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from wattloop_planner.bandit.policy import (
    DecisionContext,
    DecisionKind,
    PartialObservation,
    Policy,
    ReviewingPolicy,
    decision_seed,
)
from wattloop_planner.observations import Observation, Outcome
from wattloop_planner.simulation.attempt import AttemptResult, Stop, run_attempt
from wattloop_planner.simulation.job import BatchSizeTrace, JobTrace
from wattloop_planner.simulation.traces import TrainingPath

MAX_ATTEMPTS = 20


@dataclass(frozen=True)
class Scenario:
    """What is simulated apart from the policy.

    Attributes:
        job: Its name.
        gpu: Name of the GPU model, where given.
        trace: What the traces say of it.
        target_metric: The target at the start.
        max_epochs: Epochs after which an attempt ends anyway.
        default_batch_size: The user's own choice.
        recurrences: How many to simulate.
        stop: Where an attempt that has become too dear ends.
        switch_at: Recurrence from which on another target is in force; None: never.
        switch_target_metric: That target.
        optimise_power: Whether power limits are profiled and chosen; the largest limit is held otherwise.
    """

    job: str
    gpu: str
    trace: JobTrace
    target_metric: float
    max_epochs: int
    default_batch_size: int
    recurrences: int
    stop: Stop = Stop.INSIDE
    switch_at: int | None = None
    switch_target_metric: float | None = None
    optimise_power: bool = True

    def target_in_force(self, recurrence: int) -> float:
        """The target metric of this recurrence."""
        if self.switch_at is None or self.switch_target_metric is None or recurrence < self.switch_at:
            return self.target_metric
        return self.switch_target_metric


@dataclass(frozen=True, slots=True)
class SimulatedAttempt:
    """One attempt as it went; the output has one row for each.

    Attributes:
        recurrence: From 0.
        attempt: Within the recurrence, from 0.
        target_metric: The target in force.
        batch_size: The size the policy chose.
        power_limit_watts: The limit held, after a profiled epoch the one chosen; None when that epoch was not finished.
        run: The training path drawn.
        profiled: Whether its first epoch was profiled.
        result: How it ended.
        decision: Why the policy chose it.
    """

    recurrence: int
    attempt: int
    target_metric: float
    batch_size: int
    power_limit_watts: float | None
    run: int
    profiled: bool
    result: AttemptResult
    decision: DecisionKind


def simulate(
    scenario: Scenario, policy: Policy, seed: int, known: tuple[Observation, ...] = ()
) -> Iterator[SimulatedAttempt]:
    """Run all recurrences of a job, attempt by attempt.

    Args:
        scenario: The job.
        policy: Who chooses.
        seed: Of the luck, which all policies and GPU models share, and of the policy's own draws.
        known: Observations the policy starts from, of recurrences below 0.

    Yields:
        The attempts, in order.

    Raises:
        NoFeasibleArmError: The policy has pruned every batch size.
    """
    observations = list(known)
    profiles: set[int] = set()
    for recurrence in range(scenario.recurrences):
        for attempt in range(MAX_ATTEMPTS):
            context = _context(scenario, recurrence, attempt, tuple(observations), seed)
            done = _attempt(scenario, policy, context, profiles, seed)
            yield done
            observations.append(_observation(scenario, done, done.batch_size in profiles))
            if done.result.outcome is Outcome.REACHED:
                break


def drawn_path(
    paths: tuple[TrainingPath, ...], seed: int, recurrence: int, attempt: int, batch_size: int
) -> TrainingPath:
    """The training path of an attempt, uniform among these, from (seed, recurrence, attempt, batch size) alone."""
    text = f"{seed}/{recurrence}/{attempt}/{batch_size}".encode()
    number = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")
    return paths[number * len(paths) >> 64]


def _context(
    scenario: Scenario, recurrence: int, attempt: int, observations: tuple[Observation, ...], seed: int
) -> DecisionContext:
    return DecisionContext(
        batch_sizes=scenario.trace.batch_sizes,
        default_batch_size=scenario.default_batch_size,
        eta=scenario.trace.eta,
        recurrence=recurrence,
        attempt=attempt,
        observations=observations,
        seed=decision_seed(scenario.job, recurrence, attempt, seed),
        gpu_model=scenario.gpu,
        remaining_recurrences=scenario.recurrences - recurrence - 1,
        max_epochs=scenario.max_epochs,
    )


def _attempt(
    scenario: Scenario, policy: Policy, context: DecisionContext, profiles: set[int], seed: int
) -> SimulatedAttempt:
    decision = policy.decide(context)
    size = scenario.trace.by_batch_size[decision.batch_size]
    target = scenario.target_in_force(context.recurrence)
    paths = scenario.trace.paths[target][size.batch_size]
    path = drawn_path(paths, seed, context.recurrence, context.attempt, size.batch_size)
    profiled = scenario.optimise_power and size.batch_size not in profiles

    def run_until(stop_cost_joules: float | None) -> AttemptResult:
        later = size.best if scenario.optimise_power else size.unoptimised
        return run_attempt(
            target_epoch=path.target_epoch,
            max_epochs=scenario.max_epochs,
            first=size.profiled if profiled else later,
            later=later,
            stop_cost_joules=stop_cost_joules,
            stop=scenario.stop,
        )

    result = run_until(decision.stop_cost_joules)
    if profiled and result.epochs > 1 and isinstance(policy, ReviewingPolicy):
        revised = policy.review(context, decision, _after_profiling(scenario, size))
        paid = size.profiled.cost_joules
        result = run_until(None if revised is None else max(revised, paid))
    if profiled and result.epochs >= 1:
        profiles.add(size.batch_size)
    return SimulatedAttempt(
        context.recurrence,
        context.attempt,
        target,
        size.batch_size,
        _limit_held(scenario, size, profiles),
        path.run,
        profiled,
        result,
        decision.kind,
    )


def _after_profiling(scenario: Scenario, size: BatchSizeTrace) -> PartialObservation:
    return PartialObservation(
        batch_size=size.batch_size,
        epochs=1.0,
        energy_joules=size.profiled.energy_joules,
        time_seconds=size.profiled.time_seconds,
        max_power_watts=scenario.trace.max_power_watts,
        epoch_energy_joules=size.best.energy_joules,
        epoch_time_seconds=size.best.time_seconds,
    )


def _limit_held(scenario: Scenario, size: BatchSizeTrace, profiles: set[int]) -> float | None:
    if not scenario.optimise_power:
        return size.highest_limit_watts
    return size.limit_watts if size.batch_size in profiles else None


def _observation(scenario: Scenario, done: SimulatedAttempt, profile_known: bool) -> Observation:
    best = scenario.trace.by_batch_size[done.batch_size].best if profile_known else None
    return Observation(
        recurrence=done.recurrence,
        attempt=done.attempt,
        batch_size=done.batch_size,
        outcome=done.result.outcome,
        epochs=done.result.epochs,
        energy_joules=done.result.energy_joules,
        time_seconds=done.result.time_seconds,
        max_power_watts=scenario.trace.max_power_watts,
        gpu_model=scenario.gpu,
        epoch_energy_joules=best.energy_joules if best else None,
        epoch_time_seconds=best.time_seconds if best else None,
    )
