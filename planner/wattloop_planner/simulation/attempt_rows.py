"""The simulator's output: one row per attempt."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from typing import IO

from wattloop_planner.observations import PARAMETER_PREFIX
from wattloop_planner.simulation.simulation_options import JobOptions
from wattloop_planner.simulation.simulator import SimulatedAttempt

COLUMNS = (
    "job",
    "gpu",
    "dataset",
    "network",
    "optimizer",
    "target_metric",
    "default_batch_size",
    "eta",
    "policy",
    "seed",
    "recurrence",
    "attempt",
    "batch_size",
    "power_limit_watts",
    "run",
    "profiled",
    "epochs",
    "outcome",
    "energy_joules",
    "time_seconds",
    "cost_joules",
    "decision",
)


def number(value: float | None) -> str:
    """Format a value with ten significant digits; None gives an empty string.

    Example:
        >>> number(1 / 3), number(24.0), number(None)
        ('0.3333333333', '24', '')
    """
    return "" if value is None else f"{value:.10g}"


def cells(options: JobOptions, seed: int, simulated: SimulatedAttempt) -> tuple[object, ...]:
    """The cells of one attempt, in the order of `COLUMNS`."""
    return (
        options.job,
        options.gpu,
        options.dataset,
        options.network,
        options.optimizer,
        number(simulated.target_metric),
        options.default_batch_size,
        number(options.eta),
        options.policy,
        seed,
        simulated.recurrence,
        simulated.attempt,
        simulated.batch_size,
        number(simulated.power_limit_watts),
        simulated.run,
        int(simulated.profiled),
        number(simulated.result.epochs),
        simulated.result.outcome.value,
        number(simulated.result.energy_joules),
        number(simulated.result.time_seconds),
        number(simulated.result.cost_joules),
        simulated.decision.value,
    )


def write_attempts(stream: IO[str], attempts: Iterable[tuple[JobOptions, int, SimulatedAttempt]]) -> None:
    """Write the header and one row per attempt, sorted by job, seed, recurrence and attempt.

    Each parameter that a job chooses has a column ``param:NAME``, after the others.
    """
    ordered = sorted(attempts, key=lambda row: (row[0].job, row[1], row[2].recurrence, row[2].attempt))
    names = list(dict.fromkeys(name for _, _, simulated in ordered for name, _ in simulated.parameters))
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow((*COLUMNS, *(f"{PARAMETER_PREFIX}{name}" for name in names)))
    for options, seed, simulated in ordered:
        values = dict(simulated.parameters)
        writer.writerow((*cells(options, seed, simulated), *(values.get(name, "") for name in names)))
