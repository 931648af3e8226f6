"""Invalid records are rejected at construction, with the object and the column."""

import dataclasses
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone

import pytest

from wattloop.errors import InputError
from wattloop_operator.store import LateUsage, ObservationRecord, PowerMeasurement, PowerProfileKey
from wattloop_planner.metric_curve import MetricCurve


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("job_uid", ""),
        ("job_name", ""),
        ("reason", "a NUL \0"),
        ("reason", "half a pair \ud800"),
        ("recurrence", -1),
        ("recurrence", True),
        ("recurrence", 2**63),
        ("attempt", 1.5),
        ("batch_size", 0),
        ("power_limit_watts", -1.0),
        ("result", "reached"),
        ("epochs", float("nan")),
        ("metric", float("nan")),
        ("metric", float("inf")),
        ("energy_joules", -0.1),
        ("energy_joules", float("inf")),
        ("time_seconds", float("nan")),
        ("epoch_energy_joules", float("nan")),
        ("gpu_count", -1),
        ("template_digest", ""),
        ("image_digest", ""),
        ("image_digest", "sha256:ab"),
        ("target_metric", None),
        ("target_direction", "maximize"),
        ("target_threshold", float("nan")),
        ("target_evaluations", 0),
        ("curve", "[[1,0.5]]"),
        ("curve", ((1.0, 0.5),)),
        ("curve", MetricCurve(tuple(float(epoch) for epoch in range(1, 66)), (0.5,) * 65)),
        ("finished_at", datetime(2026, 1, 1)),  # noqa: DTZ001
    ],
)
def test_an_invalid_observation_names_its_object_and_column(
    observation: Callable[..., ObservationRecord], column: str, value: object
) -> None:
    with pytest.raises(InputError) as raised:
        observation(**{column: value})
    assert raised.value.column == column
    assert raised.value.source.startswith("observation team/")


def test_an_invalid_value_is_shown_in_bounded_length(observation: Callable[..., ObservationRecord]) -> None:
    with pytest.raises(InputError, match=r"column curve: found 'x{199}…, expected pairs"):
        observation(curve="x" * 10_000)


def test_a_time_is_converted_to_utc(observation: Callable[..., ObservationRecord]) -> None:
    tokyo = timezone(timedelta(hours=9))
    record = observation(scheduled_at=datetime(2026, 1, 1, 9, tzinfo=tokyo))
    assert record.scheduled_at.isoformat() == "2026-01-01T00:00:00+00:00"
    assert record.scheduled_at.tzinfo is UTC


@pytest.mark.parametrize(
    "changes", [{"power_limit_watts": 0.0}, {"energy_joules": float("nan")}, {"time_seconds": 0.0}, {"epochs": -1.0}]
)
def test_an_invalid_power_measurement_is_rejected(changes: dict[str, float]) -> None:
    with pytest.raises(InputError, match=next(iter(changes))):
        dataclasses.replace(PowerMeasurement(100, 1, 1, 1), **changes)


@pytest.mark.parametrize("changes", [{"job_uid": ""}, {"batch_size": 0}, {"gpu_count": 0}, {"gpu_product": ""}])
def test_an_invalid_profile_key_is_rejected(changes: dict[str, str | int]) -> None:
    with pytest.raises(InputError, match=next(iter(changes))):
        dataclasses.replace(PowerProfileKey("job", 32, "NVIDIA A40", 1), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("changes", [{"energy_joules": -1.0}, {"job_uid": ""}, {"time_seconds": float("inf")}])
def test_an_invalid_late_usage_is_rejected(changes: dict[str, str | float]) -> None:
    with pytest.raises(InputError, match=next(iter(changes))):
        dataclasses.replace(LateUsage("job", 0, 0, 5.0, 1.0), **changes)  # type: ignore[arg-type]
