"""GPUNode: the GPUs of a node, what they draw and which pods hold them, as the node's agent reports."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from wattloop.wire.node_energy import MAX_LABEL_CHARACTERS, MAX_NAME_CHARACTERS
from wattloop.wire.training_messages import MAX_GPUS, MAX_PRODUCT_CHARACTERS, MAX_UUID_CHARACTERS
from wattloop_operator.api.field_types import NonNegativeDecimalString, Time
from wattloop_operator.api.meta import ObjectMeta
from wattloop_operator.api.model import API_VERSION, ATOMIC, ApiModel, PrinterColumn, Resource, Scope, list_map

# With 64 GPUs of longest names an object has at most 128 KiB.
MAX_HOLDERS = 3


class GPUHolder(ApiModel):
    """A pod that holds a GPU."""

    namespace: str = Field(description="Namespace of the pod.", min_length=1, max_length=MAX_LABEL_CHARACTERS)
    pod: str = Field(description="Name of the pod.", min_length=1, max_length=MAX_NAME_CHARACTERS)
    uid: str = Field(description="UID of the pod.", min_length=1, max_length=MAX_UUID_CHARACTERS)


class NodeGPU(ApiModel):
    """One GPU of the node."""

    uuid: str = Field(description="UUID of the GPU.", min_length=1, max_length=MAX_UUID_CHARACTERS)
    product: str | None = Field(
        default=None, description="Product name, as NVML reports it.", max_length=MAX_PRODUCT_CHARACTERS
    )
    power_watts: NonNegativeDecimalString | None = Field(
        default=None, description="Mean power between the agent's latest two reports, in watts. Absent: not known."
    )
    limit_watts: NonNegativeDecimalString | None = Field(
        default=None, description="Power limit in force, in watts, whoever set it. Absent: not known."
    )
    max_limit_watts: NonNegativeDecimalString | None = Field(
        default=None, description="Highest power limit that the GPU accepts, in watts. Absent: not known."
    )
    pods: int | None = Field(
        default=None, description="Number of pods that hold the GPU; 0: it is free. Absent: not known.", ge=0
    )
    holders: Annotated[tuple[GPUHolder, ...], Field(max_length=MAX_HOLDERS, json_schema_extra=ATOMIC)] = Field(
        default=(), description="The first of these pods, by namespace and name."
    )


class GPUNodeStatus(ApiModel):
    """What the node's agent reported last."""

    last_report_time: Time | None = Field(
        default=None, description="Time at which the operator received the report of these values."
    )
    gpu_count: int | None = Field(default=None, description="Number of GPUs.", ge=0)
    free_gpus: int | None = Field(
        default=None, description="Number of GPUs that no pod holds. Absent: not known.", ge=0
    )
    power_watts: NonNegativeDecimalString | None = Field(
        default=None, description="Power of all GPUs, in watts. Absent: that of one is not known."
    )
    free_power_watts: NonNegativeDecimalString | None = Field(
        default=None, description="Power of the GPUs that no pod holds, in watts. Absent: not known."
    )
    gpus: Annotated[tuple[NodeGPU, ...], Field(max_length=MAX_GPUS, json_schema_extra=list_map("uuid"))] = Field(
        default=(), description="The GPUs, by UUID."
    )


class GPUNode(ApiModel):
    """The GPUs of the node of this name. The operator writes it from the reports of the node's agent."""

    resource: ClassVar[Resource] = Resource(
        kind="GPUNode",
        plural="gpunodes",
        singular="gpunode",
        short_name="gnode",
        scope=Scope.CLUSTER,
        columns=(
            PrinterColumn("GPUs", ".status.gpuCount", "Number of GPUs, as of Reported", "integer"),
            PrinterColumn("Free", ".status.freeGpus", "Number of GPUs that no pod holds, as of Reported", "integer"),
            PrinterColumn("Power (W)", ".status.powerWatts", "Power of all GPUs, as of Reported"),
            PrinterColumn("Free power (W)", ".status.freePowerWatts", "Power of the free GPUs, as of Reported"),
            PrinterColumn("Reported", ".status.lastReportTime", "Time since the report of these values", "date"),
        ),
    )

    api_version: Literal["wattloop.dev/v1alpha1"] = API_VERSION
    kind: Literal["GPUNode"] = "GPUNode"
    metadata: ObjectMeta = Field(default=ObjectMeta())
    status: GPUNodeStatus = Field(default=GPUNodeStatus(), description="What the node's agent reported last.")
