"""The base of every API object and part: camelCase on the wire, frozen in memory, unknown fields refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, JsonValue
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema


@dataclass(frozen=True)
class Rule:
    """A check in the Common Expression Language, evaluated by the API server and by `wattloop validate`.

    Attributes:
        expression: CEL over `self` (and `oldSelf`, which makes it a rule about updates only).
        message: What would be right, so that it reads well after "expected".
        field: Path below the checked object that the error points to, as `.batchSize.default`; empty: the object.
    """

    expression: str
    message: str
    field: str = ""

    def to_schema(self) -> dict[str, str]:
        """The rule as an entry of `x-kubernetes-validations`."""
        entry = {"rule": self.expression, "message": self.message}
        return entry | {"fieldPath": self.field} if self.field else entry


# How the API server merges and checks a list (server-side apply): as one value, as a set, or by key.
ATOMIC: dict[str, JsonValue] = {"x-kubernetes-list-type": "atomic"}
# A default of the model that the CustomResourceDefinition does not state, so that the API server does not store it.
UNPUBLISHED_DEFAULT: dict[str, JsonValue] = {"x-wattloop-unpublished-default": True}
SET: dict[str, JsonValue] = {"x-kubernetes-list-type": "set"}


def list_map(*keys: str) -> dict[str, JsonValue]:
    """Schema keywords of a list of objects that these fields tell apart."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


class ApiModel(BaseModel):
    """Base of every part of the API.

    Attributes:
        rules: Checks across fields, declared beside the fields and carried into the CustomResourceDefinition.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
    )
    rules: ClassVar[tuple[Rule, ...]] = ()

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """The JSON schema, with the rules as Kubernetes writes them."""
        schema = handler.resolve_ref_schema(handler(core_schema))
        if cls.rules:
            schema["x-kubernetes-validations"] = [rule.to_schema() for rule in cls.rules]
        return schema

    @classmethod
    def from_wire(cls, document: dict[str, Any]) -> Self:
        """Read the wire form, as the API server sends it.

        Raises:
            pydantic.ValidationError: A field is unknown, missing or wrong.
        """
        return cls.model_validate(document)

    def to_wire(self) -> dict[str, Any]:
        """The wire form: camelCase, JSON types, absent fields left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)
