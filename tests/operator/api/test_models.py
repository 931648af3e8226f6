"""The models and their field types: parsing, wire form, validation."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from wattloop_operator.api.batch_size import PolicyName
from wattloop_operator.api.checks.documents import read_documents
from wattloop_operator.api.cron import ScheduleError, check_schedule
from wattloop_operator.api.field_types import DecimalString, NonNegativeDecimalString, Time
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.schemas import KINDS, structural_schema
from wattloop_operator.domain.progress import Progress
from wattloop_planner.metric_curve import MetricCurve

MANIFESTS = Path(__file__).parents[2] / "manifests" / "valid"
DECIMAL: TypeAdapter[Decimal] = TypeAdapter(DecimalString)
NON_NEGATIVE_DECIMAL: TypeAdapter[Decimal] = TypeAdapter(NonNegativeDecimalString)
TIME: TypeAdapter[datetime] = TypeAdapter(Time)


def manifest(name: str) -> dict[str, Any]:
    path = MANIFESTS / f"{name}.yaml"
    value: dict[str, Any] = next(read_documents(str(path), path.read_text(encoding="utf-8"))).value
    return value


def optional_fields_without_meaning(schema: dict[str, Any], path: str) -> Iterator[str]:
    """Optional fields that state neither a default nor what their absence means, and are no member of a union."""
    is_union = "exactly one of" in schema.get("description", "")
    for name, part in schema.get("properties", {}).items():
        stated = "default" in part or re.search(r"\b(Absent|Empty)\b|\((the )?default\b", part.get("description", ""))
        if not (stated or is_union or name in schema.get("required", ())):
            yield f"{path}.{name}"
        yield from optional_fields_without_meaning(part, f"{path}.{name}")
        yield from optional_fields_without_meaning(part.get("items", {}), f"{path}.{name}[]")


@pytest.mark.parametrize("model", [model for model in KINDS if "spec" in model.model_fields])
def test_an_optional_field_of_a_spec_states_what_its_absence_means(model: Any) -> None:
    spec = structural_schema(model)["properties"]["spec"]
    assert list(optional_fields_without_meaning(spec, "spec")) == []


def test_an_optional_field_that_does_not_state_what_its_absence_means_is_found() -> None:
    schema = {"properties": {"told": {"description": "A. Absent: none."}, "untold": {"items": {}}}}
    assert list(optional_fields_without_meaning(schema, "spec")) == ["spec.untold"]


@pytest.mark.parametrize("name", ["everything", "training-recurrence", "gpu-power-policy", "frequency-plan"])
def test_the_wire_form_of_a_model_is_read_unchanged(name: str) -> None:
    written = manifest(name)
    model = next(model for model in KINDS if model.resource.kind == written["kind"])
    read = model.from_wire(written)
    assert model.from_wire(read.to_wire()) == read


def test_the_spec_of_a_workload_is_preserved_as_written() -> None:
    written = manifest("workload-jobset")["spec"]["template"]["spec"]
    job = RecurringTrainingJob.from_wire(manifest("workload-jobset"))
    assert job.to_wire()["spec"]["template"]["spec"] == written
    assert written["replicatedJobs"][0]["extra"] is None


@pytest.mark.parametrize(
    ("name", "policy"), [("minimal", PolicyName.THOMPSON_SAMPLING), ("policy-zeus", PolicyName.ZEUS)]
)
def test_the_default_policy_is_thompson_sampling(name: str, policy: PolicyName) -> None:
    assert RecurringTrainingJob.from_wire(manifest(name)).spec.batch_size.policy == policy


def test_a_model_is_immutable_and_rejects_unknown_fields() -> None:
    progress = Progress(ranks=1)
    with pytest.raises(ValidationError, match="frozen"):
        progress.ranks = 2  # type: ignore[misc]
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        Progress.from_wire({"rank": 1})


def test_unused_fields_of_metadata_are_ignored() -> None:
    written = manifest("minimal")
    written["metadata"] |= {"managedFields": [{"manager": "kubectl"}], "selfLink": "/x"}
    assert RecurringTrainingJob.from_wire(written).metadata.to_wire() == {"name": "digits"}


@given(st.decimals(allow_nan=False, allow_infinity=False, places=12, min_value=-(10**14), max_value=10**14))
def test_the_wire_form_of_a_decimal_is_exact(number: Decimal) -> None:
    assert DECIMAL.validate_json(DECIMAL.dump_json(number)) == number


@given(st.floats(min_value=1e-6, max_value=1e14))
def test_a_float_keeps_its_significant_digits(number: float) -> None:
    text = DECIMAL.dump_python(DECIMAL.validate_python(number), mode="json")
    assert float(text) == pytest.approx(number, rel=1e-11, abs=1e-12)
    assert "e" not in text.lower()
    assert len(text) <= 29


@pytest.mark.parametrize(
    "value", ["", "abc", "NaN", "Infinity", "1e15", True, None, [], float("nan"), float("inf"), 1e15]
)
def test_a_value_that_is_not_a_finite_decimal_is_rejected(value: object) -> None:
    with pytest.raises(ValidationError, match="expected a"):
        DECIMAL.validate_python(value)


def test_a_non_negative_decimal_rejects_a_negative_number() -> None:
    assert NON_NEGATIVE_DECIMAL.validate_python("0") == 0
    with pytest.raises(ValidationError, match="greater than or equal to 0"):
        NON_NEGATIVE_DECIMAL.validate_python("-0.001")


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (datetime(2026, 3, 1, 12, tzinfo=UTC), "2026-03-01T12:00:00Z"),
        (datetime(2026, 3, 1, 12, 0, 0, 250_000, tzinfo=UTC), "2026-03-01T12:00:00.250000Z"),
        (datetime(2026, 3, 1, 12, tzinfo=timezone(timedelta(hours=2))), "2026-03-01T10:00:00Z"),
    ],
)
def test_the_wire_form_of_a_time_is_in_utc(moment: datetime, text: str) -> None:
    assert TIME.dump_python(moment, mode="json") == text
    assert TIME.validate_python(text) == moment


def test_a_time_without_a_zone_is_rejected() -> None:
    with pytest.raises(ValidationError, match="timezone"):
        TIME.validate_python("2026-03-01T12:00:00")


@pytest.mark.parametrize(
    "schedule",
    ["9" * 5000 + " * * * *", "*/" + "9" * 5000 + " * * * *", "\u00b2 * * * *", "1-\u00b2 * * * *", "* * * * 1#\u00b2"],
    ids=["digits", "step", "superscript", "range", "weekday"],
)
def test_a_number_that_python_cannot_parse_is_an_invalid_schedule(schedule: str) -> None:
    with pytest.raises(ScheduleError, match="five cron fields") as raised:
        check_schedule(schedule, "UTC")
    assert raised.value.field == "schedule"
    assert len(raised.value.found) < 200


def test_a_long_name_of_a_time_zone_is_truncated_in_the_message() -> None:
    with pytest.raises(ScheduleError, match="IANA") as raised:
        check_schedule("0 3 * * *", "x" * 5000)
    assert len(raised.value.found) < 100


@pytest.mark.parametrize(
    ("points", "problem"),
    [
        ("0.5", "expected a list of pairs of an epoch and a metric"),
        (7, "expected a list of pairs"),
        ([["1"]], "expected a list of pairs"),
        ([["one", "0.5"]], "expected a list of pairs"),
        ([["1", "0.5"]] * 65, "found 65 points, expected at most 64"),
    ],
)
def test_an_invalid_curve_is_rejected(points: object, problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        Progress.from_wire({"curve": points})


def test_a_curve_has_the_wire_form_of_a_list_of_pairs() -> None:
    wire = {"curve": [["1", "0.51"], ["2.5", "-0.000000000001"]]}
    progress = Progress.from_wire(wire)
    assert progress.curve == MetricCurve((1.0, 2.5), (0.51, -1e-12))
    assert progress.to_wire()["curve"] == wire["curve"]
    assert Progress.from_wire({}).curve is None
    assert "curve" not in Progress().to_wire()
