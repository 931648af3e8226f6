"""FrequencyPlan: GPU clocks for each operation of a pipeline-parallel training."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from wattloop_operator.api.field_types import NonNegativeDecimalString
from wattloop_operator.api.gpu_power_policy import MAX_MEGAHERTZ
from wattloop_operator.api.meta import ObjectMeta
from wattloop_operator.api.model import ATOMIC, ApiModel, Rule
from wattloop_operator.api.resource import API_VERSION, Column, Resource, Scope

# At most 64 bytes per operation as JSON: 64 KiB.
MAX_OPERATIONS = 1024
# 384 KiB as base64; an object of 1.5 MiB is the most that etcd takes, and `kubectl apply` stores a second copy.
MAX_ARCHIVE_CHARACTERS = 512 * 1024


class PlannedOperation(ApiModel):
    """An operation of a stage and its clock."""

    instruction: str = Field(
        description="Instruction of the schedule, such as forward or backward.",
        min_length=1,
        max_length=32,
        pattern=r"^[A-Za-z][A-Za-z0-9_]*$",
    )
    megahertz: int = Field(description="Graphics clock of the GPU, in MHz.", ge=1, le=MAX_MEGAHERTZ)


class PlannedStage(ApiModel):
    """The operations of one pipeline stage."""

    operations: Annotated[
        tuple[PlannedOperation, ...], Field(min_length=1, max_length=MAX_OPERATIONS, json_schema_extra=ATOMIC)
    ] = Field(description="The operations, in execution order.")


class FrequencyPlanSpec(ApiModel):
    """The plan, which is immutable."""

    rules = (
        Rule(
            "self == oldSelf",
            "an unchanged spec, since a plan is immutable; create another plan and refer to it by its name",
        ),
        Rule("has(self.stages) != has(self.archive)", "exactly one of stages and archive"),
        Rule(
            f"!has(self.stages) || self.stages.map(stage, size(stage.operations)).sum() <= {MAX_OPERATIONS}",
            f"at most {MAX_OPERATIONS} operations over all stages; write a larger plan as archive, as `wattloop plan "
            "--manifest` does",
            ".stages",
        ),
        Rule(
            "!has(self.archive) || (!has(self.timeSeconds) && !has(self.energyJoules))",
            "timeSeconds and energyJoules with stages only, since an archive has them for each of its plans",
            ".archive",
        ),
    )

    stages: Annotated[tuple[PlannedStage, ...], Field(min_length=1, max_length=64)] | None = Field(
        default=None,
        description="One plan: the stages of the pipeline, from first to last, with at most 1024 operations over all "
        "stages. A straggler finds no slower plan in it.",
        json_schema_extra=ATOMIC,
    )
    archive: str | None = Field(
        default=None,
        description="All plans along the frontier of a pipeline: the file plans.json.gz of `wattloop plan`, as "
        "base64. `wattloop plan --manifest` writes it.",
        min_length=1,
        max_length=MAX_ARCHIVE_CHARACTERS,
        pattern=r"^[A-Za-z0-9+/]+={0,2}$",
    )
    gpu_product: str | None = Field(
        default=None,
        description="Product name of the GPUs that the plan was computed for. Ranks with other GPUs do not run it.",
        min_length=1,
        max_length=128,
    )
    time_seconds: NonNegativeDecimalString | None = Field(
        default=None, description="Time of one iteration with the plan, in seconds."
    )
    energy_joules: NonNegativeDecimalString | None = Field(
        default=None, description="Energy of one iteration with the plan over all stages, in joules."
    )


class FrequencyPlan(ApiModel):
    """An immutable plan of GPU clocks for every operation of a training pipeline."""

    resource: ClassVar[Resource] = Resource(
        kind="FrequencyPlan",
        plural="frequencyplans",
        singular="frequencyplan",
        short_name="fplan",
        scope=Scope.NAMESPACED,
        columns=(
            Column("Time (s)", ".spec.timeSeconds", "Time of one iteration"),
            Column("Energy (J)", ".spec.energyJoules", "Energy of one iteration"),
            Column("GPU", ".spec.gpuProduct", "GPUs that the plan was computed for"),
            Column("Age", ".metadata.creationTimestamp", "Time since creation", "date"),
        ),
    )

    api_version: Literal["wattloop.dev/v1alpha1"] = API_VERSION
    kind: Literal["FrequencyPlan"] = "FrequencyPlan"
    metadata: ObjectMeta = Field(default=ObjectMeta())
    spec: FrequencyPlanSpec = Field(description="The plan, which is immutable.")
