"""How much memory a pipeline takes, from measured sizes of what a sender decides the number of."""

from collections.abc import Iterable

from wattloop.pipeline.plan_messages import RankRegistration, RankReport
from wattloop_operator.reconcile.pipeline.pipeline_state import JobPlan, PipelineState, RankMeasurements

# Measured with tracemalloc on CPython 3.11 after a load from the store.
BYTES_OF_STATE, BYTES_OF_RANK = 4_000, 4_000
BYTES_OF_MEASUREMENT, BYTES_OF_INSTRUCTION, BYTES_OF_CLOCK, BYTES_OF_KNOB = 464, 72, 40, 8
# Of a user's FrequencyPlan that lists its operations; a value of a knob has at most 64 characters.
BYTES_OF_OPERATION, BYTES_OF_KNOBS, BYTES_OF_KNOB_VALUE = 600, 250, 200


def state_bytes(state: PipelineState) -> int:
    """Bytes of a pipeline's state; instructions that several ranks share count once."""
    registrations = (rank.registration for rank in state.ranks.values())
    instructions = {id(each.instructions): len(each.instructions) for each in registrations}
    processes = () if state.profile is None else state.profile.processes.values()
    points = () if state.frontier is None else state.frontier.points
    return (
        BYTES_OF_STATE
        + BYTES_OF_RANK * len(state.ranks)
        + BYTES_OF_INSTRUCTION * sum(instructions.values())
        + measurement_bytes(processes)
        + BYTES_OF_CLOCK * sum(len(row) for point in points for row in point.clocks_megahertz)
        + BYTES_OF_KNOB * sum(len(row) for point in points for row in point.knob_choices)
        + given_bytes(state.job_plan)
    )


def given_bytes(job_plan: JobPlan) -> int:
    """Bytes of the user's FrequencyPlan that a job names; 0 if it names none."""
    if job_plan.given is None or job_plan.given.spec is None:
        return 0
    spec = job_plan.given.spec
    operations = [each for stage in spec.stages or () for each in stage.operations]
    return (
        len(spec.archive or "")
        + BYTES_OF_OPERATION * len(operations)
        + sum(BYTES_OF_KNOBS + BYTES_OF_KNOB_VALUE * len(each.knobs) for each in operations if each.knobs)
    )


def message_bytes(message: RankRegistration | RankReport) -> int:
    """Bytes of a message; of a registration, as if it shared its instructions with none."""
    if isinstance(message, RankReport):
        return BYTES_OF_RANK + BYTES_OF_MEASUREMENT * len(message.measurements)
    instructions = BYTES_OF_INSTRUCTION * len(message.instructions)
    return BYTES_OF_RANK + instructions + BYTES_OF_CLOCK * len(message.clocks_megahertz)


def measurement_bytes(processes: Iterable[RankMeasurements]) -> int:
    """Bytes of what processes have measured."""
    return sum(BYTES_OF_RANK + BYTES_OF_MEASUREMENT * len(each.measurements) for each in processes)
