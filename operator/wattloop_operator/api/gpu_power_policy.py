"""GPUPowerPolicy: an administrator's bounds on the power limits and clocks that pods may request."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from wattloop_operator.api.field_types import DNS_LABEL_PATTERN
from wattloop_operator.api.meta import Conditions, ObjectMeta
from wattloop_operator.api.model import API_VERSION, SET, ApiModel, PrinterColumn, Resource, Scope, bounds
from wattloop_operator.api.power_fields import Watts

MAX_MEGAHERTZ = 20_000
Megahertz = Annotated[int, Field(ge=1, le=MAX_MEGAHERTZ)]
NodeLabels = Annotated[dict[str, Annotated[str, Field(max_length=63)]], Field(max_length=32)]
NamespaceName = Annotated[str, Field(min_length=1, max_length=63, pattern=DNS_LABEL_PATTERN)]
ProductName = Annotated[str, Field(min_length=1, max_length=128)]


class PowerRange(ApiModel):
    """Bounds on power limits."""

    rules = bounds("minWatts", "maxWatts")

    min_watts: Watts | None = Field(
        default=None, description="Lowest power limit that may be requested, in watts. Absent: the device's."
    )
    max_watts: Watts | None = Field(
        default=None, description="Highest power limit that may be requested, in watts. Absent: the device's."
    )


class ClockRange(ApiModel):
    """Bounds on clocks."""

    rules = bounds("minMegahertz", "maxMegahertz")

    min_megahertz: Megahertz | None = Field(
        default=None, description="Lowest clock that may be requested, in MHz. Absent: the device's."
    )
    max_megahertz: Megahertz | None = Field(
        default=None, description="Highest clock that may be requested, in MHz. Absent: the device's."
    )


class GPUPowerPolicySpec(ApiModel):
    """The GPUs that the policy applies to, the namespaces that may make requests, and the bounds."""

    node_selector: NodeLabels = Field(
        default_factory=dict, description="Labels of the nodes that the policy applies to. Empty: all nodes."
    )
    gpu_products: Annotated[tuple[ProductName, ...], Field(max_length=32, json_schema_extra=SET)] = Field(
        default=(),
        description="Product names, as NVML reports them, of the GPUs that the policy applies to. Empty: all GPUs.",
    )
    namespaces: Annotated[tuple[NamespaceName, ...], Field(max_length=256, json_schema_extra=SET)] = Field(
        default=(), description="Namespaces whose pods may request power limits or clocks. Empty: all namespaces."
    )
    power_limit: PowerRange | None = Field(
        default=None, description="Bounds on power limits. Absent: the limits of the device."
    )
    graphics_clock: ClockRange | None = Field(
        default=None, description="Bounds on graphics clocks. Absent: the limits of the device."
    )
    memory_clock: ClockRange | None = Field(
        default=None, description="Bounds on memory clocks. Absent: the limits of the device."
    )


class GPUPowerPolicyStatus(ApiModel):
    """Observed state of the policy."""

    observed_generation: int | None = Field(
        default=None, description="Latest generation of the spec that the operator has processed.", ge=0
    )
    conditions: Conditions = ()
    nodes: int | None = Field(default=None, description="Number of nodes that the policy applies to.", ge=0)


class GPUPowerPolicy(ApiModel):
    """Bounds on power limits and clocks. If several policies apply to a GPU, a request must be within all of them."""

    resource: ClassVar[Resource] = Resource(
        kind="GPUPowerPolicy",
        plural="gpupowerpolicies",
        singular="gpupowerpolicy",
        short_name="gpp",
        scope=Scope.CLUSTER,
        columns=(
            PrinterColumn(
                "Min (W)", ".spec.powerLimit.minWatts", "Lowest power limit that may be requested", "integer"
            ),
            PrinterColumn(
                "Max (W)", ".spec.powerLimit.maxWatts", "Highest power limit that may be requested", "integer"
            ),
            PrinterColumn("Nodes", ".status.nodes", "Number of nodes that the policy applies to", "integer"),
            PrinterColumn("Age", ".metadata.creationTimestamp", "Time since creation", "date"),
        ),
    )

    api_version: Literal["wattloop.dev/v1alpha1"] = API_VERSION
    kind: Literal["GPUPowerPolicy"] = "GPUPowerPolicy"
    metadata: ObjectMeta = Field(default=ObjectMeta())
    spec: GPUPowerPolicySpec = Field(
        description="The GPUs that the policy applies to, the namespaces that may make requests, and the bounds."
    )
    status: GPUPowerPolicyStatus = Field(default=GPUPowerPolicyStatus(), description="Observed state of the policy.")
