"""The base of the API: its group, the base class of its models, rules, and what a kind states beside its schema.

Models are camelCase on the wire and immutable in memory, and reject unknown fields.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Final, Self

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, JsonValue, ValidationError
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

GROUP: Final = "wattloop.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = "wattloop.dev/v1alpha1"
CATEGORY = "wattloop"


@dataclass(frozen=True)
class Rule:
    """A validation rule in the Common Expression Language, for the API server and `wattloop validate`.

    Attributes:
        expression: CEL over `self`, and over `oldSelf` in a rule that applies to updates only.
        message: Description of a valid value, worded to follow "expected" in a message.
        field: Path of the field that an error points to, relative to the checked object, such as `.batchSize.default`.
            Empty for the object itself.
    """

    expression: str
    message: str
    field: str = ""

    def to_schema(self) -> dict[str, str]:
        """Return the rule as an entry of `x-kubernetes-validations`."""
        entry = {"rule": self.expression, "message": self.message}
        return entry | {"fieldPath": self.field} if self.field else entry


def exactly_one_of(*members: str, example: str = "") -> Rule:
    """Return the rule of a union.

    Args:
        members: Each a field, and what the message says of it after a space.
        example: An example for the message.

    Example:
        >>> exactly_one_of("job (a batch/v1 JobSpec)", "workload")
        Rule(expression='has(self.job) != has(self.workload)', message='exactly one of job (a batch/v1 JobSpec) and \
workload', field='')
    """
    given = [f"has(self.{member.partition(' ')[0]})" for member in members]
    is_pair = len(members) == 2
    expression = " != ".join(given) if is_pair else f"[{', '.join(given)}].filter(given, given).size() == 1"
    message = f"exactly one of {(' and ' if is_pair else ', ').join(members)}"
    return Rule(expression, f"{message}, such as {example}" if example else message)


def bounds(lower: str, upper: str) -> tuple[Rule, Rule]:
    """Return the rules of an object that has a lower bound, an upper bound, or both."""
    return (
        Rule(
            f"!has(self.{lower}) || !has(self.{upper}) || self.{lower} <= self.{upper}",
            f"a {lower} of at most {upper}",
            f".{lower}",
        ),
        Rule(f"has(self.{lower}) || has(self.{upper})", f"at least one of {lower} and {upper}"),
    )


# How server-side apply merges a list: as one value, as a set, or (`list_map`) by key.
ATOMIC: dict[str, JsonValue] = {"x-kubernetes-list-type": "atomic"}
SET: dict[str, JsonValue] = {"x-kubernetes-list-type": "set"}
# The CustomResourceDefinition does not state this default of the model, so the API server does not store it.
UNPUBLISHED_DEFAULT: dict[str, JsonValue] = {"x-wattloop-unpublished-default": True}


def list_map(*keys: str) -> dict[str, JsonValue]:
    """Return the schema keywords of a list of objects that these fields identify."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


# Shared by all models, and never changed.
_NO_FIELDS: set[str] = set()


class ApiModel(BaseModel):
    """Base class of all parts of the API.

    Attributes:
        rules: Validation rules across fields, included in the CustomResourceDefinition.
    """

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)
    rules: ClassVar[tuple[Rule, ...]] = ()

    def model_post_init(self, _context: Any, /) -> None:
        """Forget which fields were given: the sets of their names are half of the memory of an object."""
        object.__setattr__(self, "__pydantic_fields_set__", _NO_FIELDS)

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Return the JSON schema with the rules in Kubernetes' form."""
        schema = handler.resolve_ref_schema(handler(core_schema))
        if cls.rules:
            schema["x-kubernetes-validations"] = [rule.to_schema() for rule in cls.rules]
        return schema

    @classmethod
    def from_wire(cls, document: dict[str, Any]) -> Self:
        """Parse the wire form, as the API server sends it.

        Raises:
            pydantic.ValidationError: A field is unknown, missing or invalid.
        """
        return cls.model_validate(document)

    def to_wire(self) -> dict[str, Any]:
        """Return the wire form: camelCase, JSON types, absent fields omitted."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


def first_problem(error: ValidationError) -> str:
    """The first field that makes an object no model of the API, and the number of the others.

    Example:
        >>> try:
        ...     ApiModel.from_wire({"a": 1, "b": 2})
        ... except ValidationError as error:
        ...     first_problem(error)
        'a: Extra inputs are not permitted, and 1 more'
    """
    first, further = error.errors(include_url=False)[0], error.error_count() - 1
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}" + (f", and {further} more" if further else "")


class Scope(StrEnum):
    """Whether objects of a kind belong to a namespace."""

    NAMESPACED = "Namespaced"
    CLUSTER = "Cluster"


@dataclass(frozen=True)
class PrinterColumn:
    """One column of `kubectl get`.

    Attributes:
        name: Heading.
        path: JSONPath of the value in the object.
        description: Meaning of the value.
        type: OpenAPI type: string, integer, boolean or date.
        wide: Whether only `-o wide` shows the column.
    """

    name: str
    path: str
    description: str
    type: str = "string"
    wide: bool = False


@dataclass(frozen=True)
class Resource:
    """Names, scope and columns of a kind."""

    kind: str
    plural: str
    singular: str
    short_name: str
    scope: Scope
    columns: tuple[PrinterColumn, ...]
