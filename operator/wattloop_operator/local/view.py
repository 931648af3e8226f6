"""What a local run shows while it goes on: the table of recurrences, with those that are going on below."""

from __future__ import annotations

from rich.table import Table

from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.plots.job_history import JobHistory
from wattloop_operator.plots.row_table import table_of
from wattloop_operator.plots.rows import rows_of


def live_table(snapshot: Snapshot, rows: int) -> Table:
    """The latest recurrences, and what is going on now.

    Args:
        snapshot: The state of the job.
        rows: How many of the latest to show.
    """
    history = JobHistory.of_snapshot(snapshot)
    table = table_of(rows_of(history)[-rows:], f"{history.title}: what each recurrence cost")
    for each in snapshot.recurrences:
        if each.status.result is None:
            spec, progress = each.spec, each.status.progress
            epoch = "" if progress is None or progress.epoch is None else f"{progress.epoch:f}"
            limit = "" if spec.power_limit_watts is None else str(spec.power_limit_watts)
            cells = [str(spec.index), str(spec.attempt), str(spec.batch_size), limit, epoch, "running", "", "", "", ""]
            table.add_row(*cells, spec.decision.reason, style="cyan")
    return table
