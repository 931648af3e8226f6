"""FrequencyPlan: GPU clocks for each operation of a pipeline-parallel training."""

import base64
import binascii
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from wattloop.errors import InputError
from wattloop.pipeline.knobs import MAX_KNOB_CHARACTERS, MAX_KNOBS
from wattloop_operator.api.field_types import DecimalString, NonNegativeDecimalString
from wattloop_operator.api.gpu_power_policy import Megahertz
from wattloop_operator.api.meta import Conditions, ObjectMeta
from wattloop_operator.api.model import (
    API_VERSION,
    ATOMIC,
    ApiModel,
    PrinterColumn,
    Resource,
    Rule,
    Scope,
    exactly_one_of,
)
from wattloop_operator.api.power_fields import PlanSaving

if TYPE_CHECKING:
    from wattloop_planner.frequency.files.archive import PlanArchive


# At most 64 bytes per operation as JSON: 64 KiB.
MAX_OPERATIONS = 1024
# A name and a value have at most 134 bytes as JSON: 537 KiB.
MAX_KNOB_VALUES = 4096
KnobValue = Annotated[str, Field(min_length=1, max_length=MAX_KNOB_CHARACTERS, pattern=r"^[ -~]+$")]
KnobsByName = Annotated[dict[str, KnobValue], Field(max_length=MAX_KNOBS)]
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
    megahertz: Megahertz = Field(description="Graphics clock of the GPU, in MHz.")
    knobs: KnobsByName = Field(
        default_factory=dict,
        description="Further choices of the operation by name, such as the number of multiprocessors that communicate. "
        "The training applies them; all operations of a plan have the same ones. Absent: none.",
    )


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
        exactly_one_of("stages", "archive"),
        Rule(
            f"!has(self.stages) || self.stages.map(stage, size(stage.operations)).sum() <= {MAX_OPERATIONS}",
            f"at most {MAX_OPERATIONS} operations over all stages; write a larger plan as archive, as `wattloop plan "
            "--manifest` does",
            ".stages",
        ),
        Rule(
            "!has(self.stages) || self.stages.map(stage, stage.operations.map(operation, "
            f"has(operation.knobs) ? size(operation.knobs) : 0).sum()).sum() <= {MAX_KNOB_VALUES}",
            f"at most {MAX_KNOB_VALUES} values of knobs over all operations; write a larger plan as archive, as "
            "`wattloop plan --manifest` does",
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
        "stages. A straggler finds no slower plan in it. Absent: archive has the plans.",
        json_schema_extra=ATOMIC,
    )
    archive: str | None = Field(
        default=None,
        description="All plans along the frontier of a pipeline: the file plans.json.gz of `wattloop plan`, as "
        "base64. `wattloop plan --manifest` writes it. Absent: stages has the plan.",
        min_length=1,
        max_length=MAX_ARCHIVE_CHARACTERS,
        pattern=r"^[A-Za-z0-9+/]+={0,2}$",
    )
    gpu_product: str | None = Field(
        default=None,
        description="Product name of the GPUs that the plan was computed for. Ranks with other GPUs do not "
        "run it. Absent: of any GPUs.",
        min_length=1,
        max_length=128,
    )
    time_seconds: NonNegativeDecimalString | None = Field(
        default=None, description="Time of one iteration with the plan, in seconds. Absent: not known."
    )
    energy_joules: NonNegativeDecimalString | None = Field(
        default=None, description="Energy of one iteration with the plan over all stages, in joules. Absent: not known."
    )


