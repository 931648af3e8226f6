"""The grid of a sweep: which points it has, what of them has been run, and the recurrence of a point."""

import io
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from support.backends.model_backend import KEY, ModelBackend, job
from support.databases.sample_record import RECORD
from wattloop_operator.api.attempt_state import Result
from wattloop_operator.api.power_fields import MAX_WATTS
from wattloop_operator.domain.names import recurrence_name
from wattloop_operator.domain.records import ObservationRecord
from wattloop_operator.history.job_history import JobHistory
from wattloop_operator.local.local_sweep import Grid, GridPoint, decide_point, grid_job, rows_of_sweep, write_sweep_csv
from wattloop_operator.reconcile.actions import CreateRecurrence

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
POINTS = st.builds(
    GridPoint, st.integers(1, 10**18 - 1), st.none() | st.integers(1, MAX_WATTS), st.integers(0, 10**9 - 1)
)


def record(point: GridPoint, index: int, attempt: int = 0, **changes: Any) -> ObservationRecord:
    names = {"job_name": KEY.name, "recurrence_name": recurrence_name(KEY.name, 0, point.slot, attempt)}
    return replace(RECORD, recurrence=index, attempt=attempt, batch_size=point.batch_size, **{**names, **changes})


def history_of(*records: ObservationRecord) -> JobHistory:
    return JobHistory(KEY.namespace, KEY.name, 0.5, None, records)


@given(POINTS)
def test_the_slot_of_a_point_leads_back_to_it_and_fits_a_name(point: GridPoint) -> None:
    assert GridPoint.of_slot(point.slot) == point
    assert point.slot == point.slot.lower()


def test_every_point_comes_once_before_any_comes_twice() -> None:
    grid = Grid((8, 16), (None, 100, 200), 2)
    points = list(grid.points())
    assert len(points) == len(set(points)) == len(grid) == 12
    assert {point.repeat for point in points[:6]} == {0}


def test_the_table_has_the_last_run_of_each_point_that_was_not_interrupted() -> None:
    first, second, third = GridPoint(16, 200, 0), GridPoint(16, None, 0), GridPoint(8, 100, 1)
    history = history_of(
        record(first, 0, result=Result.DISRUPTED.value),
        record(first, 0, 1, epochs=4.0, power_limit_watts=200.0),
        record(second, 1, result=Result.CRASHED.value, power_limit_watts=None),
        record(third, 2, result=Result.DISRUPTED.value),
        record(third, 3, recurrence_name="digits-1772323200-0"),
    )
    rows = rows_of_sweep(history)
    assert [(row.batch_size, row.power_limit_watts, row.repeat, row.outcome) for row in rows] == [
        (16, None, 0, "crashed"),
        (16, 200, 0, "reached"),
    ]
    stream = io.StringIO()
    write_sweep_csv(stream, rows)
    header, crashed, reached = stream.getvalue().splitlines()
    assert (
        header
        == "batch_size,power_limit_watts,repeat,epochs,outcome,energy_joules,time_seconds,cost_joules,energy_origin"
    )
    assert crashed.startswith("16,,0,")
    assert reached.startswith("16,200,0,4,reached,")


def test_an_attempt_at_a_point_has_its_batch_size_its_limit_and_no_stop() -> None:
    spec = {"batchSize": {"default": 64, "candidates": [16, 64], "learningRateScaling": "Linear", "policy": "Zeus"}}
    backend = ModelBackend(grid_job(job(**spec, output={"directory": "/models"})))
    seeds: dict[int, set[str]] = {}
    for index, point in enumerate(Grid((16, 64, 128), (100, None), 2).points()):
        snapshot = backend.snapshot(KEY)
        assert snapshot is not None
        decided = decide_point(snapshot, JobHistory.of_snapshot(snapshot), point, NOW)
        assert (decided.spec.index, decided.spec.attempt, decided.spec.slot) == (index, 0, point.slot)
        assert (decided.spec.batch_size, decided.spec.power_limit_watts) == (point.batch_size, point.power_limit_watts)
        assert float(decided.spec.learning_rate_scale) == point.batch_size / 64
        assert (decided.spec.stop_cost_joules, decided.spec.profile_power_limits) == (None, False)
        assert decided.spec.output_directory is None
        seeds.setdefault(point.repeat, set()).add(decided.spec.decision.seed)
        backend.carry_out(snapshot, CreateRecurrence(decided))
        backend.reconcile()
        name = decided.metadata.name
        backend.run_workload(name)
        backend.report(name, epoch=50, metric=0.95 if point.batch_size == 16 else 0.1, joules=1e9, finished=True)
        backend.end_workload(name)
        backend.reconcile()
        # The engine starts nothing by itself, whatever a run has cost and whether it has reached the target.
        assert backend.running == []
        assert len(backend.recurrences) == index + 1
    assert [len(found) for found in seeds.values()] == [1, 1]
    assert seeds[0] != seeds[1]


def test_a_disrupted_point_gets_another_attempt() -> None:
    point = GridPoint(16, None, 0)
    backend = ModelBackend(grid_job(job()))
    snapshot = backend.snapshot(KEY)
    assert snapshot is not None
    history = history_of(record(GridPoint(8, None, 0), 0), record(point, 1, result=Result.DISRUPTED.value))
    decided = decide_point(snapshot, history, point, NOW)
    assert decided.order == (1, 1)
