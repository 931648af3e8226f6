"""The interface of a policy: a pure function from observations and a seed to a decision.

A policy keeps no state between decisions, so no state can be lost and every decision can be replayed.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache, cached_property
from typing import Protocol, TypeGuard, runtime_checkable

from wattloop.wire.environment import RunTarget
from wattloop_planner.bandit.configuration import Configuration, ConfigurationSpace, Parameter, configuration_space
from wattloop_planner.estimate import RunCost
from wattloop_planner.metric_curve import MetricCurve
from wattloop_planner.observations import Observation, ParameterValues, StartUp

# Quantile of the standard normal distribution for the central 90 % interval.
NINETY_PERCENT = 1.6448536269514722


class ChoiceKind(StrEnum):
    """Why an arm was chosen; the column ``decision`` of the simulator's output."""

    TRIAL = "trial"
    SAMPLE = "sample"
    INCUMBENT = "incumbent"
    PRUNE = "prune"
    DEFAULT = "default"


@dataclass(frozen=True)
class DecisionContext:
    """The complete input of a decision.

    Attributes:
        batch_sizes: The batch sizes, distinct, in rising order.
        default_batch_size: The user's own choice, usually one of the batch sizes.
        eta: Weight of energy against time in the cost.
        recurrence: Index of the recurrence to decide for, from 0.
        attempt: Index of the attempt within it, from 0.
        observations: Earlier attempts, ordered by (recurrence, attempt).
        running: Configurations of this job's attempts in flight.
        seed: Seed of all random numbers of this decision; see `decision_seed`.
        gpu_model: Product name of the GPUs that will run the attempt; empty if unknown.
        remaining_recurrences: Number of recurrences after this one; None if unlimited.
        max_epochs: Epochs after which an attempt is exhausted; None if unlimited.
        target: The target of the attempt, to which the curves of the observations refer; None if unknown.
            Curves are ignored then.
        parameters: Further parameters. An arm is a batch size with a candidate of each.
        excluded: Configurations that must not be chosen, such as those that the metric guard found to fall short;
            never the default. What was observed of them still informs about the others.
    """

    batch_sizes: tuple[int, ...]
    default_batch_size: int
    eta: float
    recurrence: int
    attempt: int
    observations: tuple[Observation, ...]
    seed: int
    running: tuple[Configuration, ...] = ()
    gpu_model: str = ""
    remaining_recurrences: int | None = None
    max_epochs: int | None = None
    target: RunTarget | None = None
    parameters: tuple[Parameter, ...] = ()
    excluded: tuple[Configuration, ...] = ()

    @cached_property
    def space(self) -> ConfigurationSpace:
        """The arms."""
        return configuration_space(self.batch_sizes, self.default_batch_size, self.parameters)

    def arm_of(self, observation: Observation) -> int | None:
        """Index of the arm that an attempt ran; None if it is not offered."""
        return self.space.index(observation.batch_size, observation.parameters)

    @cached_property
    def arms_running(self) -> tuple[int, ...]:
        """Indices of the arms in flight."""
        return tuple(self._offered(self.running))

    @cached_property
    def arms_excluded(self) -> frozenset[int]:
        """Indices of the arms that must not be chosen."""
        return frozenset(self._offered(self.excluded))

    def _offered(self, configurations: Iterable[Configuration]) -> Iterator[int]:
        arms = (self.space.index(each.batch_size, each.parameters) for each in configurations)
        return (arm for arm in arms if arm is not None)


