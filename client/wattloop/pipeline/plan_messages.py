"""Messages between the ranks of a pipeline and the operator's plan service; a repeated or late one changes nothing."""

import math
import re
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from wattloop.pipeline.free_iterations import MAX_GROUPS, ComparedCycles, FreeIterations
from wattloop.pipeline.instruction import MAX_INSTRUCTIONS, Instruction, InstructionText, Kind
from wattloop.pipeline.knobs import KnobChoices
from wattloop.wire.item_cache import cached_by_items
from wattloop.wire.message_fields import Integer, MessageError, Number, OneOf, Pattern, String, TruncatedString
from wattloop.wire.training_messages import MAX_NUMBER, MAX_POWER_WATTS, MAX_PRODUCT_CHARACTERS, MAX_REASON_CHARACTERS
from wattloop.wire.wire_form import MaxItems, WireForm, check_unique

MAX_PIPELINE_MESSAGE_BYTES = 1024 * 1024
MAX_PIPELINE_RANKS = 100_000
MAX_STAGES = 1_024
MAX_CLOCKS = 512
# Sixteen clocks of every kind of 16 stages of a rank. Each takes the plan service 16 µs to read.
MAX_MEASUREMENTS = 2_048
MAX_MEGAHERTZ = 30_000
MAX_ITERATIONS = 10**12
MAX_INSTRUCTION_SECONDS = 1e6
# The ranks of a job list the same instructions.
MAX_CACHED_INSTRUCTIONS = 100_000

FREE, PROFILE, PLAN = "Free", "Profile", "Plan"
MODES = (FREE, PROFILE, PLAN)

PROCESS = re.compile("[0-9a-f]{32}")

ProcessId = Annotated[str, Pattern(PROCESS, 32, "32 hexadecimal digits")]
Megahertz = Annotated[int, Integer(MAX_MEGAHERTZ)]
Stage = Annotated[int, Integer(MAX_STAGES - 1)]


@cached_by_items(MAX_CACHED_INSTRUCTIONS)
def instructions_problem(instructions: tuple[str, ...], stages: int, microbatches: int) -> str:
    """Which of a rank's instructions is listed twice or out of bounds; empty if none is.

    Example:
        >>> instructions_problem(("forward:0:0", "forward:0:1"), 1, 1)
        'found forward:0:1, expected a stage below 1 and a microbatch below 1'
    """
    try:
        check_unique("", "instruction", instructions)
    except MessageError as error:
        return str(error).removeprefix(": ")
    for text in instructions:
        instruction = Instruction.of(text)
        if instruction.stage >= stages or instruction.microbatch >= microbatches:
            return f"found {text}, expected a stage below {stages} and a microbatch below {microbatches}"
    return ""


