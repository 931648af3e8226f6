"""Simulated jobs whose attempts take long to start, in virtual time, with what the operator would measure of them.

Each job has random epochs, costs of epochs and start-ups of up to 100 epochs' worth. An attempt that ran one epoch
shows only what it cost, except that half of the jobs measure a batch size's power limits in its first attempt.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from itertools import count

import numpy as np

from wattloop_planner.bandit.policy import ChoiceKind, Decision, DecisionContext, PartialObservation
from wattloop_planner.bandit.start_up_model import ExpectedStartUps
from wattloop_planner.bandit.start_ups import StartUps
from wattloop_planner.bandit.thompson_sampling import ThompsonSamplingPolicy
from wattloop_planner.observations import Observation, Outcome, StartUp

GPU = "NVIDIA A100"
SIZES = (16, 32, 64, 128, 256)
DEFAULT = 64
RECURRENCES = 40
MAX_ATTEMPTS = 8
# Joules of one epoch of the default batch size.
EPOCH_JOULES = 100.0
MAX_START_UP_EPOCHS = 100
PROFILING = 1.1
MAX_WATTS = 300.0
ROUNDING = 1e-9


class Kind(StrEnum):
    """How the start-ups of a job differ."""

    CONSTANT = "constant"
    NOISY = "noisy"
    GROWING = "growing"
    FIRST_OF_NODE = "first run of a node"
    SOME_SIZES = "some sizes"


@dataclass(frozen=True)
class Job:
    """A job.

    Attributes:
        seed: Seed of the job and of its attempts.
        epochs: Mean epochs to the target of each batch size.
        epoch_joules: Cost of an epoch of each batch size.
        is_profiled: Whether the first attempt of each batch size measures power limits.
        largest: The largest expected start-up, in joules.
        slow_sizes: Batch sizes with a start-up, if only some have one.
        nodes: Number of nodes, of which each attempt gets one.
        order: Order of the draws over the recurrences; 0: as drawn. A policy that always runs one batch size pays the
            same in every order.
    """

    seed: int
    kind: Kind
    epochs: dict[int, float]
    epoch_joules: dict[int, float]
    is_profiled: bool
    largest: float
    slow_sizes: frozenset[int]
    nodes: int
    order: int = 0

    @classmethod
    def of(cls, seed: int) -> Job:
        numbers = random.Random(f"job {seed}")
        kinds = list(Kind)
        octave = {size: math.log2(size / DEFAULT) for size in SIZES}
        best, curvature = numbers.uniform(-2, 2), numbers.uniform(0.05, 0.2)
        slope = numbers.uniform(-0.3, 0.05)
        level = numbers.uniform(6, 25) / math.exp(curvature * best**2)
        return cls(
            seed,
            kinds[seed % len(kinds)],
            {size: level * math.exp(curvature * (x - best) ** 2) for size, x in octave.items()},
            {size: EPOCH_JOULES * math.exp(slope * x + 0.04 * x**2) for size, x in octave.items()},
            is_profiled=numbers.random() < 0.5,
            largest=MAX_START_UP_EPOCHS * EPOCH_JOULES * numbers.random() ** 2,
            slow_sizes=frozenset(size for size in SIZES if numbers.random() < 0.5),
            nodes=numbers.randint(1, 3),
        )

    def expected_start_up(self, recurrence: int, size: int) -> float:
        """What a start is expected to cost."""
        if self.kind is Kind.GROWING:
            return self.largest * recurrence / RECURRENCES
        if self.kind is Kind.FIRST_OF_NODE or (self.kind is Kind.SOME_SIZES and size not in self.slow_sizes):
            return 0.0
        return self.largest

    def start_up(self, recurrence: int, attempt: int, size: int, seen_nodes: set[int]) -> float:
        """What a start costs."""
        numbers = random.Random(f"start {self.seed} {self._draw_of(recurrence)} {attempt}")
        if self.kind is Kind.FIRST_OF_NODE:
            node = numbers.randrange(self.nodes)
            is_first = node not in seen_nodes
            seen_nodes.add(node)
            return self.largest if is_first else 0.0
        factor = math.exp(numbers.gauss(-0.125, 0.5)) if self.kind is Kind.NOISY else 1.0
        return factor * self.expected_start_up(recurrence, size)

    def epochs_needed(self, recurrence: int, attempt: int, size: int) -> int:
        """Epochs of an attempt to the target."""
        numbers = random.Random(f"epochs {self.seed} {self._draw_of(recurrence)} {attempt} {size}")
        return max(1, round(self.epochs[size] * math.exp(numbers.gauss(0, 0.08))))

    def _draw_of(self, recurrence: int) -> int:
        return recurrence if self.order == 0 else _orders(self.seed, self.order)[recurrence]


@cache
def _orders(seed: int, order: int) -> list[int]:
    return random.Random(f"order {seed} {order}").sample(range(RECURRENCES), RECURRENCES)


class KnownStartUps(StartUps):
    """What a start of each batch size that ran is expected to cost, known exactly; of others, the mean of these."""

    def __init__(self, job: Job, recurrence: int, ran: set[int]) -> None:
        super().__init__(1.0, len(SIZES))
        self._job, self._recurrence, self._ran = job, recurrence, ran

    def expected(self, gpu_model: str) -> ExpectedStartUps:
        """See the class."""
        known = {size: self._job.expected_start_up(self._recurrence, size) for size in self._ran or {DEFAULT}}
        usual = sum(known.values()) / len(known)
        mean = np.array([known.get(size, usual) for size in SIZES])
        return ExpectedStartUps(mean, 0.0, np.zeros_like(mean))


@dataclass(frozen=True)
class Attempt:
    """A simulated attempt."""

    recurrence: int
    batch_size: int
    kind: ChoiceKind
    outcome: Outcome
    joules: float
    epochs: int


def simulate(job: Job, policy: ThompsonSamplingPolicy, *, knows: bool) -> Iterator[Attempt]:
    """The attempts of a job.

    Args:
        knows: Whether the policy knows the start-ups: that of each attempt at once, and what to expect.
    """
    observations: list[Observation] = []
    profiled: set[int] = set()
    seen_nodes: set[int] = set()
    for recurrence in range(RECURRENCES):
        for attempt in range(MAX_ATTEMPTS):
            known = tuple(observations)
            seed = recurrence * MAX_ATTEMPTS + attempt
            context = DecisionContext(SIZES, DEFAULT, 1.0, recurrence, attempt, known, seed, gpu_model=GPU)
            if knows:
                ran = {each.batch_size for each in observations}
                posterior = policy._cache.posterior(context, policy.window)
                posterior.epoch_costs.start_ups = KnownStartUps(job, recurrence, ran)
            decision = policy.decide(context)
            size = decision.batch_size
            profiles = job.is_profiled and size not in profiled
            start = job.start_up(recurrence, attempt, size, seen_nodes)
            observation = _run(job, policy, context, decision, start, profiles=profiles, knows=knows)
            if profiles:
                profiled.add(size)
            observations.append(observation)
            joules, epochs = observation.energy_joules, round(observation.epochs)
            yield Attempt(recurrence, size, decision.kind, observation.outcome, joules, epochs)
            if observation.outcome is Outcome.REACHED:
                break


def _run(
    job: Job,
    policy: ThompsonSamplingPolicy,
    context: DecisionContext,
    decision: Decision,
    start: float,
    *,
    profiles: bool,
    knows: bool,
) -> Observation:
    """One attempt, reviewed after each epoch, as the operator would record it."""
    size, each = decision.batch_size, job.epoch_joules[decision.batch_size]
    needed = job.epochs_needed(context.recurrence, context.attempt, size)
    for epoch in count(1):
        paid = start + each * (epoch + (PROFILING - 1 if profiles else 0))
        measured = each if epoch > 1 or profiles else None
        own = StartUp(start, 0.0) if measured or knows else None
        no_time = None if measured is None else 0.0
        partial = PartialObservation(size, epoch, paid, 0.0, MAX_WATTS, measured, no_time, start_up=own)
        limit = None if epoch >= needed else policy.review(context, decision, partial)
        is_stopped = limit is not None and paid >= limit * (1 - ROUNDING)
        if epoch >= needed or is_stopped:
            outcome = Outcome.STOPPED if is_stopped else Outcome.REACHED
            index = context.recurrence, context.attempt
            return Observation(*index, size, outcome, epoch, paid, 0.0, MAX_WATTS, GPU, measured, no_time, start_up=own)
    raise AssertionError("an attempt ends")


@dataclass(frozen=True)
class Comparison:
    """A policy that learns the start-ups of a job, compared with itself where it knows them.

    Attributes:
        known_joules: All costs of the policy that knows.
        attempts: The attempts of the policy that learns.
    """

    job: Job
    known_joules: float
    attempts: list[Attempt]

    @classmethod
    def of(cls, seed: int) -> Comparison:
        """The comparison for the job of a seed."""
        job = Job.of(seed)
        return cls(job, _cost(_attempts(job, knows=True)), _attempts(job, knows=False))

    @property
    def ratio(self) -> float:
        """All costs of the policy that learns over those of the one that knows."""
        return _cost(self.attempts) / self.known_joules

    def chance(self) -> float:
        """The same for the policy that knows, with the same draws in another order, over itself.

        It shows how far two runs of one policy differ by chance.
        """
        return _cost(_attempts(replace(self.job, order=1), knows=True)) / self.known_joules


def _attempts(job: Job, *, knows: bool) -> list[Attempt]:
    return list(simulate(job, ThompsonSamplingPolicy(max_cost_ratio=2.0, describe_arms=False), knows=knows))


def _cost(attempts: list[Attempt]) -> float:
    return math.fsum(each.joules for each in attempts)
