"""Plots of a job's history: cost of each recurrence, and energy against time."""

from pathlib import Path

from wattloop_operator.history.energy_origin import energy_note
from wattloop_operator.history.job_history import JobHistory
from wattloop_operator.history.rows import rows_of
from wattloop_operator.plots.cost_plot import write_cost_plot
from wattloop_operator.plots.tradeoff import tradeoff_points, write_tradeoff_plot


def write_plots(folder: Path, history: JobHistory) -> tuple[Path, ...]:
    """Draw ``cost.png`` and ``tradeoff.png`` into an existing folder.

    Returns:
        The paths of both files.

    Raises:
        OperationError: A file cannot be written.
    """
    cost, tradeoff = folder / "cost.png", folder / "tradeoff.png"
    note = energy_note([row.energy_origin for row in rows_of(history)])
    write_cost_plot(cost, history)
    write_tradeoff_plot(tradeoff, history.title, tradeoff_points(history), history.units, note)
    return cost, tradeoff
