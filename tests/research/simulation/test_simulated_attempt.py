import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattloop_planner.observations import Outcome
from wattloop_research.simulation.simulated_attempt import AttemptResult, Epoch, Stop, run_attempt

FIRST = Epoch(energy_joules=20, time_seconds=4, cost_joules=30)
LATER = Epoch(energy_joules=10, time_seconds=2, cost_joules=20)
REACHED, STOPPED, EXHAUSTED = Outcome.REACHED, Outcome.STOPPED, Outcome.EXHAUSTED


def attempt(
    target: float | None, stop_cost: float | None, stop: Stop = Stop.INSIDE, max_epochs: int = 5
) -> AttemptResult:
    return run_attempt(
        target_epoch=target, max_epochs=max_epochs, first=FIRST, later=LATER, stop_cost_joules=stop_cost, stop=stop
    )


# Costs at the ends of the epochs: 30, 50, 70, 90, 110.
CASES = {
    "reaches the target": (3, None, Stop.INSIDE, REACHED, 3.0, 70.0),
    "runs out of epochs": (6, None, Stop.INSIDE, EXHAUSTED, 5.0, 110.0),
    "never gets there": (None, None, Stop.INSIDE, EXHAUSTED, 5.0, 110.0),
    "stopped inside an epoch": (4, 60.0, Stop.INSIDE, STOPPED, 2.5, 60.0),
    "stopped inside the first": (4, 15.0, Stop.INSIDE, STOPPED, 0.5, 15.0),
    "stopped at the end of the epoch that crosses": (4, 60.0, Stop.EPOCH_END, STOPPED, 3.0, 70.0),
    "a target in that epoch is reached": (3, 60.0, Stop.EPOCH_END, REACHED, 3.0, 70.0),
    "stopped at the end of the very first": (4, 1.0, Stop.EPOCH_END, STOPPED, 1.0, 30.0),
    "a stop on the end of an epoch is that end": (4, 50.0, Stop.EPOCH_END, STOPPED, 2.0, 50.0),
    "the target at exactly the stop is reached": (3, 70.0, Stop.INSIDE, REACHED, 3.0, 70.0),
    "a stop beyond the target stops nothing": (3, 71.0, Stop.INSIDE, REACHED, 3.0, 70.0),
    "a stop beyond the last epoch stops nothing": (None, 500.0, Stop.INSIDE, EXHAUSTED, 5.0, 110.0),
    "a stop at nothing runs nothing": (3, 0.0, Stop.INSIDE, STOPPED, 0.0, 0.0),
}


@pytest.mark.parametrize("name", CASES)
def test_an_attempt_ends_at_the_expected_epoch_with_the_expected_cost(name: str) -> None:
    target, stop_cost, stop, outcome, epochs, cost = CASES[name]
    result = attempt(target, stop_cost, stop)
    assert (result.outcome, result.epochs, result.cost_joules) == (outcome, epochs, pytest.approx(cost))
    first, rest = min(epochs, 1), max(epochs - 1, 0)
    assert result.energy_joules == pytest.approx(20 * first + 10 * rest)
    assert result.time_seconds == pytest.approx(4 * first + 2 * rest)


@given(
    st.one_of(st.none(), st.integers(1, 30)),
    st.floats(0, 1000),
    st.sampled_from(list(Stop)),
    st.integers(1, 30),
)
def test_every_attempt_costs_what_it_ran(target: int | None, stop_cost: float, stop: Stop, max_epochs: int) -> None:
    stopped, free = attempt(target, stop_cost, stop, max_epochs), attempt(target, None, stop, max_epochs)
    assert stopped.cost_joules <= free.cost_joules
    if stopped.outcome is STOPPED:
        over = 0.0 if stop is Stop.INSIDE else 30.0
        assert stop_cost - 1e-6 <= stopped.cost_joules <= stop_cost + over + 1e-6
    else:
        assert stopped == free
