"""Whatever numbers the store or an object holds of a job, they are refused, or its decisions and figures are finite."""

import json
import math
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.backends.model_backend import KEY, ModelBackend, job
from support.databases.sample_record import RECORD
from wattloop.errors import InputError
from wattloop_operator.domain.records import ObservationRecord
from wattloop_operator.reconcile.learning.decision import Attempt, decide
from wattloop_operator.reconcile.next_actions import next_actions
from wattloop_planner.metric_curve import MetricCurve

NUMBERS = st.sampled_from([-0.0, 0.0, 5e-324, 1e-300, 1e-9, 1.0, 10.0, 1e14, 1e300, 1.7e308, math.inf, -1.0, math.nan])
METRICS = st.sampled_from([-1.7e308, -0.0, 5e-324, 0.9, 1.7e308, math.nan, -math.inf])
NOW = datetime(2026, 3, 2, tzinfo=UTC)
TIMES = st.sampled_from(
    [datetime(1, 1, 2, tzinfo=UTC), NOW - timedelta(days=1), NOW, datetime(9999, 12, 30, tzinfo=UTC)]
)
POISON = st.fixed_dictionaries(
    {},
    optional={
        "epochs": NUMBERS,
        "energy_joules": NUMBERS,
        "time_seconds": NUMBERS,
        "max_power_watts": NUMBERS,
        "power_limit_watts": NUMBERS,
        "epoch_energy_joules": NUMBERS,
        "epoch_time_seconds": NUMBERS,
        "start_up_energy_joules": NUMBERS,
        "start_up_time_seconds": NUMBERS,
        "metric": METRICS,
        "scheduled_at": TIMES,
        "finished_at": TIMES,
        "result": st.sampled_from(["Reached", "Stopped", "Exhausted", "Crashed", "Plateaued"]),
        "curve": st.sampled_from(
            [None, ((5e-324, 1.0), (-1.7e308, 1.7e308)), ((1.0, 1.7e308), (0.5, 0.6)), ((1.0, 2.0), (0.0, -0.0))]
        ),
    },
)


def record(number: int, poison: dict[str, Any]) -> ObservationRecord | None:
    """A record of the job; None if its values are refused."""
    values = dict(poison)
    size = (32, 64, 128)[number % 3]
    name = f"{KEY.name}-{number:05}-0"
    try:
        if values.get("curve") is not None:
            values["curve"] = MetricCurve(*values["curve"])
        return replace(
            RECORD, job_uid="uid", namespace=KEY.namespace, job_name=KEY.name, recurrence=number,
            recurrence_name=name, batch_size=size, **values,
        )  # fmt: skip
    except (InputError, ValueError):
        return None


def numbers(value: object) -> Iterator[float]:
    """All floats in a value."""
    if isinstance(value, float):
        yield value
    elif is_dataclass(value):
        for each in fields(value):
            yield from numbers(getattr(value, each.name))
    elif isinstance(value, dict):
        for each in value.values():
            yield from numbers(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from numbers(each)


@settings(deadline=None, max_examples=settings().max_examples // 2, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(POISON, min_size=1, max_size=8))
def test_poisoned_observations_are_refused_or_decisions_and_statuses_stay_finite(poisons: list[dict[str, Any]]) -> None:
    backend = ModelBackend(job(batchSize={"default": 64, "candidates": [32, 64, 128]}))
    snapshot = backend.snapshot(KEY)
    assert snapshot is not None
    found = (record(number, poison) for number, poison in enumerate(poisons))
    records = tuple(each for each in found if each is not None)
    for known in (replace(snapshot, records=records), replace(snapshot, source_records=records)):
        decided = decide(known, Attempt(len(poisons), 0, "next", NOW))
        assert all(map(math.isfinite, numbers(decided.spec.model_dump())))
        assert decided.spec.batch_size in (32, 64, 128)
        json.dumps(decided.spec.model_dump(mode="json"), allow_nan=False)
        for action in next_actions(known, NOW).actions:
            status = getattr(action, "status", None)
            if status is not None:
                json.dumps(status.to_wire(), allow_nan=False)
