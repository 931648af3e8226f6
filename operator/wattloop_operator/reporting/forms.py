"""The forms of the reporting API as OpenAPI describes them; `wattloop.messages` is what reads and checks them."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from wattloop import messages
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.reporting.schemas import amount, json_body_form, list_of, nullable, object_of, text, whole


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
    counter, clock = messages.LARGEST_ENERGY_MILLIJOULES, messages.LARGEST_TIME_SECONDS
    gpu = object_of(
        {
            "uuid": text("The GPU.", messages.MAX_GPU_UUID_CHARACTERS, 1, f"^({messages.GPU_UUID_PATTERN})$"),
            "start_energy_millijoules": whole("Its cumulative energy counter when the attempt began.", counter),
            "energy_millijoules": whole("The counter now; never less than at the start.", counter),
            "start_time_seconds": amount("The agent's clock when the attempt began.", clock),
            "time_seconds": amount("The agent's clock now; never less than at the start.", clock),
        }
    )
    least, watts = messages.LEAST_MEASURED, messages.LARGEST_LIMIT_WATTS
    limit = object_of(
        {
            "power_limit_watts": amount("The limit that was held on each GPU, each once in whole watts.", watts, 1),
            "energy_joules": amount("Energy of all GPUs while it was held.", messages.LARGEST_NUMBER, least),
            "time_seconds": amount("How long it was held.", clock, least),
            "epochs": amount("The part of an epoch that was run meanwhile.", messages.LARGEST_NUMBER, least),
        }
    )
    return object_of(
        {
            "sequence": whole(
                "Rises with each report; a process begins above the one before it in its attempt, such as with the "
                "milliseconds since the epoch."
            ),
            "epoch": amount("Epochs completed by this process.", messages.LARGEST_NUMBER),
            "metric": nullable(
                amount("The target metric as last evaluated.", messages.LARGEST_NUMBER, -messages.LARGEST_NUMBER)
            ),
            "evaluations": whole("How often this process has evaluated the metric."),
            "reached_in_a_row": nullable(
                whole("How many evaluations in a row, up to the last, reached the target; null: not counted.")
            ),
            "gpus": list_of("One entry a GPU.", gpu, messages.MOST_GPUS),
            "gpu_product": text("Product name of the GPUs.", messages.LONGEST_PRODUCT),
            "max_power_limit_watts": amount("Sum of these GPUs' maximum power limits.", messages.LARGEST_POWER_WATTS),
            "power_limit_watts": nullable(amount("The limit held now on each GPU; null: none.", watts)),
            "power_limit_refusal": text(
                "Why the limit asked for last is not held; empty: it is.", messages.LONGEST_REFUSAL
            ),
            "profile": list_of("Power limits measured in this attempt.", limit, messages.MOST_LIMITS),
            "finished": {"type": "boolean", "description": "Whether this is the last report."},
            "rank": whole("Which process of a distributed run speaks; the metric of rank 0 counts."),
        },
        required=["sequence", "epoch"],
    )