@dataclass(frozen=True)
class RankRegistration(WireForm):
    """What a rank runs, and where in the job it is.

    Ranks of the same pipeline rank run the same instructions and get the same plan.
    """

    process: Annotated[
        ProcessId, "Random identity of the process; another one replaces an earlier process of the rank."
    ]
    rank: Annotated[int, Integer(MAX_PIPELINE_RANKS - 1), "Global rank of the process."]
    data_parallel: Annotated[int, Integer(MAX_PIPELINE_RANKS), "Data-parallel degree of the job."]
    tensor_parallel: Annotated[int, Integer(MAX_PIPELINE_RANKS), "Tensor-parallel degree of the job."]
    pipeline_parallel: Annotated[int, Integer(MAX_STAGES), "Pipeline-parallel degree of the job."]
    data_rank: Annotated[int, Integer(MAX_PIPELINE_RANKS - 1), "Rank of the process among the data-parallel ones."]
    tensor_rank: Annotated[int, Integer(MAX_PIPELINE_RANKS - 1), "Rank of the process among the tensor-parallel ones."]
    pipeline_rank: Annotated[int, Integer(MAX_STAGES - 1), "Rank of the process in its pipeline."]
    stages: Annotated[int, Integer(MAX_STAGES), "Number of model stages; a multiple of the pipeline-parallel degree."]
    microbatches: Annotated[int, Integer(999_999), "Number of microbatches in an iteration."]
    schedule: Annotated[str, String(64), "Name of the schedule: 1F1B, GPipe, Interleaved1F1B, or another one."]
    instructions: Annotated[
        tuple[InstructionText, ...],
        MaxItems(MAX_INSTRUCTIONS),
        "The instructions of one iteration in execution order, each as kind:stage:microbatch.",
    ]
    gpu_product: Annotated[str, String(MAX_PRODUCT_CHARACTERS), "Product name of the GPUs."]
    gpus: Annotated[int, Integer(64), "Number of GPUs of the process."]
    clocks_megahertz: Annotated[
        tuple[Megahertz, ...], MaxItems(MAX_CLOCKS), "Graphics clocks that may be held, in ascending order."
    ]
    model: Annotated[
        str, String(128, min_length=0), "Digest or name of the model and its partition; empty if unknown."
    ] = ""

    def check(self, place: str) -> None:
        """See `WireForm`: the ranks are within their degrees, and instructions and clocks are listed once."""
        for name in ("data", "tensor", "pipeline"):
            degree, rank = getattr(self, f"{name}_parallel"), getattr(self, f"{name}_rank")
            if rank >= degree:
                raise MessageError(f"{place}{name}_rank: found {rank}, expected less than {name}_parallel, {degree}")
        ranks = self.ranks
        if ranks > MAX_PIPELINE_RANKS or self.rank >= ranks:
            raise MessageError(f"{place}rank: found {self.rank} of {ranks} ranks, the product of the three degrees")
        if self.stages < 1 or self.stages % self.pipeline_parallel:
            raise MessageError(f"{place}stages: found {self.stages}, expected a multiple of {self.pipeline_parallel}")
        if not self.instructions or not self.clocks_megahertz:
            raise MessageError(f"{place}instructions, clocks_megahertz: found none, expected at least one each")
        if problem := instructions_problem(self.instructions, self.stages, self.microbatches):
            raise MessageError(f"{place}instructions: {problem}")
        if list(self.clocks_megahertz) != sorted(set(self.clocks_megahertz)):
            raise MessageError(f"{place}clocks_megahertz: found another order, expected ascending clocks, each once")

    @property
    def ranks(self) -> int:
        """Number of ranks of the job."""
        return self.data_parallel * self.tensor_parallel * self.pipeline_parallel

    @property
    def sequence(self) -> tuple[Instruction, ...]:
        """The instructions in execution order."""
        return tuple(Instruction.of(text) for text in self.instructions)


@dataclass(frozen=True)
class InstructionMeasurement(WireForm):
    """Time and energy of one kind of instruction at one clock, over all repetitions so far in this process.

    The standard errors are those of the means; null if they are not known yet.
    """

    kind: Annotated[Kind, "Kind of the instruction."]
    stage: Annotated[Stage, "Model stage of the instruction."]
    megahertz: Annotated[Megahertz, "Graphics clock."]
    repetitions: Annotated[int, Integer(MAX_ITERATIONS), "Number of measured repetitions."]
    time_seconds: Annotated[float, Number(0.0, MAX_INSTRUCTION_SECONDS), "Mean time."]
    time_error_seconds: Annotated[float | None, Number(0.0, MAX_INSTRUCTION_SECONDS), "Standard error of the time."] = (
        None
    )
    energy_joules: Annotated[
        float | None, Number(0.0, MAX_NUMBER), "Mean energy of all GPUs of the process; null while it is uncertain."
    ] = None
    energy_error_joules: Annotated[float | None, Number(0.0, MAX_NUMBER), "Standard error of the energy."] = None


