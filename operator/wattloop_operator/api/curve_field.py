"""The field type of a metric's curve: a list of points on the wire, two tuples of numbers in memory.

An object of a recurrence is kept in memory for as long as it exists. A model for each point would
take ten times the memory, and ten times the time to parse.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, GetJsonSchemaHandler, PlainSerializer, PlainValidator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from wattloop_operator.api.field_types import DecimalString, NonNegativeDecimalString, format_decimal, to_decimal
from wattloop_operator.api.model import ATOMIC, ApiModel
from wattloop_planner.metric_curve import MetricCurve

# A longer curve is thinned: its size in etcd stays below 4 KiB.
MAX_CURVE_POINTS = 64


class CurvePoint(ApiModel):
    """One evaluation of the metric."""

    epoch: NonNegativeDecimalString = Field(
        description="Epochs run at the evaluation, by all processes of the attempt."
    )
    metric: DecimalString = Field(description="Value of the metric.")


@dataclass(frozen=True)
class CurveSchema:
    """Annotation of a field whose JSON schema is a list of points."""

    def __get_pydantic_json_schema__(self, _: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Return the JSON schema of the wire form."""
        items = handler(CurvePoint.__pydantic_core_schema__)
        return {"type": "array", "maxItems": MAX_CURVE_POINTS, "items": items} | ATOMIC


def parsed_curve(value: object) -> MetricCurve | None:
    """The curve of a wire form; None if it has no points.

    Raises:
        ValueError: The value is not a list of points, or has too many.

    Example:
        >>> parsed_curve([{"epoch": "1", "metric": "0.5"}])
        MetricCurve(epochs=(1.0,), metrics=(0.5,))
    """
    if value is None or isinstance(value, MetricCurve):
        return value
    try:
        points = [(float(point["epoch"]), float(point["metric"])) for point in value]  # type: ignore[attr-defined]
    except (TypeError, KeyError):
        raise ValueError("expected a list of points with an epoch and a metric each") from None
    if len(points) > MAX_CURVE_POINTS:
        raise ValueError(f"found {len(points)} points, expected at most {MAX_CURVE_POINTS}")
    return MetricCurve.from_points(points)


def formatted_curve(curve: MetricCurve | None) -> list[dict[str, str]]:
    """The wire form of a curve.

    Example:
        >>> formatted_curve(MetricCurve((1.0, 2.5), (0.5, 1 / 3)))
        [{'epoch': '1', 'metric': '0.5'}, {'epoch': '2.5', 'metric': '0.333333333333'}]
    """
    if curve is None:
        return []
    return [
        {"epoch": format_decimal(to_decimal(epoch)), "metric": format_decimal(to_decimal(metric))}
        for epoch, metric in zip(curve.epochs, curve.metrics, strict=True)
    ]


CurveField = Annotated[
    MetricCurve | None,
    PlainValidator(parsed_curve),
    PlainSerializer(formatted_curve, return_type=list[dict[str, str]], when_used="json"),
    CurveSchema(),
]
"""The curve of a metric; None if it has no points."""
