"""The field type of a metric's curve: a list of pairs on the wire, two tuples of numbers in memory.

An object of a recurrence is kept in memory for as long as it exists. A model for each point would
take ten times the memory, and ten times the time to parse.
"""

from dataclasses import dataclass
from typing import Annotated

from pydantic import GetJsonSchemaHandler, PlainSerializer, PlainValidator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from wattloop_operator.api.field_types import DECIMAL_PATTERN, MAX_DECIMAL_CHARACTERS, format_decimal, to_decimal
from wattloop_operator.api.model import ATOMIC
from wattloop_planner.metric_curve import MetricCurve

# A longer curve is thinned: its size in etcd stays below 4 KiB.
MAX_CURVE_POINTS = 64


@dataclass(frozen=True)
class CurveSchema:
    """Annotation of a field whose JSON schema is a list of pairs of numbers as strings."""

    def __get_pydantic_json_schema__(self, _: CoreSchema, __: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Return the JSON schema of the wire form."""
        number = {"type": "string", "pattern": DECIMAL_PATTERN, "maxLength": MAX_DECIMAL_CHARACTERS}
        pair = {"type": "array", "minItems": 2, "maxItems": 2, "items": number} | ATOMIC
        return {"type": "array", "maxItems": MAX_CURVE_POINTS, "items": pair} | ATOMIC


def parsed_curve(value: object) -> MetricCurve | None:
    """The curve of a wire form; None if it has no points.

    Raises:
        ValueError: The value is not a list of pairs, or has too many.

    Example:
        >>> parsed_curve([["1", "0.5"]])
        MetricCurve(epochs=(1.0,), metrics=(0.5,))
    """
    if value is None or isinstance(value, MetricCurve):
        return value
    try:
        points = [(float(epoch), float(metric)) for epoch, metric in value]  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        raise ValueError("expected a list of pairs of an epoch and a metric") from None
    if len(points) > MAX_CURVE_POINTS:
        raise ValueError(f"found {len(points)} points, expected at most {MAX_CURVE_POINTS}")
    return MetricCurve.from_points(points)


def formatted_curve(curve: MetricCurve | None) -> list[list[str]]:
    """The wire form of a curve.

    Example:
        >>> formatted_curve(MetricCurve((1.0, 2.5), (0.5, 1 / 3)))
        [['1', '0.5'], ['2.5', '0.333333333333']]
    """
    if curve is None:
        return []
    return [
        [format_decimal(to_decimal(epoch)), format_decimal(to_decimal(metric))]
        for epoch, metric in zip(curve.epochs, curve.metrics, strict=True)
    ]


CurveField = Annotated[
    MetricCurve | None,
    PlainValidator(parsed_curve),
    PlainSerializer(formatted_curve, return_type=list[list[str]], when_used="json"),
    CurveSchema(),
]
"""The curve of a metric; None if it has no points."""
