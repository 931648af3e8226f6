"""Simulated jobs whose runs of one batch size do not cost the same, and whether the stated intervals contain them.

Each job has its own noise: between runs (a machine that others use), between epochs, of the start, and of the number of
epochs. An attempt is divided into its start and its epochs as the operator divides it, by the epochs after the first.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from enum import StrEnum

from wattloop_planner.bandit.policy import Arm, DecisionContext
from wattloop_planner.bandit.thompson_sampling import ThompsonSamplingPolicy
from wattloop_planner.observations import Observation, Outcome, StartUp

GPU = "NVIDIA A100"
SIZES = (16, 32, 64, 128, 256)
DEFAULT = 64
EPOCH_JOULES = 100.0
# Later runs of each batch size that a job has tried, with which its last estimates are compared.
LATER_RUNS = 5
# Part of the attempts whose epochs took long enough to be measured.
MEASURED_SHARE = 0.7


class Kind(StrEnum):
    """What a job's runs are like."""

    THREE_EPOCHS = "three epochs"
    SOME_EPOCHS = "4 to 10 epochs"
    LONG = "15 to 60 epochs"
    DOMINANT_START = "dominant start-up"


@dataclass(frozen=True)
class Stated:
    """An interval that was stated before a run, and whether it contains the run's cost.

    Attributes:
        runs: Runs of the batch size before.
        contains: Whether it contains the cost.
        width: Its upper end over its lower end.
    """

    runs: int
    contains: bool
    width: float

    @classmethod
    def of(cls, arm: Arm, cost_joules: float) -> Stated | None:
        """None if nothing is stated of the arm."""
        low, high = arm.low_cost_joules, arm.high_cost_joules
        return None if low is None or high is None else cls(arm.observations, low <= cost_joules <= high, high / low)


class NoisyJob:
    """A job, and its draws in their order."""

    def __init__(self, kind: Kind, seed: int) -> None:
        self._numbers = numbers = random.Random(f"{kind} {seed}")
        least, most = {
            Kind.THREE_EPOCHS: (3, 3),
            Kind.SOME_EPOCHS: (4, 10),
            Kind.LONG: (15, 60),
            Kind.DOMINANT_START: (3, 30),
        }[kind]
        self._epochs = numbers.uniform(least, most)
        self._epochs_sd = numbers.choice((0.0, 0.08, 0.15))
        self._run_sd = _log_uniform(numbers, 0.02, 0.4)
        self._epoch_sd = _log_uniform(numbers, 0.02, 0.8)
        share = numbers.uniform(2, 10) if kind is Kind.DOMINANT_START else numbers.uniform(0, 0.6)
        self._start_joules = share * self._epochs * EPOCH_JOULES
        self._start_sd = _log_uniform(numbers, 0.02, 0.3)
        self._epoch_joules = {size: EPOCH_JOULES * math.exp(numbers.gauss(0, 0.3)) for size in SIZES}

    def run(self, recurrence: int, batch_size: int) -> Observation:
        """A run that reaches the target, as the operator would record it."""
        numbers = self._numbers
        count = max(2, round(self._epochs * math.exp(numbers.gauss(0, self._epochs_sd))))
        mean = self._epoch_joules[batch_size] * math.exp(numbers.gauss(0, self._run_sd))
        epochs = [mean * math.exp(numbers.gauss(-(self._epoch_sd**2) / 2, self._epoch_sd)) for _ in range(count)]
        total = self._start_joules * math.exp(numbers.gauss(0, self._start_sd)) + math.fsum(epochs)
        each = min(math.fsum(epochs[1:]) / (count - 1), total / count)
        is_measured = numbers.random() < MEASURED_SHARE
        return Observation(
            recurrence,
            0,
            batch_size,
            Outcome.REACHED,
            float(count),
            total,
            0.0,
            300.0,
            GPU,
            each if is_measured else None,
            0.0 if is_measured else None,
            start_up=StartUp(max(total - count * each, 0.0), 0.0),
        )


def stated_intervals(kind: Kind, seed: int, runs: int = 12) -> list[Stated]:
    """The intervals that a job stated: of each run before it ran, and at the end of later runs of what it has tried."""
    job, policy, observations = NoisyJob(kind, seed), ThompsonSamplingPolicy(), list[Observation]()
    stated: list[Stated | None] = []
    for recurrence in range(runs + 1):
        known = tuple(observations)
        decision = policy.decide(DecisionContext(SIZES, DEFAULT, 1.0, recurrence, 0, known, recurrence, gpu_model=GPU))
        arms = {arm.batch_size: arm for arm in decision.arms}
        if recurrence < runs:
            observations.append(job.run(recurrence, decision.batch_size))
            arm = arms.get(decision.batch_size)
            stated.append(None if arm is None else Stated.of(arm, observations[-1].energy_joules))
        else:
            tried = [arm for arm in arms.values() if arm.observations for _ in range(LATER_RUNS)]
            stated += [Stated.of(arm, job.run(runs, arm.batch_size).energy_joules) for arm in tried]
    return [each for each in stated if each is not None]


def _log_uniform(numbers: random.Random, low: float, high: float) -> float:
    return math.exp(numbers.uniform(math.log(low), math.log(high)))
