"""Energies and powers that no GPU can have, which would decide the plans of a pipeline and of its later recurrences."""

from __future__ import annotations

from collections.abc import Iterator

from wattloop.pipeline.plan_messages import RankRegistration, RankReport
from wattloop.wire.training_messages import MAX_LIMIT_WATTS
from wattloop_operator.reconcile.pipeline.pipeline_state import PipelineState
from wattloop_operator.reconcile.pipeline.registrations import RegistrationConflictError

# A counter that steps while an instruction runs may give it the energy of its whole step.
COUNTER_STEP_SECONDS = 1.0


class ImplausibleReportError(RegistrationConflictError):
    """A rank reports an energy or a power that its GPUs cannot have: HTTP 409, as later reports may be right."""


def check_plausible(state: PipelineState, rank: int, report: RankReport) -> None:
    """Check the energies and the power of a report against the highest power limit of any GPU.

    Raises:
        ImplausibleReportError: One is too high; the message names the recurrence, the rank and the value.
    """
    present = state.ranks.get(rank)
    if present is None:
        return
    gpus = max(present.registration.gpus, 1)
    for name, joules, seconds in _energies(report):
        limit = gpus * MAX_LIMIT_WATTS * (seconds + COUNTER_STEP_SECONDS)
        if joules is not None and joules > limit:
            raise _error(
                state,
                present.registration,
                f"{name}: found {joules:g} J in {seconds:g} s, expected at most {limit:g} J",
            )
    watts = report.blocking_watts
    if watts is not None and watts > gpus * MAX_LIMIT_WATTS:
        text = f"blocking_watts: found {watts:g} W, expected at most {gpus * MAX_LIMIT_WATTS:g} W"
        raise _error(state, present.registration, text)


def _energies(report: RankReport) -> Iterator[tuple[str, float | None, float]]:
    """Each energy with its name and the time that it is of."""
    for each in report.measurements:
        where = f"{each.kind} of stage {each.stage} at {each.megahertz} MHz"
        yield f"energy_joules of {where}", each.energy_joules, each.time_seconds
        yield f"energy_error_joules of {where}", each.energy_error_joules, each.time_seconds
    seconds = report.iteration_seconds or 0.0
    yield "iteration_joules", report.iteration_joules, seconds
    yield "iteration_error_joules", report.iteration_error_joules, seconds
    for cycles in report.compared:
        yield f"plan_joules of group {cycles.group}", cycles.plan_joules, cycles.plan_seconds
        yield f"free_joules of group {cycles.group}", cycles.free_joules, cycles.free_seconds


def _error(state: PipelineState, registration: RankRegistration, what: str) -> ImplausibleReportError:
    return ImplausibleReportError(
        f"TrainingRecurrence {state.namespace}/{state.name}, rank {registration.rank}: {what} of {registration.gpus} "
        f"GPUs with {MAX_LIMIT_WATTS:g} W each; check the energy counters of its GPUs"
    )
