"""The interface of a policy: a pure function of the observations and a seed to a decision with its reason.

A policy keeps no state between decisions, so there is none to lose and every decision can be replayed.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, runtime_checkable

from wattloop_planner.observations import Observation


class DecisionKind(StrEnum):
    """Why an arm was chosen; the column ``decision`` of the simulator's output."""

    TRIAL = "trial"
    SAMPLE = "sample"
    INCUMBENT = "incumbent"
    PRUNE = "prune"
    DEFAULT = "default"


@dataclass(frozen=True)
class DecisionContext:
    """All that a decision is made from.

    Attributes:
        batch_sizes: The arms, distinct, in rising order.
        default_batch_size: The user's own choice, one of them.
        eta: Weight of energy against time in the cost.
        recurrence: Index of the recurrence to decide for, from 0.
        attempt: Index of the attempt within it, from 0.
        observations: What is known, ordered by (recurrence, attempt).
        running: Batch sizes of this job's attempts in flight, whose outcomes are not known yet.
        seed: Source of all randomness of this one decision; see `decision_seed`.
        gpu_model: Product name of the GPUs that the attempt will run on, where known.
        remaining_recurrences: How many recurrences are still to come, where that is limited.
        max_epochs: Epochs after which an attempt is exhausted, where limited.
    """

    batch_sizes: tuple[int, ...]
    default_batch_size: int
    eta: float
    recurrence: int
    attempt: int
    observations: tuple[Observation, ...]
    seed: int
    running: tuple[int, ...] = ()
    gpu_model: str = ""
    remaining_recurrences: int | None = None
    max_epochs: int | None = None


@dataclass(frozen=True)
class Arm:
    """What a policy believes of one batch size, for status and for `wattloop replay --arms`.

    Attributes:
        batch_size: The arm.
        observations: How many inform it.
        pruned: Whether it is out, and `note` says why.
        mean_cost_joules: Posterior mean of the cost of reaching the target, where there is one.
        low_cost_joules: Lower end of the central 90 % interval of that cost.
        high_cost_joules: Upper end of it.
        note: One sentence where something is to be said.
    """

    batch_size: int
    observations: int
    pruned: bool = False
    mean_cost_joules: float | None = None
    low_cost_joules: float | None = None
    high_cost_joules: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Decision:
    """Which batch size to run, why, and when to give up.

    Attributes:
        batch_size: The arm to run.
        kind: Why, in one word.
        reason: Why, in one sentence for a user.
        stop_cost_joules: Cost at which the attempt is to be stopped; None: never for being dear.
        arms: What the policy believes of every arm, in rising order of batch size.
    """

    batch_size: int
    kind: DecisionKind
    reason: str
    stop_cost_joules: float | None = None
    arms: tuple[Arm, ...] = ()


@dataclass(frozen=True)
class PartialObservation:
    """What an attempt under way has shown, at the moment its epoch cost became known.

    Attributes:
        batch_size: The arm.
        epochs: Epochs run so far.
        energy_joules: Energy of all GPUs so far.
        time_seconds: Duration so far.
        max_power_watts: Sum of the maximum power limits of the GPUs it runs on.
        epoch_energy_joules: Energy of one epoch at the best power limit.
        epoch_time_seconds: Duration of one epoch at the best power limit.
    """

    batch_size: int
    epochs: float
    energy_joules: float
    time_seconds: float
    max_power_watts: float
    epoch_energy_joules: float
    epoch_time_seconds: float


class NoFeasibleArmError(Exception):
    """Every batch size is pruned; the text says by what, and the way out."""


class Policy(Protocol):
    """A way of choosing."""

    def decide(self, context: DecisionContext) -> Decision:
        """Choose the batch size of one attempt.

        Raises:
            NoFeasibleArmError: No batch size is left that could be run.
        """
        ...


@runtime_checkable
class ReviewingPolicy(Policy, Protocol):
    """A policy that thinks again about an attempt under way, once its first epoch has shown what an epoch costs."""

    def review(self, context: DecisionContext, decision: Decision, partial: PartialObservation) -> float | None:
        """The cost at which the attempt is to be stopped now, in place of the decision's; None: never.

        A cost that is paid already stops it at once.

        Args:
            context: The question that the attempt was decided by.
            decision: The decision.
            partial: What the attempt has shown.
        """
        ...


def decision_seed(job_uid: str, recurrence: int, attempt: int, seed: int = 0) -> int:
    """The seed of one decision: 64 bits derived from the job and the attempt, so that arms of two jobs draw apart.

    Example:
        >>> decision_seed("a", 0, 0) != decision_seed("a", 0, 1)
        True
    """
    text = f"{job_uid}/{recurrence}/{attempt}/{seed}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")
