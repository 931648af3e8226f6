"""Both pictures of a history, as `wattloop run` leaves them and `wattloop plot` draws them."""

from __future__ import annotations

from pathlib import Path

from wattloop_operator.plots.cost_picture import write_cost_picture
from wattloop_operator.plots.job_history import JobHistory
from wattloop_operator.plots.rows import rows_of
from wattloop_operator.plots.tradeoff import tradeoff_points
from wattloop_operator.plots.tradeoff_picture import write_tradeoff_picture


def write_pictures(folder: Path, history: JobHistory) -> tuple[Path, ...]:
    """Draw ``cost.png`` and ``tradeoff.png`` into a folder that exists, and return their paths.

    Raises:
        OperationError: A file cannot be written.
    """
    cost, tradeoff = folder / "cost.png", folder / "tradeoff.png"
    write_cost_picture(cost, history.title, rows_of(history))
    write_tradeoff_picture(tradeoff, history.title, tradeoff_points(history))
    return cost, tradeoff
