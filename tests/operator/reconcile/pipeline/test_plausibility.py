"""Energies and powers that no GPU can have are refused with the recurrence and the rank; real ones never are."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.pipelines.registrations import rank_registration
from support.pipelines.simulated_ranks import NEW_STATE, START
from wattloop.pipeline.free_iterations import ComparedCycles
from wattloop.pipeline.plan_messages import InstructionMeasurement, RankReport
from wattloop_operator.reconcile.pipeline.frontier_planning import plan_frontier
from wattloop_operator.reconcile.pipeline.pipeline_state import PipelineState, RankMeasurements
from wattloop_operator.reconcile.pipeline.profile import PlanningRequest
from wattloop_operator.reconcile.pipeline.registrations import Registrar, RegistrationConflictError
from wattloop_operator.reconcile.pipeline.reports import check_plausible

FORWARD = InstructionMeasurement("forward", 0, 1410, 9, 0.1, 0.001, 30.0, 0.1)
PLAIN = RankReport("", 1, 0, 9, iteration_seconds=0.5, iteration_joules=100.0, measurements=(FORWARD,))


def registered(gpus: int = 2) -> PipelineState:
    registrar = Registrar(NEW_STATE, START)
    registrar.merge(replace(rank_registration(0), gpus=gpus))
    return registrar.state


@pytest.mark.parametrize(
    ("report", "complaint"),
    [
        (
            replace(PLAIN, measurements=(replace(FORWARD, energy_joules=1e14),)),
            "energy_joules of forward of stage 0 at 1410 MHz: found 1e+14 J in 0.1 s, expected at most 22000 J",
        ),
        (
            replace(PLAIN, measurements=(replace(FORWARD, energy_error_joules=1e14),)),
            "energy_error_joules of forward of stage 0 at 1410 MHz: found 1e+14 J in 0.1 s, expected at most 22000 J",
        ),
        (replace(PLAIN, iteration_joules=1e14), "iteration_joules: found 1e+14 J in 0.5 s, expected at most 30000 J"),
        (
            replace(PLAIN, compared=(ComparedCycles(0, 1, 1, 1.0, 1.0, 100.0, 1e14),)),
            "free_joules of group 0: found 1e+14 J in 1 s, expected at most 40000 J",
        ),
        (replace(PLAIN, blocking_watts=1e6), "blocking_watts: found 1e+06 W, expected at most 20000 W"),
    ],
)
def test_an_energy_that_no_gpu_can_have_is_refused_with_recurrence_and_rank(report: RankReport, complaint: str) -> None:
    with pytest.raises(RegistrationConflictError) as caught:
        check_plausible(registered(), 0, report)
    assert str(caught.value) == (
        f"TrainingRecurrence team/gpt-3-0, rank 0: {complaint} of 2 GPUs with 10000 W each; "
        "check the energy counters of its GPUs"
    )


@given(st.floats(0, 1e6), st.floats(0, 1500), st.integers(1, 16))
def test_the_energy_of_real_gpus_is_never_refused(seconds: float, watts: float, gpus: int) -> None:
    joules = watts * gpus * seconds
    measured = replace(FORWARD, time_seconds=seconds, energy_joules=joules)
    report = replace(
        PLAIN, iteration_seconds=seconds, iteration_joules=joules, blocking_watts=watts * gpus, measurements=(measured,)
    )
    check_plausible(registered(gpus), 0, report)
    check_plausible(registered(gpus), 7, report)


def test_a_plan_of_an_implausible_sum_is_none() -> None:
    measured = tuple(
        InstructionMeasurement(kind, 0, clock, 9, 1e6, 1.0, joules, 1.0)
        for kind in ("forward", "backward")
        for clock, joules in ((900, 9e13), (1410, 1e14))
    )
    request = PlanningRequest(
        "d1", (("forward:0:0", "backward:0:0"),), (900, 1410), (RankMeasurements(0, "a" * 32, 0, True, 60.0, measured),)
    )
    assert "expected at most 1e+10 s and 1e+14 J" in plan_frontier(request).problem
