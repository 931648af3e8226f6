"""Simulates the recurrences of one job under one policy on measured traces."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Set
from dataclasses import dataclass, replace
from itertools import count

from wattloop.wire.environment import RunTarget
from wattloop_planner.bandit.configuration import Configuration
from wattloop_planner.bandit.policy import (
    ChoiceKind,
    DecisionContext,
    PartialObservation,
    Policy,
    decision_seed,
    reviews,
)
from wattloop_planner.metric_curve import MetricCurve
from wattloop_planner.observations import Observation, Outcome, ParameterValues, retargeted
from wattloop_research.simulation.job_trace import ConfigurationTrace, JobTrace
from wattloop_research.simulation.simulated_attempt import AttemptResult, Epoch, Stop, run_attempt
from wattloop_research.simulation.traces import TrainingPath

MAX_ATTEMPTS = 20
# Name of the metric of the traces in curves and targets.
METRIC = "metric"


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
        with_curves: Whether the policy sees the curves of the training paths.
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
    with_curves: bool = True

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
    decision: ChoiceKind
    last_attempt: bool = False
    parameters: ParameterValues = ()

    @property
    def configuration(self) -> Configuration:
        """Batch size and parameters."""
        return Configuration(self.batch_size, self.parameters)

    @property
    def completes_profile(self) -> bool:
        """Whether it measures the power limits of its configuration."""
        return self.profiled and self.result.epochs >= 1

    @property
    def ends_recurrence(self) -> bool:
        """Whether it reached the target, or the policy gives up, or it is the last attempt that a recurrence has."""
        last = self.last_attempt or self.attempt + 1 == MAX_ATTEMPTS
        return last or self.result.outcome is Outcome.REACHED


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
        # Policies without a model of bounds see the attempts as they were, as in the published simulations.
        if recurrence == scenario.switch_at and scenario.with_curves and reviews(policy):
            observations = _at_other_target(scenario, observations)
        for attempt in range(MAX_ATTEMPTS):
            context = simulated_context(scenario, recurrence, attempt, tuple(observations), seed)
            simulated, curve = run_decided(scenario, policy, context, profiles, seed)
            yield simulated
            if simulated.completes_profile:
                profiles.add(simulated.configuration)
            observations.append(
                simulated_observation(scenario, simulated, curve, profile_known=simulated.configuration in profiles)
            )
            if simulated.ends_recurrence:
                break


def _at_other_target(scenario: Scenario, observations: list[Observation]) -> list[Observation]:
    """What the attempts before a switch of the target say of the other target, as the operator passes it."""
    assert scenario.switch_at is not None
    target = RunTarget(METRIC, scenario.target_of(scenario.switch_at))
    return [retargeted(each, target) or replace(each, curve=None, other_target=True) for each in observations]


def draw_path(
    paths: tuple[TrainingPath, ...], seed: int, recurrence: int, attempt: int, configuration: Configuration
) -> TrainingPath:
    """Draw a training path uniformly; it depends only on (seed, recurrence, attempt, configuration)."""
    text = f"{seed}/{recurrence}/{attempt}/{configuration}".encode()
    number = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")
    return paths[number * len(paths) >> 64]


def simulated_context(
    scenario: Scenario,
    recurrence: int,
    attempt: int,
    observations: tuple[Observation, ...],
    seed: int,
    *,
    running: tuple[Configuration, ...] = (),
) -> DecisionContext:
    """What a policy knows when an attempt begins.

    Args:
        scenario: The job.
        recurrence: Index of the recurrence.
        attempt: Index of the attempt within it.
        observations: The attempts that have ended, ordered by (recurrence, attempt).
        seed: Seed of the simulation.
        running: Configurations of the job's attempts in flight.
    """
    return DecisionContext(
        batch_sizes=scenario.trace.batch_sizes,
        default_batch_size=scenario.default_batch_size,
        eta=scenario.trace.eta,
        recurrence=recurrence,
        attempt=attempt,
        observations=observations,
        running=running,
        seed=decision_seed(scenario.job, recurrence, attempt, seed),
        gpu_model=scenario.gpu,
        remaining_recurrences=scenario.recurrences - recurrence - 1,
        max_epochs=scenario.max_epochs,
        parameters=scenario.trace.parameters,
        target=RunTarget(METRIC, scenario.target_of(recurrence)) if scenario.with_curves else None,
    )


def run_decided(
    scenario: Scenario, policy: Policy, context: DecisionContext, profiles: Set[Configuration], seed: int
) -> tuple[SimulatedAttempt, MetricCurve | None]:
    """Let the policy decide, and run the attempt.

    Args:
        scenario: The job.
        policy: The policy.
        context: What the policy knows when the attempt begins.
        profiles: The configurations whose power limits are measured by then.
        seed: Seed of the simulation.

    Returns:
        The attempt, and its curve over the epochs run.
    """
    decision = policy.decide(context)
    chosen = scenario.trace.by_configuration[decision.configuration]
    target = scenario.target_of(context.recurrence)
    paths = scenario.trace.paths[target][chosen.configuration]
    path = draw_path(paths, seed, context.recurrence, context.attempt, chosen.configuration)
    profiled = scenario.optimise_power and chosen.configuration not in profiles

    later = chosen.best if scenario.optimise_power else chosen.unoptimised
    first = chosen.profiled if profiled else later

    def run_until(stop_cost_joules: float | None) -> AttemptResult:
        return run_attempt(
            target_epoch=path.target_epoch,
            max_epochs=scenario.max_epochs,
            first=first,
            later=later,
            stop_cost_joules=stop_cost_joules,
            stop=scenario.stop,
        )

    result = run_until(decision.stop_cost_joules)
    curve = _curve(scenario, target, chosen.configuration, path)
    if decision.stop_cost_joules is not None and reviews(policy):
        for epoch in count(1):
            if result.epochs <= epoch:
                break
            partial = _after_epochs(scenario, chosen, first, epoch, curve)
            revised = policy.review(context, decision, partial)
            paid = first.cost_joules + (epoch - 1) * later.cost_joules
            result = run_until(None if revised is None else max(revised, paid))
    simulated = SimulatedAttempt(
        context.recurrence,
        context.attempt,
        target,
        decision.batch_size,
        _power_limit(scenario, chosen, limits_known=not profiled or result.epochs >= 1),
        path.run,
        profiled,
        result,
        decision.kind,
        decision.last_attempt,
        decision.parameters,
    )
    return simulated, None if curve is None else curve.before(result.epochs)


def _curve(scenario: Scenario, target: float, configuration: Configuration, path: TrainingPath) -> MetricCurve | None:
    """The whole curve of a training path; a policy must see it only up to the epochs run."""
    return scenario.trace.curves[target].get(configuration, {}).get(path.run) if scenario.with_curves else None


def _after_epochs(
    scenario: Scenario, chosen: ConfigurationTrace, first: Epoch, epochs: int, curve: MetricCurve | None
) -> PartialObservation:
    later = chosen.best if scenario.optimise_power else chosen.unoptimised
    return PartialObservation(
        batch_size=chosen.configuration.batch_size,
        parameters=chosen.configuration.parameters,
        epochs=float(epochs),
        energy_joules=first.energy_joules + (epochs - 1) * later.energy_joules,
        time_seconds=first.time_seconds + (epochs - 1) * later.time_seconds,
        max_power_watts=scenario.trace.max_power_watts,
        epoch_energy_joules=chosen.best.energy_joules,
        epoch_time_seconds=chosen.best.time_seconds,
        curve=None if curve is None else curve.before(epochs),
    )


def _power_limit(scenario: Scenario, chosen: ConfigurationTrace, *, limits_known: bool) -> float | None:
    if not scenario.optimise_power:
        return chosen.highest_limit_watts
    return chosen.limit_watts if limits_known else None


def simulated_observation(
    scenario: Scenario, simulated: SimulatedAttempt, curve: MetricCurve | None, *, profile_known: bool
) -> Observation:
    """What an attempt teaches when it ends.

    Args:
        scenario: The job.
        simulated: The attempt.
        curve: Its curve over the epochs run.
        profile_known: Whether the power limits of its configuration are measured by then.
    """
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
        curve=curve,
    )
