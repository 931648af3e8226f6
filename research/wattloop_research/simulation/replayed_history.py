"""Reads a given history for `wattloop replay`: the cost and the outcome of each attempt.

The table of a run is no such history: it lacks most of what the run's decisions were made from.
"""

from wattloop.errors import InputError
from wattloop.files.csv_table import LIMIT, Row, read_table
from wattloop_planner.bandit.configuration import Parameter
from wattloop_planner.observations import PARAMETER_PREFIX, Observation, Outcome
from wattloop_research.simulation.traces import parameters_of_row

COLUMNS = ("recurrence", "attempt", "batch_size", "cost_joules")
REACHED_COLUMN = "reached"
# A column of recurrences.csv, and what a table of a run lacks, with what it is for.
RUN_COLUMN = "outcome"
LACKED_BY_RUN = {
    "curve": "the evaluations, from which the epochs to another target follow",
    "epoch_energy_joules, epoch_time_seconds": "what an epoch costs",
    "start_up_energy_joules, start_up_time_seconds": "what is used before the epochs",
    "max_power_watts": "the weight of time in the cost",
    "gpu_product": "which attempts ran on the same GPUs",
    "template_digest": "which attempts trained the same",
    "in_flight": "which attempts ran at each decision",
    "target, eta, candidates": "what the job was at each decision",
    "seed": "the random draws",
}


def read_replayed_history(
    path: str, batch_sizes: tuple[int, ...], parameters: tuple[Parameter, ...] = ()
) -> tuple[Observation, ...]:
    """Read observations for eta 1, whose energy is the cost.

    Without epochs, a cost counts as this number of epochs of one joule each, so that the model of epochs
    represents the complete cost. A column ``param:NAME`` has the values of a parameter.

    Raises:
        InputError: A cell is invalid, an attempt is repeated, a configuration is not offered, or the file is the table
            of a run.
    """
    lines: dict[tuple[int, int], int] = {}
    observations: list[Observation] = []
    for row in read_table(path, COLUMNS, one_of=(REACHED_COLUMN, RUN_COLUMN)):
        _check_is_history(row)
        observation = _observation(row)
        key = (observation.recurrence, observation.attempt)
        if key in lines:
            found = f"recurrence {key[0]}, attempt {key[1]} again, first on line {lines[key]}"
            raise InputError(row.source, found, "each attempt once", row.line, "attempt")
        if observation.batch_size not in batch_sizes:
            expected = f"one of the batch sizes {', '.join(map(str, batch_sizes))}"
            raise InputError(row.source, str(observation.batch_size), expected, row.line, "batch_size")
        _check_parameters(row, observation, parameters)
        lines[key] = row.line
        observations.append(observation)
    return tuple(sorted(observations, key=lambda o: (o.recurrence, o.attempt)))


def _check_is_history(row: Row) -> None:
    if REACHED_COLUMN in row.cells:
        return
    lacked = "; ".join(f"{columns} ({purpose})" for columns, purpose in LACKED_BY_RUN.items())
    raise InputError(
        row.source,
        f"the table of a run, without {REACHED_COLUMN} (0 or 1) and what its decisions were made from: {lacked}",
        "the whole, which is in wattloop.db of the output folder: wattloop replay FOLDER; or a history with the column "
        f"{REACHED_COLUMN}, whose costs are all that counts",
        1,
        REACHED_COLUMN,
    )


def _observation(row: Row) -> Observation:
    outcome = _outcome(row)
    cost = row.number("cost_joules", minimum=0)
    epoch_cost = row.optional_number("epoch_cost_joules", minimum=0)
    epochs = row.optional_number("epochs", minimum=0)
    for column, value in (("cost_joules", cost), ("epoch_cost_joules", epoch_cost), ("epochs", epochs)):
        _check_quotient(row, column, value)
    if epochs is None and epoch_cost:
        epochs = cost / epoch_cost
        if epochs >= LIMIT:
            expected = "an energy of an epoch by which cost_joules is less than 1e15 epochs"
            raise InputError(row.source, row.cells["epoch_cost_joules"], expected, row.line, "epoch_cost_joules")
    if epochs is None and "epochs" in row.cells and outcome is not Outcome.CRASHED:
        raise InputError(row.source, "an empty cell", "the epochs run, or no such column at all", row.line, "epochs")
    if epochs is None:
        epochs, epoch_cost = cost, 1.0
    return Observation(
        recurrence=row.integer("recurrence", minimum=0),
        attempt=row.integer("attempt", minimum=0),
        batch_size=row.integer("batch_size", minimum=1),
        outcome=outcome,
        epochs=epochs,
        energy_joules=cost,
        time_seconds=0.0,
        max_power_watts=1.0,
        epoch_energy_joules=epoch_cost,
        epoch_time_seconds=None if epoch_cost is None else 0.0,
        parameters=parameters_of_row(row),
    )


def _check_parameters(row: Row, observation: Observation, parameters: tuple[Parameter, ...]) -> None:
    candidates = {parameter.name: parameter.candidates for parameter in parameters}
    for name, value in observation.parameters:
        column = f"{PARAMETER_PREFIX}{name}"
        if name not in candidates:
            raise InputError(row.source, f"parameter {name}", f"--parameter {name}=VALUES", row.line, column)
        if value not in candidates[name]:
            raise InputError(row.source, repr(value), f"one of {', '.join(candidates[name])}", row.line, column)


def _outcome(row: Row) -> Outcome:
    reached = row.text(REACHED_COLUMN)
    if reached not in {"0", "1"}:
        raise InputError(row.source, repr(reached), "0 or 1", row.line, "reached")
    text = row.cells.get("outcome", "")
    try:
        outcome = Outcome(text) if text else Outcome.REACHED if reached == "1" else Outcome.STOPPED
    except ValueError:
        raise InputError(row.source, repr(text), f"one of {', '.join(Outcome)}", row.line, "outcome") from None
    if (outcome is Outcome.REACHED) != (reached == "1"):
        raise InputError(row.source, repr(text), f"an outcome that agrees with reached {reached}", row.line, "outcome")
    return outcome


def _check_quotient(row: Row, column: str, value: float | None) -> None:
    """Check that a value is not so small that quotients by it are not finite."""
    if value is not None and 0 < value < 1 / LIMIT:
        raise InputError(row.source, row.cells[column], f"0, or at least {1 / LIMIT:g}", row.line, column)
