"""Runs a job once at each point of a grid of batch sizes and power limits, in the local mode.

The engine starts, watches and ends each run as in `wattloop run`; only the choice is made here. So a run that is
killed is stored as disrupted, and a sweep that is started again goes on with the points that have not ended.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, fields, replace
from datetime import datetime
from pathlib import Path
from statistics import fmean
from typing import IO

from rich.table import Table

from wattloop import interruption
from wattloop.errors import OperationError, UsageError
from wattloop.files.atomic_write import open_atomic
from wattloop.files.csv_table import write_csv_table
from wattloop_operator.api.attempt_state import SCRIPT_FAILURES, Result
from wattloop_operator.api.batch_size import DecisionKind
from wattloop_operator.api.field_types import to_decimal
from wattloop_operator.api.power_fields import Power, PowerMode
from wattloop_operator.api.recurring_training_job import Mode, RecurringTrainingJob
from wattloop_operator.domain.quantities import Units, number_text
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.history.energy_origin import energy_note
from wattloop_operator.history.job_history import JobHistory
from wattloop_operator.history.rows import cell_text, rows_of
from wattloop_operator.local.local_gpus import Simulation, limit_range
from wattloop_operator.local.local_run import LocalRun, Runner, StartedRun
from wattloop_operator.local.run_clock import now
from wattloop_operator.plots.tradeoff import TradeoffPoint, pareto_front, tradeoff_points, write_tradeoff_plot
from wattloop_operator.reconcile.actions import CreateRecurrence
from wattloop_operator.reconcile.learning.decision import Attempt, decide, learning_rate_scale
from wattloop_planner.canonical_json import canonical_json

SLOT = re.compile(r"b([0-9]{1,18})-(p([0-9]{1,9})|free)-r([0-9]{1,9})")
MAX_RUNS = 10_000
# Results that say nothing about a point: it is run again.
REPEATED_RESULTS = frozenset(each.value for each in SCRIPT_FAILURES | {Result.DISRUPTED, Result.CANCELLED})


@dataclass(frozen=True, order=True)
class GridPoint:
    """One run of a sweep.

    Attributes:
        power_limit_watts: The power limit of each GPU; None: none is set.
        repeat: Which of the runs with these it is, from 0.
    """

    batch_size: int
    power_limit_watts: int | None
    repeat: int

    @property
    def slot(self) -> str:
        """The slot of its recurrence, by which a later sweep finds it.

        Example:
            >>> GridPoint(32, 150, 0).slot, GridPoint(64, None, 1).slot
            ('b32-p150-r0', 'b64-free-r1')
        """
        limit = "free" if self.power_limit_watts is None else f"p{self.power_limit_watts}"
        return f"b{self.batch_size}-{limit}-r{self.repeat}"

    @staticmethod
    def of_slot(slot: str) -> GridPoint | None:
        """The point of a slot; None if the slot is no point's.

        Example:
            >>> GridPoint.of_slot("b32-p150-r0"), GridPoint.of_slot("1772323200")
            (GridPoint(batch_size=32, power_limit_watts=150, repeat=0), None)
        """
        match = SLOT.fullmatch(slot)
        if match is None:
            return None
        return GridPoint(int(match[1]), None if match[3] is None else int(match[3]), int(match[4]))

    def __str__(self) -> str:
        """Batch size, limit and repeat, for messages."""
        limit = "no limit" if self.power_limit_watts is None else f"{self.power_limit_watts} W"
        return f"batch size {self.batch_size} at {limit}, repeat {self.repeat}"


@dataclass(frozen=True)
class Grid:
    """The points of a sweep.

    Attributes:
        power_limits: The power limits in watts; None: no limit.
        repeats: Number of runs at each.
    """

    batch_sizes: tuple[int, ...]
    power_limits: tuple[int | None, ...]
    repeats: int

    def __len__(self) -> int:
        return len(self.batch_sizes) * len(self.power_limits) * self.repeats

    def points(self) -> Iterator[GridPoint]:
        """All points; the first repeat of all of them comes before the second of any."""
        for repeat, batch_size, limit in itertools.product(range(self.repeats), self.batch_sizes, self.power_limits):
            yield GridPoint(batch_size, limit, repeat)


@dataclass(frozen=True)
class SweepRow:
    """One run that has ended. The attributes are the columns of ``sweep.csv``, in this order."""

    batch_size: int
    power_limit_watts: int | None
    repeat: int
    epochs: float
    outcome: str
    energy_joules: float | None
    time_seconds: float | None
    cost_joules: float | None
    energy_origin: str | None


COLUMNS = [column.name for column in fields(SweepRow)]


def rows_of_sweep(history: JobHistory) -> tuple[SweepRow, ...]:
    """The rows of all points that have been run, ordered by point, the ones without a limit first.

    A run that was interrupted has none.
    """
    found: dict[GridPoint, SweepRow] = {}
    for record, row in zip(history.records, rows_of(history), strict=True):
        point = GridPoint.of_slot(record.slot)
        if point is not None and record.result not in REPEATED_RESULTS:
            values = {name: getattr(row, name) for name in COLUMNS if name not in vars(point)}
            found[point] = SweepRow(**vars(point), **values)
    return tuple(sorted(found.values(), key=lambda row: (row.batch_size, row.power_limit_watts or 0, row.repeat)))


def write_sweep_csv(stream: IO[str], rows: Iterable[SweepRow]) -> None:
    """Write the rows as CSV: a header, numbers with ten significant digits, empty cells for missing values."""
    write_csv_table(stream, COLUMNS, ([cell_text(cell) for cell in astuple(row)] for row in rows))


def table_of_sweep(rows: Sequence[SweepRow], points: Sequence[TradeoffPoint]) -> Table:
    """A table with the means of each batch size and power limit over its runs that reached the target.

    Args:
        rows: The rows of the sweep.
        points: Its points in the trade-off plot, of which those of the Pareto front are marked.
    """
    front = {(point.configuration.batch_size, point.power_limit_watts) for point in pareto_front(points)}
    units = Units.of([row.energy_joules for row in rows], [row.time_seconds for row in rows])
    groups = {
        key: list(group) for key, group in itertools.groupby(rows, lambda row: (row.batch_size, row.power_limit_watts))
    }
    reached = {key: [run for run in runs if run.outcome == "reached"] for key, runs in groups.items()}
    costs = {key: _mean(run.cost_joules for run in runs) for key, runs in reached.items()}
    least = min((cost for cost in costs.values() if cost is not None), default=1.0)
    table = Table(box=None, pad_edge=False)
    energy, time = f"energy ({units.energy.name})", f"time ({units.time.name})"
    for name in ("batch", "limit (W)", "reached", "epochs", energy, time, "cost (% of the least)"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("Pareto front", no_wrap=True)
    for key, runs in groups.items():
        batch_size, limit = key
        cost = costs[key]
        table.add_row(
            str(batch_size),
            number_text(limit),
            f"{len(reached[key])}/{len(runs)}",
            number_text(_mean(run.epochs for run in reached[key])),
            units.energy.number(_mean(run.energy_joules for run in reached[key])),
            units.time.number(_mean(run.time_seconds for run in reached[key])),
            number_text(None if cost is None else 100 * cost / least),
            "yes" if key in front else "",
            style=None if reached[key] else "dim",
        )
    return table


def _mean(values: Iterable[float | None]) -> float | None:
    known = [each for each in values if each is not None]
    return fmean(known) if known else None


# Runs that are ended from outside are repeated.
MAX_TRIES = 5
MAX_HISTORY = 1_000
TABLE, PLOT = "sweep.csv", "tradeoff.png"

Show = Callable[[int, GridPoint | None], None]


@dataclass(frozen=True)
class Sweep:
    """A sweep of one job on this machine.

    Attributes:
        job: The job in it.
        output: The output folder.
        grid: The points to run.
        simulation: The GPUs to simulate; None for this machine's own.
        seed: Seed of the trainings: runs of the same repeat have the same seed.
    """

    source: Path
    job: RecurringTrainingJob
    output: Path
    grid: Grid
    simulation: Simulation | None = None
    seed: int = 0

    def carry_out(self, show: Show, show_ended: Callable[[Snapshot], None]) -> JobHistory:
        """Run all points that have not ended yet. What has ended is kept however the sweep ends.

        Args:
            show: Called with the number of points that have ended, and the one that runs; None at the end.
            show_ended: Called with the state after each change.

        Raises:
            UsageError: The output folder belongs to something else, or a limit is outside the GPUs' range.
            OperationError: An operation failed. The same sweep, started again, goes on.
            wattloop.interruption.Interrupted: The program was asked to end.
        """
        job = grid_job(self.job)
        wire = canonical_json(job.to_wire()["spec"])
        run = LocalRun(
            source=self.source,
            job=job,
            output=self.output,
            simulation=self.simulation,
            seed=self.seed,
            # Two trainings are not mixed in one folder.
            command=f"sweep of training {hashlib.blake2b(wire.encode(), digest_size=6).hexdigest()}",
        )
        with run.started() as started, started.ending(self._write_results):
            self._check_limits(started)
            return self._carry_out(started, show, show_ended)

    def _carry_out(self, started: StartedRun, show: Show, show_ended: Callable[[Snapshot], None]) -> JobHistory:
        runner = Runner(started.backend, started.key, started.wake_event, show_ended)
        # What an interrupted sweep has created and not started, or not recorded.
        snapshot = runner.run()
        points, tries = list(self.grid.points()), Counter[GridPoint]()
        while True:
            _check_held(snapshot)
            history = JobHistory.of_snapshot(snapshot)
            ended = {GridPoint(row.batch_size, row.power_limit_watts, row.repeat) for row in _write(started, history)}
            point = next((point for point in points if point not in ended), None)
            show(sum(each in ended for each in points), point)
            if point is None:
                return history
            if tries[point] >= MAX_TRIES:
                raise OperationError(f"{point}: ended from outside {MAX_TRIES} times; see {started.folder.logs}")
            tries[point] += 1
            interruption.raise_if_requested()
            recurrence = decide_point(snapshot, history, point, now())
            started.backend.carry_out(snapshot, CreateRecurrence(recurrence))
            snapshot = runner.run()
            _check_started(snapshot, recurrence.metadata.name)

    def _check_limits(self, started: StartedRun) -> None:
        if not any(self.grid.power_limits):
            return
        lowest, highest = limit_range(Path(started.backend.addresses.agent_socket))
        for watts in self.grid.power_limits:
            if watts is not None and not lowest <= watts <= highest:
                raise UsageError(f"--power-limits: found {watts}, expected {lowest:g} to {highest:g} W for these GPUs")

    def _write_results(self, started: StartedRun) -> None:
        history = started.history()
        _write(started, history)
        if history.records:
            note = energy_note([row.energy_origin for row in rows_of(history)])
            write_tradeoff_plot(
                started.folder.path / PLOT, history.title, tradeoff_points(history), history.units, note
            )


def grid_job(job: RecurringTrainingJob) -> RecurringTrainingJob:
    """The job as a sweep runs it: it starts nothing by itself, stops nothing for its cost, and publishes nothing."""
    spec = job.spec
    target = spec.objective.target.model_copy(update={"tolerance": None})
    objective = spec.objective.model_copy(update={"target": target})
    update = {
        "schedule": None,
        "continuous": False,
        "run_request": "",
        "suspend": False,
        "mode": Mode.FIXED,
        "objective": objective,
        "max_recurrences": None,
        "successful_runs_history_limit": MAX_HISTORY,
        "failed_runs_history_limit": MAX_HISTORY,
        "batch_size": spec.batch_size.model_copy(update={"learn_from": None}),
        "power": Power(mode=PowerMode.NONE),
        "retries": 0,
        "output": None,
    }
    return job.model_copy(update={"spec": spec.model_copy(update=update)})


def decide_point(snapshot: Snapshot, history: JobHistory, point: GridPoint, now: datetime) -> TrainingAttempt:
    """The next attempt at a point of the grid, with its batch size and its limit instead of a decision's."""
    of_point = [record for record in history.records if record.slot == point.slot]
    index = max((record.recurrence for record in history.records), default=-1) + 1
    attempt = Attempt(index, 0, point.slot, now)
    if of_point:
        attempt = Attempt(of_point[-1].recurrence, of_point[-1].attempt + 1, point.slot, now)
    # A point depends on no other's outcome: one that crashed excludes nothing.
    fresh = replace(snapshot, records=(), recurrences=())
    # Runs of the same repeat have the same seed, so that they differ in batch size and limit alone.
    seed = decide(fresh, Attempt(point.repeat, 0, point.slot, now)).spec.decision.seed
    decided = decide(fresh, attempt)
    decision = decided.spec.decision.model_copy(
        update={"kind": DecisionKind.DEFAULT, "reason": f"sweep: {point}", "seed": seed, "last_attempt": False}
    )
    update = {
        "batch_size": point.batch_size,
        "power_limit_watts": point.power_limit_watts,
        "profile_power_limits": False,
        "learning_rate_scale": to_decimal(learning_rate_scale(snapshot.job.spec, point.batch_size, snapshot.devices)),
        "stop_cost_joules": None,
        "decision": decision,
    }
    return decided.model_copy(update={"spec": decided.spec.model_copy(update=update)})


