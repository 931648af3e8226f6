"""The forms of the agents' side as OpenAPI describes them; `wattloop.node_energy` is what reads and checks them."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from wattloop import messages, node_energy
from wattloop.node_energy import NodeAnswer
from wattloop_operator.reporting.schemas import integer, json_body_form, list_of, number_schema, object_of, text

Ends = tuple[float, float]


class BoundsForm(BaseModel):
    """The guard rails of one GPUPowerPolicy; an open end of a range is 0, or what no GPU reaches."""

    policy: str = Field(description="Its name.")
    products: tuple[str, ...] | None = Field(description="Products of the GPUs that it holds for; null: all.")
    namespaces: tuple[str, ...] | None = Field(description="Namespaces whose pods may ask; null: all.")
    power_limit_watts: Ends | None = Field(description="Power limits that may be asked for; null: all.")
    graphics_clock_megahertz: Ends | None = Field(description="Graphics clocks that may be asked for; null: all.")
    memory_clock_megahertz: Ends | None = Field(description="Memory clocks that may be asked for; null: all.")


class NodeAnswerForm(BaseModel):
    """The answer to a node's report."""

    acknowledged: tuple[str, ...] = Field(
        description="Uids of pods whose usages have all ended and are kept: the agent may forget them."
    )
    bounds: tuple[BoundsForm, ...] | None = Field(
        description="The guard rails that hold on the node; null: not known now, those that were told last stay."
    )


def node_answer_form(answer: NodeAnswer) -> NodeAnswerForm:
    """The form of an answer."""
    return NodeAnswerForm.model_validate(answer.to_json())


def node_report_form() -> dict[str, Any]:
    """The request body of a node's report."""
    energy, clock = messages.MAX_ENERGY_MILLIJOULES, messages.MAX_TIME_SECONDS
    uuid, label, name = messages.MAX_UUID_CHARACTERS, node_energy.MAX_LABEL_CHARACTERS, node_energy.MAX_NAME_CHARACTERS
    off = integer("How far the energy may be off.", energy)
    source = {"type": "string", "enum": list(node_energy.SOURCES), "description": "How the energy is known."}
    gpu = object_of(
        {
            "uuid": text("The GPU.", uuid, least=1),
            "product": text("Its model.", messages.MAX_PRODUCT_CHARACTERS),
            "energy_millijoules": integer("Its energy since the ledger began, whoever used it.", energy),
            "uncertainty_millijoules": off,
            "time_seconds": number_schema("The agent's clock at that reading.", clock),
            "source": source,
        },
        required=["uuid", "energy_millijoules", "uncertainty_millijoules", "time_seconds", "source"],
    )
    usage = object_of(
        {
            "pod_uid": text("The pod.", uuid, least=1),
            "namespace": text("Its namespace.", label, least=1),
            "pod": text("Its name.", name, least=1),
            "container": text("The container that was given the GPU.", label, least=1),
            "gpu": text("The GPU, or the one that the pod's device is a part of.", uuid, least=1),
            "shared": {"type": "boolean", "description": "Whether others could use the GPU too."},
            "energy_millijoules": integer("Used since the pod was given the GPU.", energy),
            "uncertainty_millijoules": off,
            "start_time_seconds": number_schema("The agent's clock when the pod was given the GPU.", clock),
            "time_seconds": number_schema("The same clock at the newest reading; never less than at the start.", clock),
            "ended": {"type": "boolean", "description": "Whether the pod has given the GPU back."},
        }
    )
    return json_body_form(
        object_of(
            {
                "node": text("The node.", name, least=1),
                "ledger": text("The ledger that the numbers are of.", label, least=1),
                "sequence": integer("Rises with each report of an agent."),
                "gpus": list_of("The node's GPUs.", gpu, messages.MAX_GPUS),
                "usages": list_of("One entry a pod, container and GPU.", usage, node_energy.MAX_POD_GPU_USAGES),
            },
            required=["node", "ledger", "sequence"],
        )
    )
