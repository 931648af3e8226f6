"""The parts of Kubernetes' `meta/v1` that Wattloop uses: ObjectMeta, OwnerReference and Condition."""

from enum import StrEnum
from typing import Annotated, Any

from pydantic import ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer
from pydantic.alias_generators import to_camel

from wattloop_operator.api.field_types import Time
from wattloop_operator.api.model import ApiModel, list_map


class OwnerReference(ApiModel):
    """A reference to the object's owner; the garbage collector deletes the object after its owner."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(ApiModel):
    """Name, identity and labels of an object. Other fields are ignored: the API server owns the schema of metadata."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True)

    name: str = ""
    namespace: str = ""
    uid: str = ""
    generation: int | None = None
    resource_version: str | None = None
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()

    @property
    def full_name(self) -> str:
        """Namespace and name, for messages."""
        return f"{self.namespace}/{self.name}"

    @model_serializer(mode="wrap")
    def _without_empty(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in handler(self).items() if value not in (None, "", [], {}, ())}


class ConditionStatus(StrEnum):
    """The status of a condition."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(ApiModel):
    """One aspect of an object's state."""

    type: str = Field(description="Type of the condition in CamelCase.", min_length=1, max_length=64)
    status: ConditionStatus = Field(description="Status of the condition: True, False or Unknown.")
    reason: str = Field(
        description="Reason for the status in CamelCase, for programs.",
        min_length=1,
        max_length=128,
        pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
    )
    message: str = Field(
        default="",
        description="Explanation of the status for users, with the next step if one is needed.",
        max_length=4096,
    )
    last_transition_time: Time = Field(description="Time at which the status last changed.")


Conditions = Annotated[
    tuple[Condition, ...],
    Field(
        description="Latest observations of the object's state, one condition for each type.",
        max_length=16,
        json_schema_extra=list_map("type"),
    ),
]
"""The conditions of a status, keyed by type."""
