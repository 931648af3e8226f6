"""The line on an ended attempt's pipeline, from simulated ranks that profile, plan and run."""

import re
from dataclasses import replace

import pytest

from support.pipelines.simulated_ranks import SimulatedOperator, exchange, ranks_of, run_cycles, run_until_planned
from wattloop_operator.reconcile.pipeline.measured_excess import compared
from wattloop_operator.reconcile.pipeline.pipeline_state import IssuedDirective
from wattloop_operator.reconcile.pipeline.saving import (
    measured,
    pipeline_summary,
    planned_saving_percent,
    running_point,
)


@pytest.fixture
def operator() -> SimulatedOperator:
    """An operator whose ranks run a plan."""
    operator, ranks = SimulatedOperator(), ranks_of(4, data_parallel=2)
    run_until_planned(operator, ranks)
    exchange(operator, ranks)
    return operator


def test_a_plan_is_shown_with_what_it_planned_and_realised_and_its_saving_is_not_known_before_it_is_measured(
    operator: SimulatedOperator,
) -> None:
    state = operator.state
    chosen, found = running_point(state), measured(state)
    assert chosen is not None
    point = state.frontier.points[chosen]
    text = pipeline_summary(state)
    assert f"a frequency plan, planned {point.time_seconds:.4g} s and {point.energy_joules:,.1f} J" in text
    assert f"realised {found.time_seconds:.4g} s" in text
    assert f"{found.energy_joules:,.1f} J per iteration (± 2.0 J)" in text
    assert text.endswith(
        f"saving not known yet (planned: {planned_saving_percent(state):.1f} %), 0 of at least 4 blocks of iterations "
        "at free clocks are measured"
    )


def test_a_measured_saving_is_shown_with_its_interval_and_beside_it_the_planned_one() -> None:
    operator, ranks = SimulatedOperator(), ranks_of(4, data_parallel=2)
    run_until_planned(operator, ranks)
    run_cycles(operator, ranks, 8)
    found = compared(operator.state)
    assert re.search(
        rf"; {-found.energy.percent:.1f} % \(± {1.96 * found.energy.error_percent:.2g}\) of the energy saved "
        rf"\(planned: {planned_saving_percent(operator.state):.1f} %\) for [+-]0\.\d % \(± [\d.]+\) time, "
        "against free clocks$",
        pipeline_summary(operator.state),
    )


def test_a_plan_without_measured_iterations_has_realised_and_saved_nothing_that_is_known(
    operator: SimulatedOperator,
) -> None:
    """It had saved the planned 6.0 %."""
    ranks = {number: replace(rank, report=None) for number, rank in operator.state.ranks.items()}
    text = pipeline_summary(replace(operator.state, ranks=ranks))
    assert "realised nothing that was measured; saving not known yet (planned: " in text
    assert "of the energy saved" not in text


@pytest.mark.parametrize(
    ("directive", "text"),
    [
        (IssuedDirective(number=1, mode="Profile"), "the next run continues"),
        (IssuedDirective(number=1, mode="Free", reason="rank 3 sent no report"), "no frequency plan: rank 3 sent"),
    ],
)
def test_an_attempt_without_a_plan_is_shown_with_the_reason(
    operator: SimulatedOperator, directive: IssuedDirective, text: str
) -> None:
    assert text in pipeline_summary(replace(operator.state, directive=directive))
