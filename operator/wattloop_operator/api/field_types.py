"""Field types: decimal numbers and points in time, whose wire form is a string, and batch sizes.

The decimals that Wattloop writes are strings because binary floats neither round-trip nor compare equal across
Kubernetes clients. Users may write theirs as numbers.
"""

from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any

from pydantic import AwareDatetime, BeforeValidator, Field, PlainSerializer, WithJsonSchema

from wattloop.wire.training_messages import MAX_PROBE_BATCH_SIZE

# 15 digits before the point hold the joules of an exascale machine in a year, 12 after it a picojoule.
DECIMAL_PATTERN = r"^-?[0-9]{1,15}(\.[0-9]{1,12})?$"
NON_NEGATIVE_DECIMAL_PATTERN = DECIMAL_PATTERN.replace("-?", "")
MAX_DECIMAL_CHARACTERS = 29
SIGNIFICANT_DIGITS = 12
SMALLEST_DECIMAL = Decimal("1e-12")


def to_decimal(value: object) -> Decimal:
    """Convert a number to a decimal: a decimal or a string exactly, a float rounded to 12 significant digits.

    Raises:
        ValueError: The value is not a number, is not finite, or has more digits than a decimal string may have.

    Example:
        >>> to_decimal("0.760")
        Decimal('0.760')
        >>> to_decimal(1 / 3)
        Decimal('0.333333333333')
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
        # pydantic turns a ValueError, not a TypeError, into its own error.
        raise ValueError(f"found {value!r}, expected a decimal number such as '0.76'")  # noqa: TRY004
    try:
        number = Decimal(f"{value:.{SIGNIFICANT_DIGITS}g}" if isinstance(value, float) else value)
    except InvalidOperation:
        raise ValueError(f"found {value!r}, expected a decimal number such as '0.76'") from None
    if not number.is_finite() or abs(number) >= Decimal(10) ** 15:
        raise ValueError(f"found {value!r}, expected a finite number of at most 15 digits before the point")
    return number


def format_decimal(number: Decimal) -> str:
    """Format a decimal for the wire: digits, at most 12 of them after the point, no exponent.

    Example:
        >>> format_decimal(Decimal("1.5e3")), format_decimal(Decimal("0.760")), format_decimal(Decimal("1e-15"))
        ('1500', '0.760', '0')
    """
    exponent = number.as_tuple().exponent
    if isinstance(exponent, int) and exponent < -12:
        number = number.quantize(SMALLEST_DECIMAL)
        number = number.normalize() if number else Decimal(0)
    return f"{number:f}"


DecimalString = Annotated[
    Decimal,
    BeforeValidator(to_decimal),
    PlainSerializer(format_decimal, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": DECIMAL_PATTERN, "maxLength": MAX_DECIMAL_CHARACTERS}),
]
"""A number with the wire form of a string, such as "0.76"; a `Decimal` in memory. Accepts floats."""

NonNegativeDecimalString = Annotated[
    Decimal,
    BeforeValidator(to_decimal),
    Field(ge=0),
    PlainSerializer(format_decimal, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": NON_NEGATIVE_DECIMAL_PATTERN, "maxLength": MAX_DECIMAL_CHARACTERS}),
]
"""A `DecimalString` of 0 or more."""


def number_or_text(**schema: Any) -> dict[str, Any]:
    """The JSON schema of a field that users may write as a number or as a string.

    A structural schema has no type of both, so it states none, and refuses everything else. Rules in CEL do not see
    such a field.
    """
    nothing_else = {"maxItems": 0, "maxProperties": 0, "not": {"enum": [True, False, [], {}]}}
    return {"x-kubernetes-preserve-unknown-fields": True, **schema, **nothing_else}


_NUMBER = {"maxLength": MAX_DECIMAL_CHARACTERS, "maximum": 10**15 - 1}
Number = Annotated[
    DecimalString, WithJsonSchema(number_or_text(pattern=DECIMAL_PATTERN, minimum=1 - 10**15, **_NUMBER))
]
"""A number that a user writes, such as 0.76 or "0.76"; a `Decimal` in memory."""

NonNegativeNumber = Annotated[
    NonNegativeDecimalString, WithJsonSchema(number_or_text(pattern=NON_NEGATIVE_DECIMAL_PATTERN, minimum=0, **_NUMBER))
]
"""A `Number` of 0 or more."""


def format_time(moment: datetime) -> str:
    """Format a time for the wire: RFC 3339 in UTC, with microseconds only if they are not 0.

    Example:
        >>> format_time(datetime(2026, 3, 1, 12, tzinfo=UTC))
        '2026-03-01T12:00:00Z'
    """
    utc = moment.astimezone(UTC).replace(tzinfo=None)
    return utc.isoformat(timespec="microseconds" if utc.microsecond else "seconds") + "Z"


Time = Annotated[
    AwareDatetime,
    PlainSerializer(format_time, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "format": "date-time", "maxLength": 40}),
]
"""An aware datetime with the wire form 2026-03-01T12:00:00Z."""

MAX_BATCH_SIZE = MAX_PROBE_BATCH_SIZE
BatchSizeNumber = Annotated[int, Field(ge=1, le=MAX_BATCH_SIZE)]

DNS_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
DNS_LABEL_PATTERN = f"^{DNS_LABEL}$"
DNS_SUBDOMAIN_PATTERN = rf"^{DNS_LABEL}(\.{DNS_LABEL})*$"
# Names of recurrences (job and slot) and pods (recurrence and suffix) are derived from it and have at most 63.
MAX_JOB_NAME_CHARACTERS = 35
SECONDS_OF_YEAR = 31_536_000
