"""The line on an ended attempt's pipeline, from simulated ranks that profile, plan and run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.pipelines.simulated_ranks import SimulatedOperator, exchange, ranks_of, run_until_planned
from wattloop_operator.reconcile.pipeline.saving import (
    chosen_point,
    measured,
    saving_error_percent,
    saving_percent,
)
from wattloop_operator.reconcile.pipeline.state import IssuedDirective
from wattloop_operator.reconcile.pipeline.summary import pipeline_summary


@pytest.fixture
def operator() -> SimulatedOperator:
    """An operator whose ranks run a plan."""
    operator, ranks = SimulatedOperator(), ranks_of(4, data_parallel=2)
    run_until_planned(operator, ranks)
    exchange(operator, ranks)
    return operator


def test_a_plan_is_shown_with_what_it_planned_realised_and_saved(operator: SimulatedOperator) -> None:
    state = operator.state
    chosen, found = chosen_point(state), measured(state)
    assert state.frontier is not None
    assert chosen is not None
    assert found is not None
    point, saving = state.frontier.points[chosen], saving_percent(state, found)
    text = pipeline_summary(state)
    assert f"a frequency plan, planned {point.time_seconds:.4g} s and {point.energy_joules:,.1f} J" in text
    assert f"realised {found.time_seconds:.4g} s" in text
    assert f"{found.energy_joules:,.1f} J per iteration (± 2.0 J)" in text
    error = saving_error_percent(state, found)
    assert error is not None
    assert error > 0
    assert f"{saving:.1f} % (± {1.96 * error:.2g}) of the energy saved" in text


def test_a_plan_without_measured_iterations_is_shown_as_such(operator: SimulatedOperator) -> None:
    ranks = {number: replace(rank, report=None) for number, rank in operator.state.ranks.items()}
    assert "realised nothing that was measured" in pipeline_summary(replace(operator.state, ranks=ranks))


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
