"""Simulated jobs whose attempts take long to start, in virtual time, with what the operator would measure of them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from wattloop_planner.bandit.policy import DecisionContext, DecisionKind, PartialObservation
from wattloop_planner.bandit.start_ups import ExpectedStartUps, StartUps
from wattloop_planner.bandit.thompson_sampling import ThompsonSamplingPolicy
from wattloop_planner.observations import Observation, Outcome, StartUp

GPU = "NVIDIA A100"
SIZES = (16, 32, 64, 128, 256)
DEFAULT = 64
RECURRENCES = 40
MAX_ATTEMPTS = 8
# Joules of one epoch of the default batch size.
EPOCH_JOULES = 100.0
PROFILING = 1.1


class Kind(StrEnum):
    """How the start-ups of a job differ."""

    CONSTANT = "constant"
    NOISY = "noisy"
    GROWING = "growing"
    FIRST_OF_NODE = "first run of a node"
    SOME_SIZES = "some sizes"


@dataclass(frozen=True)
class Job:
    """A job with random start-ups, epochs and costs of epochs, all from a seed.

    Attributes:
        seed: The seed.
    """

    seed: int
    kind: Kind = field(init=False)
    epochs: dict[int, float] = field(init=False)
    epoch_joules: dict[int, float] = field(init=False)

    def __post_init__(self) -> None:
        numbers = random.Random(f"job {self.seed}")
        known = list(Kind)
        octave = {size: math.log2(size / DEFAULT) for size in SIZES}
        best, curvature = numbers.uniform(-2, 2), numbers.uniform(0.05, 0.2)
        slope = numbers.uniform(-0.3, 0.05)
        level = numbers.uniform(6, 25) / math.exp(curvature * best**2)
        values = {
            "kind": known[self.seed % len(known)],
            "epochs": {size: level * math.exp(curvature * (x - best) ** 2) for size, x in octave.items()},
            "epoch_joules": {size: EPOCH_JOULES * math.exp(slope * x + 0.04 * x**2) for size, x in octave.items()},
            "is_profiled": numbers.random() < 0.5,
            "largest": 100 * EPOCH_JOULES * numbers.random() ** 2,
            "slow_sizes": {size for size in SIZES if numbers.random() < 0.5},
            "nodes": numbers.randint(1, 3),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def expected_start_up(self, recurrence: int, size: int) -> float:
        """What a start is expected to cost."""
        largest: float = self.largest
        if self.kind is Kind.GROWING:
            return largest * recurrence / RECURRENCES
        if self.kind is Kind.SOME_SIZES:
            return largest if size in self.slow_sizes else 0.0
        if self.kind is Kind.FIRST_OF_NODE:
            return 0.0
        return largest

    def start_up(self, recurrence: int, attempt: int, size: int, seen_nodes: set[int]) -> float:
        """What a start costs."""
        numbers = random.Random(f"start {self.seed} {recurrence} {attempt}")
        if self.kind is Kind.FIRST_OF_NODE:
            node = numbers.randrange(self.nodes)
            is_first = node not in seen_nodes
            seen_nodes.add(node)
            return self.largest if is_first else 0.0
        factor = math.exp(numbers.gauss(-0.125, 0.5)) if self.kind is Kind.NOISY else 1.0
        return factor * self.expected_start_up(recurrence, size)

    def epochs_needed(self, recurrence: int, attempt: int, size: int) -> int:
        """Epochs of an attempt to the target."""
        numbers = random.Random(f"epochs {self.seed} {recurrence} {attempt} {size}")
        return max(1, round(self.epochs[size] * math.exp(numbers.gauss(0, 0.08))))


class KnownStartUps(StartUps):
    """The start-ups of a job, known in advance."""

    def __init__(self, job: Job, recurrence: int, ran: set[int]) -> None:
        super().__init__(1.0, len(SIZES))
        self._job, self._recurrence, self._ran = job, recurrence, ran

    def expected(self, gpu_model: str) -> ExpectedStartUps:
        known = {size: self._job.expected_start_up(self._recurrence, size) for size in self._ran or {DEFAULT}}
        usual = sum(known.values()) / len(known)
        mean = np.array([known.get(size, usual) for size in SIZES])
        return ExpectedStartUps(mean, 0.0)


@dataclass(frozen=True)
class Attempt:
    recurrence: int
    attempt: int
    size: int
    kind: DecisionKind
    outcome: Outcome
    joules: float
    start_up: float
    epochs: int


def simulate(job: Job, *, knows: bool, policy_of: Callable[[], ThompsonSamplingPolicy]) -> Iterator[Attempt]:
    """The attempts of a job; with `knows`, the policy knows the start-ups in advance, and measures each at once."""
    policy = policy_of()
    observations: list[Observation] = []
    profiled: set[int] = set()
    seen_nodes: set[int] = set()
    for recurrence in range(RECURRENCES):
        for attempt in range(MAX_ATTEMPTS):
            context = DecisionContext(
                SIZES, DEFAULT, 1.0, recurrence, attempt, tuple(observations), recurrence * 100 + attempt, gpu_model=GPU
            )
            if knows:
                policy._posterior(context).epoch_costs.start_ups = KnownStartUps(
                    job, recurrence, {o.batch_size for o in observations}
                )
            decision = policy.decide(context)
            size = decision.batch_size
            start = job.start_up(recurrence, attempt, size, seen_nodes)
            needed = job.epochs_needed(recurrence, attempt, size)
            profiles = job.is_profiled and size not in profiled
            each = job.epoch_joules[size]
            limit, outcome, epoch = decision.stop_cost_joules, Outcome.REACHED, 0
            while True:
                epoch += 1
                paid = start + each * (epoch + (PROFILING - 1 if profiles else 0))
                measured = epoch > 1 or profiles
                own = StartUp(start, 0.0) if measured or knows else None
                if epoch >= needed:
                    break
                partial = PartialObservation(
                    size,
                    float(epoch),
                    paid,
                    1e-9,
                    300.0,
                    each if measured else None,
                    1e-9 if measured else None,
                    start_up=own,
                )
                limit = policy.review(context, decision, partial)
                if limit is not None and paid >= limit * (1 - 1e-9):
                    outcome = Outcome.STOPPED
                    break
            if profiles:
                profiled.add(size)
            observations.append(
                Observation(
                    recurrence,
                    attempt,
                    size,
                    outcome,
                    float(epoch),
                    paid,
                    1e-9,
                    300.0,
                    GPU,
                    each if measured else None,
                    1e-9 if measured else None,
                    start_up=own,
                )
            )
            yield Attempt(recurrence, attempt, size, decision.kind, outcome, paid, start, epoch)
            if outcome is Outcome.REACHED:
                break