def _write(started: StartedRun, history: JobHistory) -> tuple[SweepRow, ...]:
    """Write the table of what has been run, and return its rows."""
    rows = rows_of_sweep(history)
    with open_atomic(started.folder.path / TABLE, is_private=True) as stream:
        write_sweep_csv(stream, rows)
    return rows


def _check_held(snapshot: Snapshot) -> None:
    """Check that the runs held their limits: a run at another one is no point of the grid."""
    for each in snapshot.recurrences:
        progress = each.progress
        wanted = each.spec.power_limit_watts
        if wanted is None or each.status.result is not Result.REACHED or progress.power_limit_watts == wanted:
            continue
        reason = progress.power_limit_refusal or "its training did not use wattloop.Run, or found no GPU"
        raise OperationError(f"{each.spec.decision.reason}: the limit was not held: {reason}")


def _check_started(snapshot: Snapshot, name: str) -> None:
    """Check that a run did not fail by its script: those of all other points would fail too."""
    ended = next((each.status for each in snapshot.recurrences if each.metadata.name == name), None)
    if ended is not None and ended.result in SCRIPT_FAILURES:
        where = "at its start" if ended.result is Result.START_FAILED else "by an error in its script"
        raise OperationError(f"the training fails {where} (see above); fix it, then run the same command again")
