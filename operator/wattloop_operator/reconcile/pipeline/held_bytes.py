"""How much memory a pipeline takes, from measured sizes of what a sender decides the number of."""

from __future__ import annotations

from collections.abc import Iterable

from wattloop.pipeline.plan_messages import RankRegistration, RankReport
from wattloop_operator.reconcile.pipeline.pipeline_state import PipelineFrontier, PipelineState, RankMeasurements

# Measured with tracemalloc on CPython 3.11 after a load from the store.
BYTES_OF_STATE, BYTES_OF_RANK = 4_000, 4_000
BYTES_OF_MEASUREMENT, BYTES_OF_INSTRUCTION, BYTES_OF_CLOCK, BYTES_OF_KNOB = 464, 72, 40, 8


def state_bytes(state: PipelineState) -> int:
    """Bytes of a pipeline's state; instructions that several ranks share count once."""
    registrations = (rank.registration for rank in state.ranks.values())
    instructions = {id(each.instructions): len(each.instructions) for each in registrations}
    processes = () if state.profile is None else state.profile.processes.values()
    return (
        BYTES_OF_STATE
        + BYTES_OF_RANK * len(state.ranks)
        + BYTES_OF_INSTRUCTION * sum(instructions.values())
        + measurement_bytes(processes)
        + (0 if state.frontier is None else frontier_bytes(state.frontier))
    )


def registration_bytes(registration: RankRegistration) -> int:
    """Bytes of a registration, as if it shared its instructions with none."""
    clocks = BYTES_OF_CLOCK * len(registration.clocks_megahertz)
    return BYTES_OF_RANK + BYTES_OF_INSTRUCTION * len(registration.instructions) + clocks


def report_bytes(report: RankReport) -> int:
    """Bytes of a report."""
    return BYTES_OF_RANK + BYTES_OF_MEASUREMENT * len(report.measurements)


def measurement_bytes(processes: Iterable[RankMeasurements]) -> int:
    """Bytes of what processes have measured."""
    return sum(BYTES_OF_RANK + BYTES_OF_MEASUREMENT * len(each.measurements) for each in processes)


def frontier_bytes(frontier: PipelineFrontier) -> int:
    """Bytes of the plans of a profile."""
    clocks = sum(len(row) for point in frontier.points for row in point.clocks_megahertz)
    knobs = sum(len(row) for point in frontier.points for row in point.knob_choices)
    return BYTES_OF_CLOCK * clocks + BYTES_OF_KNOB * knobs
