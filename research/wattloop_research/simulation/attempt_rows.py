"""The simulator's output, one row per attempt: how it is written, and read as a history.

A history is the output of an earlier simulation on another GPU model: initial observations of a policy.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import IO

from wattloop.errors import InputError
from wattloop.files.csv_table import Row, read_table, write_csv_table
from wattloop_planner.observations import PARAMETER_PREFIX, Observation, Outcome
from wattloop_research.simulation.simulation_options import JobOptions
from wattloop_research.simulation.simulator import SimulatedAttempt
from wattloop_research.simulation.traces import parameters_of_row

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
# A history may lack these.
COLUMNS_NOT_READ = {"default_batch_size", "policy", "power_limit_watts", "run", "decision"}
UNKNOWN_GPU = "(another GPU model)"
TIME_COLUMNS = ("start_seconds", "end_seconds", "in_flight")


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


def write_attempts(
    stream: IO[str], attempts: Iterable[tuple[JobOptions, int, SimulatedAttempt]], *, with_times: bool = False
) -> None:
    """Write the header and one row per attempt, sorted by job, seed, recurrence and attempt.

    Each parameter that a job chooses has a column ``param:NAME``, after the others.

    Args:
        stream: Receives the text.
        attempts: Each with the options of its job and its seed.
        with_times: Whether `TIME_COLUMNS` are before the costs: where attempts may overlap.
    """
    ordered = sorted(attempts, key=lambda row: (row[0].job, row[1], row[2].recurrence, row[2].attempt))
    names = list(dict.fromkeys(name for _, _, simulated in ordered for name, _ in simulated.parameters))
    place = COLUMNS.index("energy_joules")
    columns = TIME_COLUMNS if with_times else ()
    parameters = (f"{PARAMETER_PREFIX}{name}" for name in names)

    def rows() -> Iterator[Sequence[object]]:
        for options, seed, each in ordered:
            values = dict(each.parameters)
            row = cells(options, seed, each)
            times = (number(each.start_seconds), number(each.end_seconds), each.in_flight) if with_times else ()
            yield (*row[:place], *times, *row[place:], *(values.get(name, "") for name in names))

    write_csv_table(stream, (*COLUMNS[:place], *columns, *COLUMNS[place:], *parameters), rows())


def read_history(path: str) -> list[Row]:
    """The rows of a file written by `wattloop simulate`.

    Raises:
        InputError: The file is invalid.
    """
    return list(read_table(path, [column for column in COLUMNS if column not in COLUMNS_NOT_READ]))


def earlier_observations(rows: Sequence[Row], options: JobOptions, seed: int) -> tuple[Observation, ...]:
    """The observations of a history that apply to a job and seed, as recurrences below 0.

    Uses the rows with the job's workload and target. Among these, rows with the job's name and rows with
    its seed take precedence; otherwise all names, and the first seed, are used.

    Raises:
        InputError: No row applies, or a cell is invalid.
    """
    key = (options.dataset, options.network, options.optimizer)
    matching = [
        row
        for row in rows
        if (row.text("dataset"), row.text("network"), row.text("optimizer")) == key
        and row.number("target_metric") == options.target_metric
    ]
    if not matching:
        found = f"no row of dataset {key[0]}, network {key[1]}, optimizer {key[2]}, target {options.target_metric:g}"
        raise InputError(options.history or "history", found, "rows of the job that starts from it", 1, "target_metric")
    matching = [row for row in matching if row.text("job") == options.job] or matching
    seeds = sorted({row.integer("seed") for row in matching})
    chosen = seed if seed in seeds else seeds[0]
    matching = [row for row in matching if row.integer("seed") == chosen]
    return _renumbered([_observation(row) for row in matching], [row.text("job") for row in matching])


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
        gpu_model=row.cells.get("gpu") or UNKNOWN_GPU,
        epoch_energy_joules=energy / epochs if plain else None,
        epoch_time_seconds=time / epochs if plain else None,
        parameters=parameters_of_row(row),
    )


def _max_power_watts(row: Row, energy_joules: float, time_seconds: float) -> float:
    """The maximum power implied by the row's cost; 1 W if the cost does not depend on it, as for eta 1."""
    eta, cost = row.number("eta", minimum=0), row.number("cost_joules", minimum=0)
    if eta >= 1 or time_seconds == 0 or cost <= eta * energy_joules:
        return 1.0
    return (cost - eta * energy_joules) / ((1 - eta) * time_seconds)


def _renumbered(observations: Sequence[Observation], jobs: Sequence[str]) -> tuple[Observation, ...]:
    """The observations with recurrences …, −2, −1: job after job, each in its own order."""
    keys = sorted({(job, o.recurrence) for job, o in zip(jobs, observations, strict=True)})
    place = {key: index - len(keys) for index, key in enumerate(keys)}
    moved = [replace(o, recurrence=place[job, o.recurrence]) for job, o in zip(jobs, observations, strict=True)]
    return tuple(sorted(moved, key=lambda o: (o.recurrence, o.attempt)))
