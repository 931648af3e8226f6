"""The base of records and the types of their fields, which pydantic checks before a value is written or used.

The description of a field's type says what is expected of it, in an error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, AwareDatetime, ConfigDict, Field, ValidationError, model_validator
from pydantic.dataclasses import dataclass
from pydantic_core import ArgsKwargs

from wattloop.errors import InputError

MAX_INTEGER = 2**63 - 1
MAX_SHOWN_CHARACTERS = 200
# Decimals of the API have at most 15 digits before the point; reports stay below.
LIMIT = 1e15
# Built at first use: the validators of all records would take 20 ms of each start.
RECORD = ConfigDict(strict=True, allow_inf_nan=False, extra="forbid", defer_build=True)

# PostgreSQL stores no NUL, and pydantic accepts no lone surrogate, which no database stores.
TEXT, NAME = r"^[^\x00]*$", r"^[^\x00]+$"
TEXT_EXPECTED = "text without NUL or lone surrogates"
NAME_EXPECTED = f"{TEXT_EXPECTED} that is not empty"
AMOUNT_EXPECTED = "a finite number of at least 0 and below 1e15"
SIGNED_EXPECTED = "a finite number between -1e15 and 1e15"


def in_utc(moment: datetime) -> datetime:
    """The same moment in UTC."""
    return moment.astimezone(UTC)


Text = Annotated[str, Field(pattern=TEXT, description=TEXT_EXPECTED)]
Name = Annotated[str, Field(pattern=NAME, description=NAME_EXPECTED)]
OptionalName = Annotated[str | None, Field(pattern=NAME, description=NAME_EXPECTED)]
Index = Annotated[int, Field(ge=0, le=MAX_INTEGER, description="an integer of at least 0 in 64 bits")]
OptionalIndex = Annotated[int | None, Field(ge=0, le=MAX_INTEGER, description="an integer of at least 0 in 64 bits")]
Count = Annotated[int, Field(ge=1, le=MAX_INTEGER, description="an integer of at least 1 in 64 bits")]
Amount = Annotated[float, Field(ge=0, lt=LIMIT, description=AMOUNT_EXPECTED)]
OptionalAmount = Annotated[float | None, Field(ge=0, lt=LIMIT, description=AMOUNT_EXPECTED)]
PositiveAmount = Annotated[float, Field(gt=0, lt=LIMIT, description="a finite number above 0 and below 1e15")]
OptionalSigned = Annotated[float | None, Field(gt=-LIMIT, lt=LIMIT, description=SIGNED_EXPECTED)]
Time = Annotated[AwareDatetime, AfterValidator(in_utc), Field(description="a time with its time zone")]
OptionalTime = Annotated[Time | None, Field(description="a time with its time zone")]


@dataclass(frozen=True, config=RECORD)
class StoredRecord:
    """Base of the records of the store.

    A value that is invalid raises `wattloop.errors.InputError` with the record, the column, the value found and the
    value expected.

    Attributes:
        source: Names a record in messages, by its fields.
    """

    source: ClassVar[str]

    @model_validator(mode="wrap")
    @classmethod
    def _translate_errors(cls, values: ArgsKwargs | dict[str, Any], handler: Callable[[Any], Self]) -> Self:
        try:
            return handler(values)
        except ValidationError as error:
            if not isinstance(values, ArgsKwargs):
                # Read from the JSON of a row, of which the error names the column.
                raise
            names = [field.name for field in fields(cls)]
            found = dict(zip(names, values.args, strict=False)) | (values.kwargs or {})
            first = error.errors(include_url=False)[0]["loc"][0]
            column = names[first] if isinstance(first, int) else first
            if column not in names:
                raise
            shown = repr(found.get(column))
            if len(shown) > MAX_SHOWN_CHARACTERS:
                shown = f"{shown[:MAX_SHOWN_CHARACTERS]}…"
            described: Any = cls.__pydantic_fields__[column].description  # type: ignore[attr-defined]
            raise InputError(cls.source.format(**found), shown, described, column=column) from None
