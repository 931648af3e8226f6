"""The forms of the reporting API as OpenAPI describes them; `wattloop.messages` is what reads and checks them."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from wattloop.messages import LONGEST_TEXT, MOST_GPUS, MOST_LIMITS
from wattloop_operator.api.training_recurrence import TrainingRecurrence

LARGEST_INTEGER = 2**63 - 1


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
    gpu = _object(
        {
            "uuid": _text("The GPU.", least=1),
            "start_energy_millijoules": _whole("Its cumulative energy counter when the attempt began."),
            "energy_millijoules": _whole("The counter now; never less than at the start."),
            "start_time_seconds": _amount("The agent's clock when the attempt began."),
            "time_seconds": _amount("The agent's clock now; never less than at the start."),
        }
    )
    limit = _object(
        {
            "power_limit_watts": _amount("The limit that was held on each GPU."),
            "energy_joules": _amount("Energy of all GPUs while it was held."),
            "time_seconds": _amount("How long it was held."),
            "epochs": _amount("The part of an epoch that was run meanwhile."),
        }
    )
    return _object(
        {
            "sequence": _whole("Rises with each report of a process."),
            "epoch": _amount("Epochs completed."),
            "metric": {"type": ["number", "null"], "description": "The target metric as last evaluated."},
            "evaluations": _whole("How often the metric has been evaluated."),
            "gpus": {"type": "array", "maxItems": MOST_GPUS, "items": gpu, "description": "One entry a GPU."},
            "gpu_product": _text("Product name of the GPUs."),
            "max_power_limit_watts": _amount("Sum of the GPUs' maximum power limits."),
            "power_limit_watts": {
                "type": ["number", "null"],
                "minimum": 0,
                "description": "The limit held now on each GPU; null: none.",
            },
            "profile": {
                "type": "array",
                "maxItems": MOST_LIMITS,
                "items": limit,
                "description": "Power limits measured in this attempt.",
            },
            "finished": {"type": "boolean", "description": "Whether this is the last report."},
            "rank": _whole("Which process of a distributed run speaks."),
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


def _whole(description: str) -> dict[str, Any]:
    return {"type": "integer", "minimum": 0, "maximum": LARGEST_INTEGER, "description": description}


def _amount(description: str) -> dict[str, Any]:
    return {"type": "number", "minimum": 0, "description": description}


def _text(description: str, least: int = 0) -> dict[str, Any]:
    return {"type": "string", "minLength": least, "maxLength": LONGEST_TEXT, "description": description}
