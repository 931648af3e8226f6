"""One attempt of a simulated job: what the policy knows, what it runs, and what that teaches."""

import hashlib
from collections.abc import Set
from dataclasses import dataclass
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
from wattloop_planner.observations import Observation, Outcome, ParameterValues
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
        gpu: Name of the GPU model, or empty.
        max_epochs: Maximum number of epochs of an attempt.
        stop: Where an attempt ends that has become too expensive.
        switch_at: First recurrence with the other target; None: never.
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
        batch_size: The batch size that the policy chose.
        power_limit_watts: The power limit; after a profiled epoch, the chosen one. None if the profiled
            epoch did not finish.
        profiled: Whether the first epoch was profiled.
        decision: Why the policy chose the batch size.
        last_attempt: Whether the policy ends the recurrence with this attempt, even without the target.
        parameters: The values of further parameters that the policy chose.
        start_seconds: When it began, in the time of the arrivals.
        in_flight: Other attempts of its job that ran when it was decided.
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
    start_seconds: float = 0.0
    in_flight: int = 0

    @property
    def end_seconds(self) -> float:
        """When it ended, in the time of the arrivals."""
        return self.start_seconds + self.result.time_seconds

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
    scenario: Scenario,
    policy: Policy,
    context: DecisionContext,
    profiles: Set[Configuration],
    seed: int,
    *,
    start_seconds: float,
) -> tuple[SimulatedAttempt, MetricCurve | None]:
    """Let the policy decide, and run the attempt.

    Args:
        scenario: The job.
        policy: The policy.
        context: What the policy knows when the attempt begins.
        profiles: The configurations whose power limits are measured by then.
        seed: Seed of the simulation.
        start_seconds: When it begins.

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
    # The whole curve: a policy must see it only up to the epochs run.
    curves = scenario.trace.curves[target] if scenario.with_curves else {}
    curve = curves.get(chosen.configuration, {}).get(path.run)
    if decision.stop_cost_joules is not None and reviews(policy):
        for epoch in count(1):
            if result.epochs <= epoch:
                break
            partial = _after_epochs(scenario, chosen, first, epoch, curve)
            revised = policy.review(context, decision, partial)
            paid = first.cost_joules + (epoch - 1) * later.cost_joules
            result = run_until(None if revised is None else max(revised, paid))
    limit_watts: float | None = chosen.highest_limit_watts
    if scenario.optimise_power:
        limit_watts = chosen.limit_watts if not profiled or result.epochs >= 1 else None
    simulated = SimulatedAttempt(
        context.recurrence,
        context.attempt,
        target,
        decision.batch_size,
        limit_watts,
        path.run,
        profiled,
        result,
        decision.kind,
        decision.last_attempt,
        decision.parameters,
        start_seconds,
        len(context.running),
    )
    return simulated, None if curve is None else curve.before(result.epochs)


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
