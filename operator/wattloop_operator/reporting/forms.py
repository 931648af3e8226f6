"""The forms of the reporting API as OpenAPI describes them; `wattloop.messages` is what reads and checks them."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from wattloop import messages
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.reporting.schemas import (
    integer,
    json_body_form,
    list_of,
    nullable,
    number_schema,
    object_of,
    text,
)


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
    return json_body_form(_report())


def _report() -> dict[str, Any]:
    counter, clock = messages.MAX_ENERGY_MILLIJOULES, messages.MAX_TIME_SECONDS
    gpu = object_of(
        {
            "uuid": text("The GPU.", messages.MAX_GPU_UUID_CHARACTERS, 1, f"^({messages.GPU_UUID_PATTERN})$"),
            "start_energy_millijoules": integer("Its cumulative energy counter when the attempt began.", counter),
            "energy_millijoules": integer("The counter now; never less than at the start.", counter),
            "start_time_seconds": number_schema("The agent's clock when the attempt began.", clock),
            "time_seconds": number_schema("The agent's clock now; never less than at the start.", clock),
        }
    )
    least, watts = messages.MIN_MEASURED, messages.MAX_LIMIT_WATTS
    limit = object_of(
        {
            "power_limit_watts": number_schema(
                "The limit that was held on each GPU, each once in whole watts.", watts, 1
            ),
            "energy_joules": number_schema("Energy of all GPUs while it was held.", messages.MAX_NUMBER, least),
            "time_seconds": number_schema("How long it was held.", clock, least),
            "epochs": number_schema("The part of an epoch that was run meanwhile.", messages.MAX_NUMBER, least),
        }
    )
    return object_of(
        {
            "sequence": integer(
                "Rises with each report; a process begins above the one before it in its attempt, such as with the "
                "milliseconds since the epoch."
            ),
            "epoch": number_schema("Epochs completed by this process.", messages.MAX_NUMBER),
            "metric": nullable(
                number_schema("The target metric as last evaluated.", messages.MAX_NUMBER, -messages.MAX_NUMBER)
            ),
            "evaluations": integer("How often this process has evaluated the metric."),
            "reached_in_a_row": nullable(
                integer("How many evaluations in a row, up to the last, reached the target; null: not counted.")
            ),
            "gpus": list_of("One entry a GPU.", gpu, messages.MAX_GPUS),
            "gpu_product": text("Product name of the GPUs.", messages.MAX_PRODUCT_CHARACTERS),
            "max_power_limit_watts": number_schema(
                "Sum of these GPUs' maximum power limits.", messages.MAX_POWER_WATTS
            ),
            "power_limit_watts": nullable(number_schema("The limit held now on each GPU; null: none.", watts)),
            "power_limit_refusal": text(
                "Why the limit asked for last is not held; empty: it is.", messages.MAX_REFUSAL_CHARACTERS
            ),
            "profile": list_of("Power limits measured in this attempt.", limit, messages.MAX_LIMITS),
            "finished": {"type": "boolean", "description": "Whether this is the last report."},
            "rank": integer("Which process of a distributed run speaks; the metric of rank 0 counts."),
        },
        required=["sequence", "epoch"],
    )
