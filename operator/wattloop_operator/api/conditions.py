"""Conditions: what is true of an object now, with the reason, as Kubernetes' tools read it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from wattloop_operator.api.model import ApiModel, list_map
from wattloop_operator.api.times import Time


class ConditionStatus(StrEnum):
    """Whether a condition holds."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(ApiModel):
    """One aspect of an object's state."""

    type: str = Field(description="What the condition is about, in CamelCase.", min_length=1, max_length=64)
    status: ConditionStatus = Field(description="Whether it holds: True, False or Unknown.")
    reason: str = Field(
        description="Why, as one CamelCase word for programs.",
        min_length=1,
        max_length=128,
        pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
    )
    message: str = Field(
        default="",
        description="Why, in a sentence for people, with the next step where one is needed.",
        max_length=4096,
    )
    last_transition_time: Time = Field(description="When the status last changed.")
    observed_generation: int | None = Field(
        default=None, description="The generation of the spec that the condition speaks of.", ge=0
    )


Conditions = Annotated[
    tuple[Condition, ...],
    Field(
        description="What is true of the object now, a condition a type.",
        max_length=16,
        json_schema_extra=list_map("type"),
    ),
]
"""The conditions of a status, told apart by their type."""
