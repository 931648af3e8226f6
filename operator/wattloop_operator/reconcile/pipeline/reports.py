"""Merges the reports of ranks; a repeated, late or reordered one changes nothing.

Before, energies and powers that no GPU can have are refused: they would decide the plans of the pipeline and of its
later recurrences.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta

from wattloop.pipeline.plan_messages import PROFILE, RankRegistration, RankReport
from wattloop.wire.training_messages import MAX_LIMIT_WATTS
from wattloop_operator.reconcile.pipeline.pipeline_state import (
    MAX_PROCESSES_PER_RANK,
    MAX_PROFILE_MEASUREMENTS,
    PipelineProfile,
    PipelineRank,
    PipelineState,
    RankMeasurements,
)
from wattloop_operator.reconcile.pipeline.registrations import RegistrationConflictError

RETRY_AFTER = timedelta(seconds=60)
# A counter that steps while an instruction runs may give it the energy of its whole step.
COUNTER_STEP_SECONDS = 1.0


def with_report(state: PipelineState, rank: int, report: RankReport, now: datetime) -> PipelineState:
    """The state with a report of a rank.

    A report of another process than the registered one, or of an earlier one of its reports, changes nothing.
    """
    present = state.ranks.get(rank)
    if present is None or present.registration.process != report.process:
        return state
    if present.report is not None and report.sequence <= present.report.sequence:
        return state
    # A process cannot have received what was not issued yet.
    stored = replace(report, measurements=(), directive=min(report.directive, state.directive.number))
    refused_at = present.refused_at
    if report.refusal and not refuses(present, now):
        refused_at = now
    after = replace(
        present,
        report=stored,
        heard_at=now,
        recent_iteration_seconds=_recent_iteration_seconds(present, stored),
        refused_at=refused_at,
    )
    return replace(state, ranks={**state.ranks, rank: after}, profile=_with_measurements(state, present, report))


def refuses(rank: PipelineRank, now: datetime) -> bool:
    """Whether a rank said lately that it cannot hold clocks; afterwards it is tried again, as an agent may return."""
    return rank.refused_at is not None and now - rank.refused_at < RETRY_AFTER


def _recent_iteration_seconds(rank: PipelineRank, new: RankReport) -> float | None:
    """Mean time of the iterations since the report before; a mean over a long time would hide what is new."""
    old = rank.report
    if new.iteration_seconds is None or not new.measured_iterations:
        return None
    if old is None or old.applied_directive != new.applied_directive or old.iteration_seconds is None:
        return new.iteration_seconds
    iterations = new.measured_iterations - old.measured_iterations
    if iterations <= 0:
        return rank.recent_iteration_seconds
    seconds = (
        new.iteration_seconds * new.measured_iterations - old.iteration_seconds * old.measured_iterations
    ) / iterations
    return seconds if seconds > 0 else new.iteration_seconds


def _with_measurements(state: PipelineState, rank: PipelineRank, report: RankReport) -> PipelineProfile | None:
    profile = state.profile
    if profile is None or not (report.measurements or report.profiled or report.blocking_watts is not None):
        return profile
    number, process = rank.registration.rank, report.process
    before = profile.processes.get((number, process))
    if before is None and state.directive.mode != PROFILE:
        # What runs under a plan is measured at its clocks alone.
        return profile
    measured = RankMeasurements(
        rank=number,
        process=process,
        pipeline_rank=rank.registration.pipeline_rank,
        profiled=report.profiled or (before is not None and before.profiled),
        blocking_watts=before.blocking_watts
        if report.blocking_watts is None and before is not None
        else report.blocking_watts,
        measurements=report.measurements or (before.measurements if before is not None else ()),
        sequence=report.sequence,
    )
    if before is not None and replace(measured, sequence=before.sequence) == before:
        return profile
    processes = {**profile.processes, (number, process): measured}
    if sum(len(each.measurements) for each in processes.values()) > MAX_PROFILE_MEASUREMENTS:
        return profile
    mine = [each for pair, each in processes.items() if pair[0] == number]
    if len(mine) > MAX_PROCESSES_PER_RANK:
        others = [each for each in mine if each.process != process]
        least = min(others, key=lambda each: (each.profiled, len(each.measurements), each.process))
        del processes[number, least.process]
    return replace(profile, processes=processes)


def check_plausible(state: PipelineState, rank: int, report: RankReport) -> None:
    """Check the energies and the power of a report against the highest power limit of any GPU.

    Raises:
        RegistrationConflictError: One is too high; the message names the recurrence, the rank and the value.
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


def _error(state: PipelineState, registration: RankRegistration, what: str) -> RegistrationConflictError:
    return RegistrationConflictError(
        f"TrainingRecurrence {state.namespace}/{state.name}, rank {registration.rank}: {what} of {registration.gpus} "
        f"GPUs with {MAX_LIMIT_WATTS:g} W each; check the energy counters of its GPUs"
    )
