"""Wire forms: dataclasses whose annotations define the check of JSON and its schema.

A field's annotation holds everything that is known of it: its type, its `ValueType` and a
description. `T | None` may be null, a dataclass default makes the field optional, and a tuple is a
list of at most `MaxItems` entries. The client sends these forms and the operator reads them and
describes them as OpenAPI, from this one definition.
"""

import types
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Annotated, Any, ClassVar, Self, Union, get_args, get_origin, get_type_hints

from wattloop.wire.message_fields import Boolean, MessageError, ValueType, entries, invalid, shown


@dataclass(frozen=True)
class MaxItems:
    """In an annotation of a tuple: the largest number of entries."""

    number: int


@dataclass(frozen=True)
class WireForm:
    """Base of every wire form; see `wattloop.wire.training_messages` for examples."""

    ignores_unknown_fields: ClassVar[bool] = False
    """Whether fields that a later version may add are ignored; otherwise they are an error."""
    always_complete: ClassVar[bool] = False
    """Whether senders always set all fields, so that the schema requires them all."""

    def check(self, place: str) -> None:
        """Check fields against each other.

        Args:
            place: Path of the object in the message, with a dot at its end; empty for the message
                itself.

        Raises:
            MessageError: Fields contradict each other.
        """

    def to_json(self) -> dict[str, Any]:
        """The form as JSON types."""
        return asdict(self)

    @classmethod
    def from_json(cls, body: object, place: str = "") -> Self:
        """Check received JSON and return it as this form.

        Raises:
            MessageError: A field is missing, unknown, of the wrong type or out of bounds, or
                contradicts another one.
        """
        if not isinstance(body, Mapping):
            raise invalid(place or "the message", body, "an object")
        known = _fields(cls)
        if not cls.ignores_unknown_fields:
            unknown = next((name for name in body if name not in known), None)
            if unknown is not None:
                where = f"{place}: " if place else ""
                raise MessageError(f"{where}found the unknown field {shown(unknown)}, expected only {', '.join(known)}")
        prefix = f"{place}." if place else ""
        values = {
            name: field.default
            if name not in body and not field.required
            else field.type.parse(prefix + name, body.get(name))
            for name, field in known.items()
        }
        form = cls(**values)
        form.check(prefix)
        return form

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """The JSON schema of the form."""
        known = _fields(cls)
        schema: dict[str, Any] = {"type": "object"}
        if not cls.ignores_unknown_fields:
            schema["additionalProperties"] = False
        schema["required"] = [name for name, field in known.items() if cls.always_complete or field.required]
        schema["properties"] = {
            name: {**field.type.schema(), "description": field.description} for name, field in known.items()
        }
        return schema


def check_unique(place: str, subject: str, keys: Sequence[object]) -> None:
    """Check that the entries of a list have different keys.

    Raises:
        MessageError: Two entries have the same key.
    """
    if len(set(keys)) < len(keys):
        twice = next(key for key, times in Counter(keys).items() if times > 1)
        raise MessageError(f"{place}: found {shown(str(twice))} twice, expected one entry per {subject}")


@dataclass(frozen=True)
class _Field:
    type: ValueType
    required: bool
    default: Any
    description: str


@dataclass(frozen=True)
class _Nullable(ValueType):
    type: ValueType

    def parse(self, place: str, value: object) -> Any:
        return None if value is None else self.type.parse(place, value)

    def schema(self) -> dict[str, Any]:
        schema = self.type.schema()
        return {**schema, "type": [schema["type"], "null"]}


@dataclass(frozen=True)
class _Object(ValueType):
    form: type[WireForm]

    def parse(self, place: str, value: object) -> WireForm:
        return self.form.from_json(value, place)

    def schema(self) -> dict[str, Any]:
        return self.form.json_schema()


@dataclass(frozen=True)
class _List(ValueType):
    item: ValueType
    max_items: int

    def parse(self, place: str, value: object) -> tuple[Any, ...]:
        listed = entries(place, value, self.max_items)
        if self.item.are_valid(listed):
            return tuple(listed)
        return tuple(self.item.parse(f"{place}[{index}]", entry) for index, entry in enumerate(listed))

    def schema(self) -> dict[str, Any]:
        return {"type": "array", "maxItems": self.max_items, "items": self.item.schema()}


_KNOWN_FIELDS: dict[type[WireForm], dict[str, _Field]] = {}


def _fields(form: type[WireForm]) -> dict[str, _Field]:
    if form not in _KNOWN_FIELDS:
        hints = get_type_hints(form, include_extras=True)
        _KNOWN_FIELDS[form] = {
            field.name: _Field(
                _value_type(hints[field.name]),
                required=field.default is MISSING,
                default=field.default,
                description=next(each for each in hints[field.name].__metadata__ if isinstance(each, str)),
            )
            for field in fields(form)
        }
    return _KNOWN_FIELDS[form]


def _value_type(hint: Any) -> ValueType:
    base: Any = hint
    metadata: tuple[object, ...] = ()
    if get_origin(hint) is Annotated:
        base, metadata = hint.__origin__, hint.__metadata__
    if get_origin(base) in (Union, types.UnionType):
        inner = next(each for each in get_args(base) if each is not type(None))
        return _Nullable(_value_type(Annotated[(inner, *metadata)] if metadata else inner))
    declared = next((each for each in metadata if isinstance(each, ValueType)), None)
    if declared is not None:
        return declared
    if base is bool:
        return Boolean()
    if isinstance(base, type) and issubclass(base, WireForm):
        return _Object(base)
    max_items = next(each for each in metadata if isinstance(each, MaxItems))
    return _List(_value_type(get_args(base)[0]), max_items.number)
