"""The models: what they read, what they write, what they refuse."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from wattloop_operator.api.attempt import Progress
from wattloop_operator.api.checks.documents import read_documents
from wattloop_operator.api.field_types import DecimalString, NonNegativeDecimalString, Time
from wattloop_operator.api.policy import PolicyName
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.schemas import KINDS

MANIFESTS = Path(__file__).parents[2] / "manifests" / "accepted"
DECIMAL: TypeAdapter[Decimal] = TypeAdapter(DecimalString)
AMOUNT: TypeAdapter[Decimal] = TypeAdapter(NonNegativeDecimalString)
TIME: TypeAdapter[datetime] = TypeAdapter(Time)


def manifest(name: str) -> dict[str, Any]:
    path = MANIFESTS / f"{name}.yaml"
    value: dict[str, Any] = next(read_documents(str(path), path.read_text(encoding="utf-8"))).value
    return value


@pytest.mark.parametrize("name", ["everything", "training-recurrence", "gpu-power-policy", "frequency-plan"])
def test_what_a_model_writes_it_reads_again(name: str) -> None:
    written = manifest(name)
    model = next(model for model in KINDS if model.resource.kind == written["kind"])
    read = model.from_wire(written)
    assert model.from_wire(read.to_wire()) == read


def test_what_the_user_wrote_in_a_template_stays_as_it_is() -> None:
    written = manifest("workload-jobset")["spec"]["template"]["workload"]["spec"]
    job = RecurringTrainingJob.from_wire(manifest("workload-jobset"))
    assert job.to_wire()["spec"]["template"]["workload"]["spec"] == written
    assert written["replicatedJobs"][0]["extra"] is None


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        ("minimal", PolicyName.THOMPSON_SAMPLING),
        ("policy-thompson-sampling", PolicyName.THOMPSON_SAMPLING),
        ("policy-zeus", PolicyName.ZEUS),
        ("policy-fixed", PolicyName.FIXED),
    ],
)
def test_the_policy_is_the_one_given_else_thompson_sampling(name: str, policy: PolicyName) -> None:
    assert RecurringTrainingJob.from_wire(manifest(name)).spec.policy.name == policy


def test_a_model_is_frozen_and_knows_its_fields() -> None:
    progress = Progress(sequence=1)
    with pytest.raises(ValidationError, match="frozen"):
        progress.sequence = 2  # type: ignore[misc]
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        Progress.from_wire({"sequense": 1})


def test_metadata_that_wattloop_does_not_use_is_passed_over() -> None:
    written = manifest("minimal")
    written["metadata"] |= {"managedFields": [{"manager": "kubectl"}], "selfLink": "/x"}
    assert RecurringTrainingJob.from_wire(written).metadata.to_wire() == {"name": "digits"}


@given(st.decimals(allow_nan=False, allow_infinity=False, places=12, min_value=-(10**14), max_value=10**14))
def test_a_decimal_travels_unchanged(number: Decimal) -> None:
    assert DECIMAL.validate_json(DECIMAL.dump_json(number)) == number


@given(st.floats(min_value=1e-6, max_value=1e14))
def test_a_float_keeps_its_first_digits(number: float) -> None:
    text = DECIMAL.dump_python(DECIMAL.validate_python(number), mode="json")
    assert float(text) == pytest.approx(number, rel=1e-11, abs=1e-12)
    assert "e" not in text.lower()
    assert len(text) <= 29


@pytest.mark.parametrize(
    "value", ["", "abc", "NaN", "Infinity", "1e15", True, None, [], float("nan"), float("inf"), 1e15]
)
def test_what_is_no_finite_decimal_is_refused(value: object) -> None:
    with pytest.raises(ValidationError, match="expected a"):
        DECIMAL.validate_python(value)


def test_an_amount_is_not_negative() -> None:
    assert AMOUNT.validate_python("0") == 0
    with pytest.raises(ValidationError, match="greater than or equal to 0"):
        AMOUNT.validate_python("-0.001")


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (datetime(2026, 3, 1, 12, tzinfo=UTC), "2026-03-01T12:00:00Z"),
        (datetime(2026, 3, 1, 12, 0, 0, 250_000, tzinfo=UTC), "2026-03-01T12:00:00.250000Z"),
        (datetime(2026, 3, 1, 12, tzinfo=timezone(timedelta(hours=2))), "2026-03-01T10:00:00Z"),
    ],
)
def test_a_time_travels_in_utc(moment: datetime, text: str) -> None:
    assert TIME.dump_python(moment, mode="json") == text
    assert TIME.validate_python(text) == moment


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(ValidationError, match="timezone"):
        TIME.validate_python("2026-03-01T12:00:00")