class FrequencyPlanStatus(PlanSaving):
    """How the plan is used by the latest training that runs it."""

    conditions: Conditions = ()
    recurrence: str | None = Field(
        default=None,
        description="Name of the TrainingRecurrence whose ranks run the plan, or ran it last.",
        min_length=1,
        max_length=63,
    )
    planned_saving_percent: DecimalString | None = Field(
        default=None,
        description="Energy that the plan would save against maximum clocks by the profile, in percent. It is no "
        "measurement of the plan.",
    )
    planned_slowdown_percent: DecimalString | None = Field(
        default=None,
        description="Time that the plan would cost against maximum clocks by the profile, in percent. Absent beside a "
        "straggler.",
    )
    planned_seconds: NonNegativeDecimalString | None = Field(
        default=None,
        description="Planned time of an iteration of the plan that the ranks run, in seconds. Absent while they run "
        "none.",
    )
    planned_joules: NonNegativeDecimalString | None = Field(
        default=None, description="Planned energy of it, in joules: one GPU of each stage, waiting included."
    )
    reason: str = Field(
        default="",
        description="Why this plan was chosen of those along the frontier, and the time of a straggler if for one.",
        max_length=512,
    )
    realised_seconds: NonNegativeDecimalString | None = Field(
        default=None,
        description="Time of an iteration of the slowest rank under it, as the ranks report it, in seconds. Absent "
        "before the first report.",
    )
    realised_joules: NonNegativeDecimalString | None = Field(
        default=None,
        description="Energy of an iteration of one pipeline, the mean over the pipelines, in joules. Absent until "
        "every rank reports it.",
    )


class FrequencyPlan(ApiModel):
    """An immutable plan of GPU clocks for every operation of a training pipeline, and how it is used."""

    resource: ClassVar[Resource] = Resource(
        kind="FrequencyPlan",
        plural="frequencyplans",
        singular="frequencyplan",
        short_name="fplan",
        scope=Scope.NAMESPACED,
        columns=(
            PrinterColumn("GPU", ".spec.gpuProduct", "GPUs that the plan was computed for", wide=True),
            PrinterColumn("Time (s)", ".status.plannedSeconds", "Planned time of an iteration"),
            PrinterColumn("Energy (J)", ".status.plannedJoules", "Planned energy of an iteration"),
            PrinterColumn("Realised (s)", ".status.realisedSeconds", "Realised time of an iteration", wide=True),
            PrinterColumn("Realised (J)", ".status.realisedJoules", "Realised energy of an iteration", wide=True),
            PrinterColumn(
                "Saved (%)", ".status.savingPercent", "Energy that the plan saves, measured against free clocks"
            ),
            PrinterColumn("Slowdown (%)", ".status.slowdownPercent", "Time that the plan costs, measured likewise"),
            PrinterColumn(
                "Planned (%)", ".status.plannedSavingPercent", "Planned saving against maximum clocks", wide=True
            ),
            PrinterColumn("In force", '.status.conditions[?(@.type=="InForce")].status', "Whether ranks run the plan"),
            PrinterColumn(
                "Reason", '.status.conditions[?(@.type=="InForce")].reason', "Reason of the condition", wide=True
            ),
            PrinterColumn("Recurrence", ".status.recurrence", "TrainingRecurrence that runs the plan", wide=True),
            PrinterColumn("Age", ".metadata.creationTimestamp", "Time since creation", "date"),
        ),
    )

    api_version: Literal["wattloop.dev/v1alpha1"] = API_VERSION
    kind: Literal["FrequencyPlan"] = "FrequencyPlan"
    metadata: ObjectMeta = Field(default=ObjectMeta())
    spec: FrequencyPlanSpec = Field(description="The plan, which is immutable.")
    status: FrequencyPlanStatus = Field(default=FrequencyPlanStatus(), description="How the plan is used.")


# An archive of a manifest is small; the operator reads it in its own process.
MAX_ARCHIVE_BYTES = 16 * 1024 * 1024
EXPECTED = "the file plans.json.gz of `wattloop plan` as base64; `wattloop plan --manifest` writes it"


def decode_archive(text: str) -> "PlanArchive":
    """The plans of ``spec.archive``.

    Raises:
        InputError: The text is not base64, or the archive is invalid or too large.
    """
    # Deferred, because the planner's imports take longer than checking a manifest.
    from wattloop_planner.frequency.files.archive import read_archive  # noqa: PLC0415

    try:
        data = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise InputError("spec.archive", f"text that is not base64 ({error})", EXPECTED) from error
    return read_archive(data, "spec.archive", MAX_ARCHIVE_BYTES)
