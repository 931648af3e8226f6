"""The forms of the reporting API as OpenAPI describes them; `wattloop.messages` is what reads and checks them."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from wattloop import messages
from wattloop_operator.api.training_recurrence import TrainingRecurrence

LARGEST_INTEGER = 2**63 - 1
PRINTABLE = "^[ -~]*$"


class ErrorForm(BaseModel):
    """Why a request is refused."""

    detail: str = Field(description="What was wrong, and what would be right.")


class AnswerForm(BaseModel):
    """The answer to a report."""

    stop: bool = Field(description="Whether the process shall end now.")
    reason: str = Field(description="Why.")


class DecisionForm(BaseModel):
    """What was decided for an attempt."""

    batch_size: int = Field(description="The batch size to train with.")
    power_limit_watts: int | None = Field(description="The limit to hold on each GPU; null: none is decided.")
    profile_power_limits: bool = Field(description="Whether the attempt measures the power limits first.")
    max_epochs: int = Field(description="Epochs after which the attempt ends without the target.")
    reason: str = Field(description="Why this batch size.")


def decision_form(recurrence: TrainingRecurrence) -> DecisionForm:
    """The decision of a recurrence."""
    spec = recurrence.spec
    return DecisionForm(
        batch_size=spec.batch_size,
        power_limit_watts=spec.power_limit_watts,
        profile_power_limits=spec.profile_power_limits,
        max_epochs=spec.max_epochs,
        reason=spec.decision.reason,
    )


def report_form() -> dict[str, Any]:
    """The request body of a report."""
    return {"required": True, "content": {"application/json": {"schema": _report()}}}


def _report() -> dict[str, Any]:
    counter, clock = messages.LARGEST_ENERGY_MILLIJOULES, messages.LARGEST_TIME_SECONDS
    gpu = _object(
        {
            "uuid": _text("The GPU.", messages.LONGEST_UUID, least=1),
            "start_energy_millijoules": _whole("Its cumulative energy counter when the attempt began.", counter),
            "energy_millijoules": _whole("The counter now; never less than at the start.", counter),
            "start_time_seconds": _amount("The agent's clock when the attempt began.", clock),
            "time_seconds": _amount("The agent's clock now; never less than at the start.", clock),
        }
    )
    least, watts = messages.LEAST_MEASURED, messages.LARGEST_LIMIT_WATTS
    limit = _object(
        {
            "power_limit_watts": _amount("The limit that was held on each GPU, each once in whole watts.", watts, 1),
            "energy_joules": _amount("Energy of all GPUs while it was held.", messages.LARGEST_NUMBER, least),
            "time_seconds": _amount("How long it was held.", clock, least),
            "epochs": _amount("The part of an epoch that was run meanwhile.", messages.LARGEST_NUMBER, least),
        }
    )
    return _object(
        {
            "sequence": _whole("Rises with each report of a process."),
            "epoch": _amount("Epochs completed.", messages.LARGEST_NUMBER),
            "metric": _nullable(
                _amount("The target metric as last evaluated.", messages.LARGEST_NUMBER, -messages.LARGEST_NUMBER)
            ),
            "evaluations": _whole("How often the metric has been evaluated."),
            "reached_in_a_row": _nullable(
                _whole("How many evaluations in a row, up to the last, reached the target; null: not counted.")
            ),
            "gpus": _list("One entry a GPU.", gpu, messages.MOST_GPUS),
            "gpu_product": _text("Product name of the GPUs.", messages.LONGEST_PRODUCT),
            "max_power_limit_watts": _amount("Sum of these GPUs' maximum power limits.", messages.LARGEST_POWER_WATTS),
            "power_limit_watts": _nullable(_amount("The limit held now on each GPU; null: none.", watts)),
            "profile": _list("Power limits measured in this attempt.", limit, messages.MOST_LIMITS),
            "finished": {"type": "boolean", "description": "Whether this is the last report."},
            "rank": _whole("Which process of a distributed run speaks; the metric of rank 0 counts."),
        },
        required=["sequence", "epoch"],
    )


def _object(properties: dict[str, Any], required: list[str] | None = None) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(properties) if required is None else required,
        "properties": properties,
    }


def _list(description: str, items: dict[str, Any], most: int) -> dict[str, Any]:
    return {"type": "array", "maxItems": most, "items": items, "description": description}


def _whole(description: str, most: int = LARGEST_INTEGER) -> dict[str, Any]:
    return {"type": "integer", "minimum": 0, "maximum": most, "description": description}


def _amount(description: str, most: float, least: float = 0) -> dict[str, Any]:
    return {"type": "number", "minimum": least, "maximum": most, "description": description}


def _text(description: str, longest: int, least: int = 0) -> dict[str, Any]:
    return {
        "type": "string",
        "minLength": least,
        "maxLength": longest,
        "pattern": PRINTABLE,
        "description": description,
    }


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    return {**schema, "type": [schema["type"], "null"]}
