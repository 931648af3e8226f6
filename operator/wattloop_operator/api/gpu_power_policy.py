"""GPUPowerPolicy: an administrator's guard rails for what training jobs may ask of GPUs."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from wattloop_operator.api.meta import Conditions, ObjectMeta
from wattloop_operator.api.model import SET, ApiModel, Rule
from wattloop_operator.api.power import MAX_WATTS
from wattloop_operator.api.resource import API_VERSION, Column, Resource, Scope

MAX_MEGAHERTZ = 20_000
NodeLabels = Annotated[
    dict[str, Annotated[str, Field(max_length=63)]],
    Field(max_length=32),
]
NamespaceName = Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
ProductName = Annotated[str, Field(min_length=1, max_length=128)]


class PowerRange(ApiModel):
    """The power limits that may be asked for."""

    rules = (
        Rule(
            "!has(self.minWatts) || !has(self.maxWatts) || self.minWatts <= self.maxWatts",
            "a minWatts of at most maxWatts",
            ".minWatts",
        ),
        Rule("has(self.minWatts) || has(self.maxWatts)", "at least one of minWatts and maxWatts"),
    )

    min_watts: int | None = Field(
        default=None, description="The lowest limit that may be asked for, in watts.", ge=1, le=MAX_WATTS
    )
    max_watts: int | None = Field(
        default=None, description="The highest limit that may be asked for, in watts.", ge=1, le=MAX_WATTS
    )


class ClockRange(ApiModel):
    """The clocks that may be asked for."""

    rules = (
        Rule(
            "!has(self.minMegahertz) || !has(self.maxMegahertz) || self.minMegahertz <= self.maxMegahertz",
            "a minMegahertz of at most maxMegahertz",
            ".minMegahertz",
        ),
        Rule(
            "has(self.minMegahertz) || has(self.maxMegahertz)",
            "at least one of minMegahertz and maxMegahertz",
        ),
    )

    min_megahertz: int | None = Field(
        default=None, description="The lowest clock that may be asked for, in MHz.", ge=1, le=MAX_MEGAHERTZ
    )
    max_megahertz: int | None = Field(
        default=None, description="The highest clock that may be asked for, in MHz.", ge=1, le=MAX_MEGAHERTZ
    )


class GPUPowerPolicySpec(ApiModel):
    """Which GPUs, who may ask, and within which bounds."""

    node_selector: NodeLabels = Field(
        default_factory=dict, description="Labels of the nodes that it holds for; none: every node."
    )
    gpu_products: Annotated[tuple[ProductName, ...], Field(max_length=32, json_schema_extra=SET)] = Field(
        default=(), description="Product names of the GPUs that it holds for, as NVML gives them; none: every product."
    )
    namespaces: Annotated[tuple[NamespaceName, ...], Field(max_length=256, json_schema_extra=SET)] = Field(
        default=(), description="Namespaces whose pods may ask for limits or clocks; none: every namespace."
    )
    power_limit: PowerRange | None = Field(
        default=None, description="Power limits that may be asked for; absent: all that the device allows."
    )
    graphics_clock: ClockRange | None = Field(
        default=None, description="Graphics clocks that may be asked for; absent: all that the device allows."
    )
    memory_clock: ClockRange | None = Field(
        default=None, description="Memory clocks that may be asked for; absent: all that the device allows."
    )


class GPUPowerPolicyStatus(ApiModel):
    """Where the policy is in force."""

    observed_generation: int | None = Field(default=None, description="The generation of the spec seen last.", ge=0)
    conditions: Conditions = ()
    nodes: int | None = Field(default=None, description="Number of nodes that it holds for.", ge=0)


class GPUPowerPolicy(ApiModel):
    """Guard rails of the cluster: where several hold for a GPU, a request must be within all of them."""

    resource: ClassVar[Resource] = Resource(
        kind="GPUPowerPolicy",
        plural="gpupowerpolicies",
        singular="gpupowerpolicy",
        short_name="gpp",
        scope=Scope.CLUSTER,
        columns=(
            Column("Min (W)", ".spec.powerLimit.minWatts", "Lowest power limit that may be asked for", "integer"),
            Column("Max (W)", ".spec.powerLimit.maxWatts", "Highest power limit that may be asked for", "integer"),
            Column("Nodes", ".status.nodes", "Nodes that it holds for", "integer"),
            Column("Age", ".metadata.creationTimestamp", "Time since creation", "date"),
        ),
    )

    api_version: Literal["wattloop.dev/v1alpha1"] = API_VERSION
    kind: Literal["GPUPowerPolicy"] = "GPUPowerPolicy"
    metadata: ObjectMeta = Field(default=ObjectMeta())
    spec: GPUPowerPolicySpec = Field(description="Which GPUs, who may ask, and within which bounds.")
    status: GPUPowerPolicyStatus = Field(default=GPUPowerPolicyStatus(), description="Where the policy is in force.")