@dataclass(frozen=True)
class Arm:
    """A policy's estimate of one configuration, for the status and for `wattloop replay --arms`.

    Attributes:
        pruned: Whether the arm is excluded; `note` gives the reason.
        mean_cost_joules: Expected cost of a recurrence; None if unknown. `run_costs` has that of an arm that reached
            the target.
        low_cost_joules: Lower end of the interval that contains 90 % of later recurrences.
        mean_log_sd: Standard deviation of the log of the expected cost.
        note: A remark for the user, or empty.
        parameters: Values of the further parameters of the arm.
    """

    batch_size: int
    observations: int
    pruned: bool = False
    mean_cost_joules: float | None = None
    low_cost_joules: float | None = None
    high_cost_joules: float | None = None
    mean_log_sd: float | None = None
    note: str = ""
    parameters: ParameterValues = ()

    @property
    def configuration(self) -> Configuration:
        """Batch size and parameters."""
        return Configuration(self.batch_size, self.parameters)

    def with_cost(self, cost: RunCost | None) -> Arm:
        """The same with what its runs did cost; unchanged if none reached the target."""
        if cost is None:
            return self
        run, mean = cost.of_run, cost.expected
        is_known = 0 < mean.low < mean.high < math.inf
        return replace(
            self,
            mean_cost_joules=run.value,
            low_cost_joules=run.low,
            high_cost_joules=run.high,
            mean_log_sd=math.log(mean.high / mean.low) / (2 * NINETY_PERCENT) if is_known else None,
        )


@dataclass(frozen=True)
class Decision:
    """The configuration to run, the reason, and the cost at which to stop.

    Attributes:
        reason: The reason in one sentence for a user.
        stop_cost_joules: Cost at which to stop the attempt; None disables cost-based stopping.
        arms: The policy's estimate of every arm, in rising order of batch size.
        last_attempt: Whether the recurrence ends with this attempt even if it misses the target, because
            a retry is not expected to reach it either. A crash is retried nevertheless.
        parameters: Values of the further parameters to run with.
        incumbent: The configuration that would run without a trial: the cheapest by all that is known, neighbours
            included; None if the policy has none.
    """

    batch_size: int
    kind: ChoiceKind
    reason: str
    stop_cost_joules: float | None = None
    arms: tuple[Arm, ...] = ()
    last_attempt: bool = False
    parameters: ParameterValues = ()
    incumbent: Configuration | None = None

    @property
    def configuration(self) -> Configuration:
        """Batch size and parameters."""
        return Configuration(self.batch_size, self.parameters)


@dataclass(frozen=True)
class PartialObservation:
    """The measurements of a running attempt, from when its epoch cost is known.

    Attributes:
        max_power_watts: Sum of the maximum power limits of the GPUs it runs on.
        epoch_energy_joules: Energy of one epoch at the best power limit. None: the mean of the epochs so far,
            without the start of the attempt.
        epoch_time_seconds: Duration of one epoch at the best power limit; None together with the energy.
        curve: The metric over the epochs run so far; None if unknown.
        parameters: Values of the further parameters of the arm.
        start_up: What the attempt used before its epochs; None if not measured.
    """

    batch_size: int
    epochs: float
    energy_joules: float
    time_seconds: float
    max_power_watts: float
    epoch_energy_joules: float | None
    epoch_time_seconds: float | None
    curve: MetricCurve | None = None
    parameters: ParameterValues = ()
    start_up: StartUp | None = None


class NoFeasibleArmError(Exception):
    """Every configuration is pruned; the message gives the cause and the remedy."""


class Policy(Protocol):
    """Chooses the configuration of an attempt."""

    def decide(self, context: DecisionContext) -> Decision:
        """Choose the configuration of one attempt.

        Raises:
            NoFeasibleArmError: No feasible configuration is left.
        """
        ...


@runtime_checkable
class ReviewingPolicy(Policy, Protocol):
    """A policy that revises the stopping cost of a running attempt: once its epoch cost is known, at each report."""

    def review(self, context: DecisionContext, decision: Decision, partial: PartialObservation) -> float | None:
        """The cost at which to stop the attempt, which replaces the decision's; None: never.

        The attempt stops immediately if it has already cost this much.
        """
        ...


def reviews(policy: Policy) -> TypeGuard[ReviewingPolicy]:
    """Whether a policy revises stopping costs; by its class, because an object's check against a protocol is slow."""
    return _is_reviewing(type(policy))


@cache
def _is_reviewing(kind: type[Policy]) -> bool:
    return issubclass(kind, ReviewingPolicy)


def decision_seed(job_uid: str, recurrence: int, attempt: int, seed: int = 0) -> int:
    """The seed of one decision: 64 bits derived from job and attempt, so that jobs draw independently.

    Example:
        >>> decision_seed("a", 0, 0) != decision_seed("a", 0, 1)
        True
    """
    text = f"{job_uid}/{recurrence}/{attempt}/{seed}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")
