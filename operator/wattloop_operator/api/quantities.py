"""Numbers as they travel: decimal strings, since binary floats neither round-trip nor compare across clients."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Annotated

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema

# Up to 15 digits before the point and 12 after it: a joule in a year of an exascale machine, and a picojoule.
DECIMAL_PATTERN = r"^-?[0-9]{1,15}(\.[0-9]{1,12})?$"
MAX_DECIMAL_CHARACTERS = 29
SIGNIFICANT_DIGITS = 12
SMALLEST = Decimal("1e-12")


def to_decimal(value: object) -> Decimal:
    """The number as a decimal: a decimal or a text exactly, a float rounded to 12 significant digits.

    Raises:
        ValueError: Not a number, not finite, or larger than a decimal string can say.

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


def to_text(number: Decimal) -> str:
    """The wire form: digits, at most 12 of them after the point, no exponent.

    Example:
        >>> to_text(Decimal("1.5e3")), to_text(Decimal("0.760")), to_text(Decimal("1e-15"))
        ('1500', '0.760', '0')
    """
    exponent = number.as_tuple().exponent
    if isinstance(exponent, int) and exponent < -12:
        number = number.quantize(SMALLEST)
        number = number.normalize() if number else Decimal(0)
    return f"{number:f}"


DecimalString = Annotated[
    Decimal,
    BeforeValidator(to_decimal),
    PlainSerializer(to_text, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": DECIMAL_PATTERN, "maxLength": MAX_DECIMAL_CHARACTERS}),
]
"""A number that travels as text, such as "0.76"; a `Decimal` in memory. Accepts floats where the engine computes."""

AmountString = Annotated[
    Decimal,
    BeforeValidator(to_decimal),
    Field(ge=0),
    PlainSerializer(to_text, return_type=str, when_used="json"),
    WithJsonSchema(
        {"type": "string", "pattern": DECIMAL_PATTERN.replace("-?", ""), "maxLength": MAX_DECIMAL_CHARACTERS}
    ),
]
"""The same, 0 or more."""
