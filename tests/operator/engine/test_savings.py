"""What a job saved against its default configuration: cost, energy, money and emissions."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from model_world import ModelWorld

Settle = Callable[[ModelWorld], None]
Worlds = Callable[..., ModelWorld]
OBJECTIVE = {
    "target": {"metric": "accuracy", "threshold": "0.9"},
    "maxEpochs": 50,
    "energyWeightPercent": 50,
    "price": {"currency": "EUR", "perKilowattHour": "0.36"},
    "carbon": {"gramsPerKilowattHour": "360"},
}


def run_once(world: ModelWorld, settled: Settle, **reported: Any) -> None:
    """One recurrence that reaches its target."""
    settled(world)
    (name,) = world.running
    world.run_workload(name)
    world.report(name, metric=0.95, finished=True, **reported)
    world.end_workload(name)
    settled(world)
    world.pass_seconds(3600)


def test_savings_are_of_cost_and_energy_and_show_money_and_emissions(world_with: Worlds, settled: Settle) -> None:
    world = world_with(objective=OBJECTIVE, policy={"fixed": {}})
    run_once(world, settled, joules=4_000_000.0, seconds=1000.0)
    run_once(world, settled, joules=1_000_000.0, seconds=500.0)
    savings = world.job.status.savings
    assert savings is not None
    # Both runs had the default batch size: its mean is what one is expected to take.
    assert (savings.gpu_energy_joules, savings.cost_joules) == (Decimal(0), Decimal(0))
    assert savings.money is not None
    assert (savings.money.currency, savings.carbon_grams) == ("EUR", Decimal(0))


def test_energy_saved_is_what_the_default_would_have_taken_less_what_was_taken(
    world_with: Worlds, settled: Settle
) -> None:
    world = world_with(objective=OBJECTIVE)
    run_once(world, settled, joules=7_200_000.0, seconds=1000.0)
    run_once(world, settled, joules=3_600_000.0, seconds=1000.0)
    first, second = sorted(world.recurrences.values(), key=lambda each: each.spec.index)[:2]
    assert (first.spec.batch_size, second.spec.batch_size != 64) == (64, True)
    savings = world.job.status.savings
    assert savings is not None
    assert savings.gpu_energy_joules == pytest.approx(Decimal(3_600_000))
    assert savings.money is not None
    assert (savings.money.amount, savings.carbon_grams) == (Decimal("0.36"), Decimal(360))


def test_without_price_and_intensity_neither_money_nor_emissions_are_shown(world: ModelWorld, settled: Settle) -> None:
    run_once(world, settled)
    savings = world.job.status.savings
    assert savings is not None
    assert (savings.gpu_energy_joules, savings.money, savings.carbon_grams) == (Decimal(0), None, None)
