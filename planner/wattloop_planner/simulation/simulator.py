"""Simulates the recurrences of one job under one policy on measured traces."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from wattloop_planner.bandit.configuration import Configuration
from wattloop_planner.bandit.policy import (
    DecisionContext,
    DecisionKind,
    PartialObservation,
    Policy,
    ReviewingPolicy,
    decision_seed,
)
from wattloop_planner.observations import Observation, Outcome, ParameterValues
from wattloop_planner.simulation.attempt import AttemptResult, Stop, run_attempt
from wattloop_planner.simulation.job import ConfigurationTrace, JobTrace
from wattloop_planner.simulation.traces import TrainingPath

MAX_ATTEMPTS = 20


@dataclass(frozen=True)
class Scenario:
    """A simulated job, without the policy.

    Attributes:
        job: Name of the job.
        gpu: Name of the GPU model, or empty.
        trace: The job's measured traces.
        target_metric: The target at the start.
        max_epochs: Maximum number of epochs of an attempt.
        default_batch_size: The user's own choice.
        recurrences: Number of recurrences to simulate.
        stop: Where an attempt ends that has become too expensive.
        switch_at: First recurrence with the other target; None: never.
        switch_target_metric: The other target.
        optimise_power: Whether power limits are profiled and chosen; if not, the highest limit is used.
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

    def target_of(self, recurrence: int) -> float:
        """The target metric of a recurrence."""
        if self.switch_at is None or self.switch_target_metric is None or recurrence < self.switch_at:
            return self.target_metric
        return self.switch_target_metric


@dataclass(frozen=True, slots=True)
class SimulatedAttempt:
    """One simulated attempt; one row of the output.

    Attributes:
        recurrence: From 0.
        attempt: Within the recurrence, from 0.
        target_metric: The target of the recurrence.
        batch_size: The batch size that the policy chose.
        power_limit_watts: The power limit; after a profiled epoch, the chosen one. None if the profiled
            epoch did not finish.
        run: The training path drawn.
        profiled: Whether the first epoch was profiled.
        result: Outcome, energy, time and cost.
        decision: Why the policy chose the batch size.
        last_attempt: Whether the policy ends the recurrence with this attempt, even without the target.
        parameters: The values of further parameters that the policy chose.
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
    last_attempt: bool = False
    parameters: ParameterValues = ()

    @property
    def configuration(self) -> Configuration:
        """Batch size and parameters."""
        return Configuration(self.batch_size, self.parameters)


def simulate(
    scenario: Scenario, policy: Policy, seed: int, known: tuple[Observation, ...] = ()
) -> Iterator[SimulatedAttempt]:
    """Run all recurrences of a job, attempt by attempt.

    Args:
        scenario: The job.
        policy: The policy.
        seed: Seed of the training paths, which all policies and GPU models share, and of the policy.
        known: Initial observations, of recurrences below 0.

    Yields:
        The attempts, in order.

    Raises:
        NoFeasibleArmError: The policy has pruned every batch size.
    """
    observations = list(known)
    profiles: set[Configuration] = set()
    for recurrence in range(scenario.recurrences):
        for attempt in range(MAX_ATTEMPTS):
            context = _context(scenario, recurrence, attempt, tuple(observations), seed)
            simulated = _attempt(scenario, policy, context, profiles, seed)
            yield simulated
            observations.append(_observation(scenario, simulated, simulated.configuration in profiles))
            if simulated.result.outcome is Outcome.REACHED or simulated.last_attempt:
                break


def draw_path(
    paths: tuple[TrainingPath, ...], seed: int, recurrence: int, attempt: int, configuration: Configuration
) -> TrainingPath:
    """Draw a training path uniformly; it depends only on (seed, recurrence, attempt, configuration)."""
    text = f"{seed}/{recurrence}/{attempt}/{configuration}".encode()
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
        parameters=scenario.trace.parameters,
    )


def _attempt(
    scenario: Scenario, policy: Policy, context: DecisionContext, profiles: set[Configuration], seed: int
) -> SimulatedAttempt:
    decision = policy.decide(context)
    chosen = scenario.trace.by_configuration[Configuration(decision.batch_size, decision.parameters)]
    target = scenario.target_of(context.recurrence)
    paths = scenario.trace.paths[target][chosen.configuration]
    path = draw_path(paths, seed, context.recurrence, context.attempt, chosen.configuration)
    profiled = scenario.optimise_power and chosen.configuration not in profiles

    def run_until(stop_cost_joules: float | None) -> AttemptResult:
        later = chosen.best if scenario.optimise_power else chosen.unoptimised
        return run_attempt(
            target_epoch=path.target_epoch,
            max_epochs=scenario.max_epochs,
            first=chosen.profiled if profiled else later,
            later=later,
            stop_cost_joules=stop_cost_joules,
            stop=scenario.stop,
        )

    result = run_until(decision.stop_cost_joules)
    if profiled and result.epochs > 1 and isinstance(policy, ReviewingPolicy):
        revised = policy.review(context, decision, _after_profiling(scenario, chosen))
        paid = chosen.profiled.cost_joules
        result = run_until(None if revised is None else max(revised, paid))
    if profiled and result.epochs >= 1:
        profiles.add(chosen.configuration)
    return SimulatedAttempt(
        context.recurrence,
        context.attempt,
        target,
        decision.batch_size,
        _power_limit(scenario, chosen, profiles),
        path.run,
        profiled,
        result,
        decision.kind,
        decision.last_attempt,
        decision.parameters,
    )


def _after_profiling(scenario: Scenario, chosen: ConfigurationTrace) -> PartialObservation:
    return PartialObservation(
        batch_size=chosen.configuration.batch_size,
        parameters=chosen.configuration.parameters,
        epochs=1.0,
        energy_joules=chosen.profiled.energy_joules,
        time_seconds=chosen.profiled.time_seconds,
        max_power_watts=scenario.trace.max_power_watts,
        epoch_energy_joules=chosen.best.energy_joules,
        epoch_time_seconds=chosen.best.time_seconds,
    )


def _power_limit(scenario: Scenario, chosen: ConfigurationTrace, profiles: set[Configuration]) -> float | None:
    if not scenario.optimise_power:
        return chosen.highest_limit_watts
    return chosen.limit_watts if chosen.configuration in profiles else None


def _observation(scenario: Scenario, simulated: SimulatedAttempt, profile_known: bool) -> Observation:
    best = scenario.trace.by_configuration[simulated.configuration].best if profile_known else None
    return Observation(
        recurrence=simulated.recurrence,
        attempt=simulated.attempt,
        batch_size=simulated.batch_size,
        parameters=simulated.parameters,
        outcome=simulated.result.outcome,
        epochs=simulated.result.epochs,
        energy_joules=simulated.result.energy_joules,
        time_seconds=simulated.result.time_seconds,
        max_power_watts=scenario.trace.max_power_watts,
        gpu_model=scenario.gpu,
        epoch_energy_joules=best.energy_joules if best else None,
        epoch_time_seconds=best.time_seconds if best else None,
    )