@dataclass(frozen=True)
class RankReport(WireForm):
    """A cumulative report of a rank."""

    process: Annotated[ProcessId, "Identity of the process, as registered."]
    sequence: Annotated[int, Integer(), "Increases with each report of the process."]
    directive: Annotated[int, Integer(), "Number of the newest directive that the rank has received; 0: none."]
    iterations: Annotated[int, Integer(MAX_ITERATIONS), "Number of completed iterations."]
    applied_directive: Annotated[
        int, Integer(), "Number of the directive under which the last iteration ran; 0: none."
    ] = 0
    measured_iterations: Annotated[
        int, Integer(MAX_ITERATIONS), "Number of iterations measured under that directive, without warm-up."
    ] = 0
    iteration_seconds: Annotated[
        float | None, Number(0.0, MAX_INSTRUCTION_SECONDS), "Mean time of those iterations; null without any."
    ] = None
    iteration_joules: Annotated[
        float | None, Number(0.0, MAX_NUMBER), "Mean energy of those iterations, of all GPUs of the process."
    ] = None
    iteration_error_joules: Annotated[
        float | None, Number(0.0, MAX_NUMBER), "Standard error of that energy; null if unknown."
    ] = None
    blocking_watts: Annotated[
        float | None, Number(0.0, MAX_POWER_WATTS), "Power of all GPUs of the process while it waits; null if unknown."
    ] = None
    measurements: Annotated[
        tuple[InstructionMeasurement, ...], MaxItems(MAX_MEASUREMENTS), "Measured instructions, by kind, stage, clock."
    ] = ()
    profiled: Annotated[bool, "Whether the rank has measured every clock of the directive."] = False
    mismatch: Annotated[
        str,
        String(MAX_REASON_CHARACTERS, min_length=0),
        "How the instructions differ from the registered ones; the rank then runs at free clocks. Empty if not.",
    ] = ""
    refusal: Annotated[
        str,
        String(MAX_REASON_CHARACTERS, min_length=0),
        "Why the rank holds no clock of the directive, such as the agent's error; it then runs at free clocks. "
        "Empty if it holds them.",
    ] = ""
    finished: Annotated[bool, "Whether this is the last report of the process."] = False
    compared: Annotated[
        tuple[ComparedCycles, ...],
        MaxItems(MAX_GROUPS),
        "Iterations under the plan and at free clocks, in order, if the directive has free iterations.",
    ] = ()

    def to_json(self) -> dict[str, Any]:
        """See `WireForm`; without `compared` if it is empty, which an operator of an earlier version refuses."""
        found = super().to_json()
        if not self.compared:
            del found["compared"]
        return found

    def check(self, place: str) -> None:
        """See `WireForm`: each kind, stage and clock has one measurement."""
        keys = [f"{each.kind}:{each.stage} at {each.megahertz} MHz" for each in self.measurements]
        check_unique(f"{place}measurements", "kind, stage and clock", keys)


@dataclass(frozen=True)
class Directive(WireForm):
    """What a rank is to do from an iteration on: the answer to a registration and to a report."""

    ignores_unknown_fields: ClassVar[bool] = True
    always_complete: ClassVar[bool] = True

    known: Annotated[bool, "Whether the process is registered; if not, it registers again."] = True
    number: Annotated[int, Integer(), "Number of the directive, rising within an attempt; 0: none yet."] = 0
    mode: Annotated[str, OneOf(MODES), "Free: no clocks are held. Profile: measure clocks. Plan: run a plan."] = FREE
    first_iteration: Annotated[
        int | None,
        Integer(MAX_ITERATIONS),
        "The iteration, from 0, at which all ranks begin with it; null until every rank has received it.",
    ] = None
    clocks_megahertz: Annotated[
        tuple[Megahertz, ...],
        MaxItems(MAX_INSTRUCTIONS),
        "With Plan the clock of each instruction, in execution order. With Profile the clocks to measure, in order.",
    ] = ()
    knobs: Annotated[
        KnobChoices | None, "With Plan the knobs of the instructions, which the training process applies; null: none."
    ] = None
    free: Annotated[
        FreeIterations | None,
        "With Plan the iterations at free clocks that those under the plan are compared with; null: none.",
    ] = None
    warm_up_iterations: Annotated[int, Integer(1_000), "With Profile, iterations before those measured at a clock."] = 2
    iterations_per_clock: Annotated[
        int, Integer(1_000_000, minimum=1), "With Profile, iterations measured at each clock."
    ] = 1
    report_seconds: Annotated[float, Number(0.05, 3_600.0), "Time until the rank sends the next report."] = 5.0
    reason: Annotated[str, TruncatedString(MAX_REASON_CHARACTERS), "Why, for the log of the training process."] = ""

    def check(self, place: str) -> None:
        """See `WireForm`: each clock has knobs, or none has."""
        clocks, choices = len(self.clocks_megahertz), 0 if self.knobs is None else len(self.knobs.choices)
        if self.knobs is not None and choices != clocks:
            raise MessageError(f"{place}knobs.choices: found {choices}, expected one for each of {clocks} clocks")


@dataclass(frozen=True)
class StragglerNotice(WireForm):
    """An announcement that iterations take longer than planned, for example because another pipeline is throttled."""

    iteration_seconds: Annotated[
        float | None,
        Number(0.0, MAX_INSTRUCTION_SECONDS),
        "Time of an iteration of the slowest pipeline; null: the straggler is over.",
    ] = None
    reason: Annotated[str, String(MAX_REASON_CHARACTERS, min_length=0), "What was noticed, for the status."] = ""

    def check(self, place: str) -> None:
        """See `WireForm`: the time is positive."""
        if self.iteration_seconds is not None and not (
            self.iteration_seconds > 0 and math.isfinite(self.iteration_seconds)
        ):
            raise MessageError(f"{place}iteration_seconds: found {self.iteration_seconds}, expected a positive time")
