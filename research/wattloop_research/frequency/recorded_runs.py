"""What the ranks of a pipeline reported while it ran under one plan, and the comparison of such runs.

An iteration ends when its slowest rank ends, and every rank's energy counts. A run's time is therefore the
mean over iterations of the maximum over ranks, and its energy the mean of the sum over ranks (Chung et al.
2024, "Reducing Energy Bloat …", section 6.1). The first iterations warm up and are excluded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from wattloop.errors import UsageError
from wattloop_planner.frequency.pipeline.planning_problem import Floats

DEFAULT_WARM_UP_ITERATIONS = 1

# One array per iteration; the number of repetitions may vary.
Repetitions = tuple[Floats, ...]


@dataclass(frozen=True)
class RankRecord:
    """What one rank reported.

    Attributes:
        iteration_seconds: Time of each iteration, shape (iterations,).
        iteration_joules: Energy of each iteration, shape (iterations,).
        instruction_seconds: Times of the repetitions in each iteration, by instruction.
        instruction_joules: Energies of the repetitions in each iteration, by instruction.
    """

    rank: int
    iteration_seconds: Floats
    iteration_joules: Floats
    instruction_seconds: Mapping[str, Repetitions]
    instruction_joules: Mapping[str, Repetitions]


@dataclass(frozen=True)
class RecordedRun:
    """The records of all ranks under one plan.

    Attributes:
        number: Number of the run, in the order in which the runs took place.
        ranks: At least one record, with the same number of iterations each.
    """

    number: int
    ranks: tuple[RankRecord, ...]

    @property
    def iterations(self) -> int:
        """Number of iterations."""
        return len(self.ranks[0].iteration_seconds)


@dataclass(frozen=True)
class InstructionMean:
    """Mean of one repetition of an instruction over ranks and iterations.

    Attributes:
        energy_joules: Mean energy; NaN if no rank recorded it.
    """

    time_seconds: float
    energy_joules: float


@dataclass(frozen=True)
class RunSummary:
    """Time and energy of an iteration of one run.

    Attributes:
        time_seconds: Mean over iterations of the maximum over ranks.
        time_error_seconds: Standard error of this mean; NaN for one iteration.
        energy_joules: Mean over iterations of the sum over ranks.
        energy_error_joules: Standard error of this mean; NaN for one iteration.
    """

    number: int
    iterations: int
    ranks: int
    time_seconds: float
    time_error_seconds: float
    energy_joules: float
    energy_error_joules: float
    instructions: Mapping[str, InstructionMean]

    @property
    def average_power_watts(self) -> float:
        """Mean power of all ranks."""
        return self.energy_joules / self.time_seconds

    def slowdown_percent(self, first: RunSummary) -> float:
        """Additional time in percent of the first run's."""
        return 100 * (self.time_seconds / first.time_seconds - 1)

    def reduction_percent(self, first: RunSummary) -> float:
        """Saved energy in percent of the first run's."""
        return 100 * (1 - self.energy_joules / first.energy_joules)


def run_summary(run: RecordedRun, warm_up_iterations: int = DEFAULT_WARM_UP_ITERATIONS) -> RunSummary:
    """Time and energy of an iteration of a run.

    Raises:
        UsageError: No iteration remains.

    Example:
        >>> times, energies = np.array([9.0, 2.0, 4.0]), np.array([90.0, 20.0, 30.0])
        >>> run = RecordedRun(0, (RankRecord(0, times, energies, {}, {}), RankRecord(1, times / 2, energies, {}, {})))
        >>> summary = run_summary(run)
        >>> summary.time_seconds, summary.energy_joules
        (3.0, 50.0)
    """
    if warm_up_iterations < 0:
        raise UsageError(f"--warm-up {warm_up_iterations}: must be at least 0")
    if warm_up_iterations >= run.iterations:
        raise UsageError(
            f"--warm-up {warm_up_iterations}: run {run.number} has {run.iterations} iterations, so none remains; "
            f"use at most {run.iterations - 1}"
        )
    kept = slice(warm_up_iterations, None)
    times = np.max([rank.iteration_seconds[kept] for rank in run.ranks], axis=0)
    energies = np.sum([rank.iteration_joules[kept] for rank in run.ranks], axis=0)
    return RunSummary(
        run.number,
        len(times),
        len(run.ranks),
        float(np.mean(times)),
        _standard_error(times),
        float(np.mean(energies)),
        _standard_error(energies),
        _instruction_means(run.ranks, kept),
    )


def _standard_error(values: Floats) -> float:
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")


def _instruction_means(ranks: Sequence[RankRecord], kept: slice) -> dict[str, InstructionMean]:
    names = dict.fromkeys(name for rank in ranks for name in rank.instruction_seconds)
    return {
        name: InstructionMean(
            _mean([rank.instruction_seconds.get(name, ())[kept] for rank in ranks]),
            _mean([rank.instruction_joules.get(name, ())[kept] for rank in ranks]),
        )
        for name in names
    }


def _mean(of_ranks: Sequence[Repetitions]) -> float:
    values = [iteration for iterations in of_ranks for iteration in iterations if len(iteration)]
    return float(np.mean(np.concatenate(values))) if values else float("nan")
