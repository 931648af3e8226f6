"""Observations from the output of an earlier simulation, on another GPU model, to start a policy from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from wattloop.errors import InputError
from wattloop.files.table import Row, read_table
from wattloop_planner.observations import Observation, Outcome
from wattloop_planner.simulation.options import JobOptions

REQUIRED_COLUMNS = (
    "job",
    "gpu",
    "dataset",
    "network",
    "optimizer",
    "target_metric",
    "eta",
    "seed",
    "recurrence",
    "attempt",
    "batch_size",
    "profiled",
    "epochs",
    "outcome",
    "energy_joules",
    "time_seconds",
    "cost_joules",
)
UNNAMED_GPU = "(another GPU model)"


def read_history(path: str) -> list[Row]:
    """The rows of a file that `wattloop simulate` wrote.

    Raises:
        InputError: It is no such file.
    """
    return list(read_table(path, REQUIRED_COLUMNS))


def earlier_observations(rows: Sequence[Row], options: JobOptions, seed: int) -> tuple[Observation, ...]:
    """What the history tells this job under this seed, as recurrences below 0.

    Taken are the rows of the same workload and target: of the same job name where there is one, of the same seed where
    the file has it, else of its first.

    Raises:
        InputError: No row fits, or a cell is wrong.
    """
    key = (options.dataset, options.network, options.optimizer)
    fitting = [
        row
        for row in rows
        if (row.text("dataset"), row.text("network"), row.text("optimizer")) == key
        and row.number("target_metric") == options.target_metric
    ]
    if not fitting:
        found = f"no row of dataset {key[0]}, network {key[1]}, optimizer {key[2]}, target {options.target_metric:g}"
        raise InputError(options.history or "history", found, "rows of the job that starts from it", 1, "target_metric")
    fitting = [row for row in fitting if row.text("job") == options.job] or fitting
    seeds = sorted({row.integer("seed") for row in fitting})
    chosen = seed if seed in seeds else seeds[0]
    fitting = [row for row in fitting if row.integer("seed") == chosen]
    return _renumbered([_observation(row) for row in fitting], [row.text("job") for row in fitting])


def _observation(row: Row) -> Observation:
    try:
        outcome = Outcome(row.text("outcome"))
    except ValueError:
        expected = f"one of {', '.join(Outcome)}"
        raise InputError(row.source, repr(row.text("outcome")), expected, row.line, "outcome") from None
    epochs = row.number("epochs", minimum=0)
    energy, time = row.number("energy_joules", minimum=0), row.number("time_seconds", minimum=0)
    plain = epochs > 0 and row.integer("profiled") == 0
    return Observation(
        recurrence=row.integer("recurrence", minimum=0),
        attempt=row.integer("attempt", minimum=0),
        batch_size=row.integer("batch_size", minimum=1),
        outcome=outcome,
        epochs=epochs,
        energy_joules=energy,
        time_seconds=time,
        max_power_watts=_max_power_watts(row, energy, time),
        gpu_model=row.cells.get("gpu") or UNNAMED_GPU,
        epoch_energy_joules=energy / epochs if plain else None,
        epoch_time_seconds=time / epochs if plain else None,
    )


def _max_power_watts(row: Row, energy_joules: float, time_seconds: float) -> float:
    """The maximum power that the row's cost was computed with; 1 W where the cost does not tell, as at eta 1."""
    eta, cost = row.number("eta", minimum=0), row.number("cost_joules", minimum=0)
    if eta >= 1 or time_seconds == 0 or cost <= eta * energy_joules:
        return 1.0
    return (cost - eta * energy_joules) / ((1 - eta) * time_seconds)


def _renumbered(observations: Sequence[Observation], jobs: Sequence[str]) -> tuple[Observation, ...]:
    """The same with recurrences …, −2, −1, the jobs one after another, each in its own order."""
    keys = sorted({(job, o.recurrence) for job, o in zip(jobs, observations, strict=True)})
    place = {key: index - len(keys) for index, key in enumerate(keys)}
    moved = [replace(o, recurrence=place[job, o.recurrence]) for job, o in zip(jobs, observations, strict=True)]
    return tuple(sorted(moved, key=lambda o: (o.recurrence, o.attempt)))
