"""What a job saved against its default configuration: cost, energy, money and emissions."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from support.backends.model_backend import ModelBackend

Reconcile = Callable[[ModelBackend], None]
Backends = Callable[..., ModelBackend]
OBJECTIVE = {
    "target": {"metric": "accuracy", "threshold": "0.9"},
    "maxEpochs": 50,
    "energyWeightPercent": 50,
    "price": {"currency": "EUR", "perKilowattHour": "0.36"},
    "carbon": {"gramsPerKilowattHour": "360"},
}


def run_once(backend: ModelBackend, settled: Reconcile, **reported: Any) -> None:
    """One recurrence that reaches its target."""
    settled(backend)
    (name,) = backend.running
    backend.run_workload(name)
    backend.report(name, metric=0.95, finished=True, **reported)
    backend.end_workload(name)
    settled(backend)
    backend.pass_seconds(3600)


def test_savings_are_of_cost_and_energy_and_show_money_and_emissions(
    backend_with: Backends, settled: Reconcile
) -> None:
    backend = backend_with(objective=OBJECTIVE, policy={"fixed": {}})
    run_once(backend, settled, joules=4_000_000.0, seconds=1000.0)
    run_once(backend, settled, joules=1_000_000.0, seconds=500.0)
    savings = backend.job.status.savings
    assert savings is not None
    # Both runs had the default batch size: its mean is what one is expected to take.
    assert (savings.gpu_energy_joules, savings.cost_joules) == (Decimal(0), Decimal(0))
    assert savings.money is not None
    assert (savings.money.currency, savings.carbon_grams) == ("EUR", Decimal(0))


def test_energy_saved_is_what_the_default_would_have_taken_less_what_was_taken(
    backend_with: Backends, settled: Reconcile
) -> None:
    backend = backend_with(objective=OBJECTIVE)
    run_once(backend, settled, joules=7_200_000.0, seconds=1000.0)
    run_once(backend, settled, joules=3_600_000.0, seconds=1000.0)
    first, second = sorted(backend.recurrences.values(), key=lambda each: each.spec.index)[:2]
    assert (first.spec.batch_size, second.spec.batch_size != 64) == (64, True)
    savings = backend.job.status.savings
    assert savings is not None
    assert savings.gpu_energy_joules == pytest.approx(Decimal(3_600_000))
    assert savings.money is not None
    assert (savings.money.amount, savings.carbon_grams) == (Decimal("0.36"), Decimal(360))


def test_without_price_and_intensity_neither_money_nor_emissions_are_shown(
    backend: ModelBackend, settled: Reconcile
) -> None:
    run_once(backend, settled)
    savings = backend.job.status.savings
    assert savings is not None
    assert (savings.gpu_energy_joules, savings.money, savings.carbon_grams) == (Decimal(0), None, None)
