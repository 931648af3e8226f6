"""A JSON object of a user's that is kept as its text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pydantic_core
from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema


class PreservedObject:
    """A JSON object, kept as its text and parsed at each use: a parsed `[[[[` needs 45 times the memory of its text.

    Args:
        value: The object.

    Example:
        >>> PreservedObject({"parallelism": 2}).value
        {'parallelism': 2}
    """

    __slots__ = ("text",)

    def __init__(self, value: Mapping[str, Any]) -> None:
        self.text = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")

    @property
    def value(self) -> dict[str, Any]:
        """The object; each call returns another copy."""
        parsed: dict[str, Any] = pydantic_core.from_json(self.text)
        return parsed

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PreservedObject) and self.value == other.value

    def __hash__(self) -> int:
        return hash(len(self.text))

    @classmethod
    def __get_pydantic_core_schema__(cls, _: Any, __: GetCoreSchemaHandler) -> CoreSchema:
        """Return a schema that takes an object, and gives it back in the wire form."""
        return core_schema.no_info_plain_validator_function(
            cls._validated,
            serialization=core_schema.plain_serializer_function_ser_schema(lambda preserved: preserved.value),
            json_schema_input_schema=core_schema.dict_schema(core_schema.str_schema(), core_schema.any_schema()),
        )

    @classmethod
    def _validated(cls, value: object) -> PreservedObject:
        if isinstance(value, PreservedObject):
            return value
        if not isinstance(value, Mapping):
            raise PydanticCustomError("object_type", "Input should be an object")
        return cls(value)
