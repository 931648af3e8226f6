"""The savings of a job against its default configuration: cost, energy, money and emissions."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from support.backends.model_backend import ModelBackend

Backends = Callable[..., ModelBackend]
OBJECTIVE = {
    "target": {"metric": "accuracy", "threshold": "0.9"},
    "maxEpochs": 50,
    "energyWeightPercent": 50,
    "price": {"currency": "EUR", "perKilowattHour": "0.36"},
    "carbon": {"gramsPerKilowattHour": "360"},
}


def run_once(backend: ModelBackend, **reported: Any) -> None:
    """One recurrence that reaches its target."""
    backend.reconcile()
    (name,) = backend.running
    backend.run_workload(name)
    backend.report(name, metric=0.95, finished=True, **reported)
    backend.end_workload(name)
    backend.reconcile()
    backend.advance(3600)


def test_savings_show_cost_energy_money_and_emissions(backend_with: Backends) -> None:
    backend = backend_with(objective=OBJECTIVE, policy={"fixed": {}})
    run_once(backend, joules=4_000_000.0, seconds=1000.0)
    run_once(backend, joules=1_000_000.0, seconds=500.0)
    savings = backend.job.status.savings
    assert savings is not None
    # Both runs have the default batch size, so their mean is the expected value, and none of them saved.
    assert savings.default_cost_joules == Decimal((4_000_000 + 400_000 + 1_000_000 + 200_000) // 4)
    unknown = (savings.gpu_energy_joules, savings.cost_joules, savings.money, savings.carbon_grams)
    assert unknown == (None, None, None, None)
    assert [each.saving_percent for each in backend.job.status.recent_recurrences] == [None, None]
    figures = backend.job.status.figures
    assert figures is not None
    assert (figures.saved, figures.metric) == ("not known yet", "0.95")


def test_saved_energy_is_the_default_energy_minus_the_energy_used(backend_with: Backends) -> None:
    backend = backend_with(objective=OBJECTIVE)
    run_once(backend, joules=7_200_000.0, seconds=1000.0)
    run_once(backend, joules=3_600_000.0, seconds=1000.0)
    first, second = sorted(backend.recurrences.values(), key=lambda each: each.spec.index)[:2]
    assert (first.spec.batch_size, second.spec.batch_size != 64) == (64, True)
    savings = backend.job.status.savings
    assert savings is not None
    assert savings.gpu_energy_joules == pytest.approx(Decimal(3_600_000))
    assert savings.money is not None
    assert (savings.money.amount, savings.carbon_grams) == (Decimal("0.36"), Decimal(360))


def test_without_price_and_intensity_there_are_no_money_and_emissions(backend: ModelBackend) -> None:
    run_once(backend)
    run_once(backend)
    savings = backend.job.status.savings
    assert savings is not None
    assert (savings.money, savings.carbon_grams) == (None, None)
