"""The one definition of a saving: what it compares, what it leaves out, its interval, and what a status says of it."""

import dataclasses
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.backends.model_backend import ModelBackend, backend_with
from support.test_sets.parameters import exhaustive_after
from wattloop_operator.domain.tariff import Tariff
from wattloop_operator.history.cost_history import summary
from wattloop_operator.history.rows import rows_of, saving_cell
from wattloop_operator.reconcile.learning.job_savings import JobSavings, Purpose, RecurrenceSaving
from wattloop_planner.estimate import Estimate, RunCost

Make = Callable[..., Any]
OBJECTIVE = {"target": {"metric": "accuracy", "threshold": "0.9"}, "maxEpochs": 50, "energyWeightPercent": 50}
TARIFF = Tariff.from_wire({"currency": "EUR", "perKilowattHour": "0.36", "gramsPerKilowattHour": 360})
DEFAULT = {"batch_size": 32, "decision_kind": "Default"}
TRIAL = {"batch_size": 64, "decision_kind": "Trial"}
CHOSEN = {"batch_size": 64, "decision_kind": "Incumbent"}


def cells(history: Any) -> list[str]:
    return [saving_cell(row) for row in rows_of(history)]


def test_runs_of_the_default_configuration_are_the_baseline(history: Make, record: Make) -> None:
    """They showed −14, −22, −156 or 100 % for what chance or the measurement of limits made of them."""
    energies = (2000.0, 2600.0, 1400.0, 9000.0)
    shown = history(*(record(index, energy_joules=each, **DEFAULT) for index, each in enumerate(energies)))
    assert cells(shown) == ["–"] * 4
    assert shown.savings.saved_percent is None
    assert {row.cost_saving_percent for row in rows_of(shown)} == {None}


@pytest.mark.parametrize("shared", [0, 1])
def test_of_energies_that_are_upper_bounds_no_saving_is_claimed(shared: int, history: Make, record: Make) -> None:
    runs = [record(0, energy_joules=2000.0, **DEFAULT), record(1, energy_joules=1000.0, **CHOSEN)]
    assert history(*runs).savings.is_known
    runs[shared] = dataclasses.replace(runs[shared], attribution="Shared")
    shown = history(*runs)
    assert (shown.savings.is_known, shown.savings.saved_percent) == (False, None)
    assert "reached the target with an energy of its own" in summary(shown)
    assert "the energies are upper bounds" in summary(shown)


def test_a_default_run_that_measures_power_limits_is_a_cost_of_learning(
    history: Make, record: Make, profile: Make
) -> None:
    limits = profile(32, (100, 120.0, 2.0), (300, 250.0, 1.0))
    measuring = record(0, epochs=10.0, energy_joules=4000.0, power_limit_watts=100.0, **DEFAULT)
    limited = record(1, epochs=10.0, energy_joules=1200.0, time_seconds=20.0, power_limit_watts=100.0, **DEFAULT)
    shown = history(measuring, limited, profiles=(limits,))
    assert [each.purpose for each in shown.savings.recurrences] == [Purpose.LEARNING, Purpose.CHOSEN]
    assert cells(shown)[0] == "–"
    assert shown.savings.of(1) is not None, "a limit that Wattloop chose saves"
    unfinished = dataclasses.replace(measuring, power_limit_watts=None, measures_power_limits=True)
    again = history(unfinished, limited, profiles=(limits,)).savings
    assert again.recurrences == shown.savings.recurrences, "it ended while it measured"
    learning = shown.savings.learning
    # ½·4000 J + ½·300 W·10 s, of 2750 J.
    assert learning.value == pytest.approx(750.0)


@pytest.mark.parametrize("known", [True, False], ids=["records say what they measured", "older records do not"])
def test_a_run_of_the_default_before_limits_were_measured_stays_a_baseline(
    history: Make, record: Make, profile: Make, known: bool
) -> None:
    limits = profile(32, (100, 120.0, 2.0), (300, 250.0, 1.0))
    energies, watts = (2500.0, 2500.0, 4000.0, 1200.0), (None, None, 100.0, 100.0)
    runs = [
        record(index, epochs=10.0, energy_joules=energy, power_limit_watts=limit, **DEFAULT)
        for index, (energy, limit) in enumerate(zip(energies, watts, strict=True))
    ]
    if known:
        runs = [
            dataclasses.replace(each, measures_power_limits=index == 2, power_limit_watts=limit)
            for index, (each, limit) in enumerate(zip(runs, (None, None, None, 100.0), strict=True))
        ]
    shown = history(*runs, profiles=(limits,)).savings
    purposes = [each.purpose for each in shown.recurrences]
    assert purposes == [Purpose.BASELINE, Purpose.BASELINE, Purpose.LEARNING, Purpose.CHOSEN]
    assert [each.index for each in shown.latest] == [3]


@pytest.mark.parametrize(
    ("kinds", "latest"),
    [
        ([DEFAULT, CHOSEN, CHOSEN], [1, 2]),
        ([DEFAULT, CHOSEN, DEFAULT], []),
        ([DEFAULT, CHOSEN, DEFAULT, CHOSEN, TRIAL], [3]),
        ([DEFAULT, TRIAL], []),
    ],
)
def test_a_recurrence_costs_now_what_the_latest_ones_in_the_learned_configuration_did(
    kinds: list[dict[str, Any]], latest: list[int], history: Make, record: Make
) -> None:
    shown = history(*(record(index, energy_joules=1000.0, **kind) for index, kind in enumerate(kinds)))
    assert [each.index for each in shown.savings.latest] == latest
    assert ("A recurrence now uses" in summary(shown)) == bool(latest)


def test_a_limit_that_the_user_fixed_is_part_of_the_default_configuration(history: Make, record: Make) -> None:
    assert cells(history(record(0, power_limit_watts=200.0, **DEFAULT), record(1, **DEFAULT))) == ["–", "–"]


def test_a_recurrence_is_compared_with_all_its_attempts(history: Make, record: Make) -> None:
    """A stopped attempt showed 90 % saved."""
    stopped = record(1, 0, batch_size=8, result="Stopped", energy_joules=100.0, time_seconds=1.0, decision_kind="Trial")
    shown = history(record(0, **DEFAULT), stopped, record(1, 1, energy_joules=1000.0, **CHOSEN))
    first, retry, last = rows_of(shown)
    assert (first.cost_saving_percent, retry.cost_saving_percent) == (None, None)
    # 2.5 kJ less 200 J and 2 kJ.
    assert last.cost_saving_percent.value == pytest.approx(12.0)


def test_what_missed_its_target_saved_nothing(history: Make, record: Make) -> None:
    crashed = record(1, result="Crashed", energy_joules=10.0, time_seconds=1.0, **TRIAL)
    shown = history(record(0, **DEFAULT), crashed, record(2, energy_joules=1000.0, **CHOSEN))
    assert cells(shown)[1] == ""
    saved, learning = shown.savings.saved, shown.savings.learning
    assert (saved.value, learning.value) == (500.0 - 155.0, 155.0)


@pytest.mark.parametrize("unknown", [{"energy_joules": 0.0}, {"time_seconds": 0.0}, {"max_power_watts": 0.0}])
def test_an_unknown_cost_is_in_no_saving(history: Make, record: Make, unknown: dict[str, float]) -> None:
    """Runs of 0 J showed 100 % saved."""
    known = [record(0, **DEFAULT), record(1, energy_joules=1000.0, **CHOSEN)]
    without = history(*known)
    shown = history(*known, *(record(index, **{**CHOSEN, **unknown}) for index in range(2, 6)))
    assert cells(shown)[2:] == [""] * 4
    assert [row.cost_joules for row in rows_of(shown)[2:]] == [None] * 4
    expected, found = without.savings.saved_percent, shown.savings.saved_percent
    # Their epochs are known, which narrows the interval alone.
    assert (found.value, shown.savings.latest) == (expected.value, without.savings.latest)


def test_the_saving_is_not_known_before_the_default_reached_its_target(history: Make, record: Make) -> None:
    savings = history(*(record(index, **CHOSEN) for index in range(3))).savings
    assert (savings.default, savings.saved_percent, savings.latest_percent) == (None, None, None)


PAID = st.lists(
    st.builds(
        RecurrenceSaving,
        index=st.integers(0, 1000),
        purpose=st.sampled_from(Purpose),
        reached=st.booleans(),
        of_default=st.booleans(),
        paid=st.one_of(st.none(), st.floats(1.0, 1e9)),
    ),
    max_size=20,
    unique_by=lambda each: each.index,
)


@given(PAID, st.floats(1.0, 1e9), st.floats(1.0, 3.0))
def test_no_saving_exceeds_the_default_and_its_parts_add_up(
    recurrences: list[RecurrenceSaving], default: float, width: float
) -> None:
    savings = JobSavings(RunCost(*[Estimate(default, default / width, default * width)] * 2), tuple(recurrences))
    saved, percent, learning = savings.saved, savings.saved_percent, savings.learning
    assert (saved is None) == (not savings.is_known)
    for each in (percent, savings.latest_percent, *(savings.of(one.index) for one in recurrences)):
        if each is not None:
            assert each.low <= each.value <= each.high < 100
    if saved is not None:
        chosen = [one for one in savings.compared if one.purpose is Purpose.CHOSEN]
        of_chosen = sum(default - (one.paid or 0.0) for one in chosen)
        expected = of_chosen - (0.0 if learning is None else learning.value)
        assert saved.value == pytest.approx(expected, rel=1e-6, abs=1e-3 * default)


@pytest.mark.parametrize(("default_runs", "chosen_runs"), exhaustive_after([(2, 10), (1, 3), (5, 20)]))
def test_the_interval_of_a_saving_holds_the_truth_in_90_percent_of_jobs(
    history: Make, record: Make, default_runs: int, chosen_runs: int
) -> None:
    """400 jobs whose epochs vary by 8 to 30 % from run to run; the truth is what the default is expected to cost."""
    generator, held, jobs = np.random.default_rng(default_runs), 0, 400
    for _ in range(jobs):
        sd = 0.15 * math.exp(0.4 * generator.standard_normal())
        epochs = np.exp(sd * generator.standard_normal(default_runs + chosen_runs))
        records = [
            record(
                index,
                epochs=float((20.0 if index < default_runs else 8.0) * factor),
                energy_joules=float((20_000.0 if index < default_runs else 11_000.0) * factor),
                time_seconds=float((70.0 if index < default_runs else 40.0) * factor),
                **(DEFAULT if index < default_runs else CHOSEN),
            )
            for index, factor in enumerate(epochs)
        ]
        savings = history(*records).savings
        paid = sum(each.paid or 0.0 for each in savings.compared)
        truth = 20_500.0 * math.exp(sd**2 / 2) * chosen_runs - paid
        saved = savings.saved
        held += saved.low <= truth <= saved.high
    # The prior of the spread is wider than the spread of these jobs, so the interval of few runs holds more.
    assert 0.85 <= held / jobs <= 0.99


@pytest.mark.parametrize("eta", [0.0, 0.3, 1.0])
def test_energy_and_time_weighted_as_the_cost_are_the_cost(
    history: Make, record: Make, profile: Make, eta: float
) -> None:
    runs = [record(index, time_seconds=7.0 + index, power_limit_watts=100.0, **DEFAULT) for index in range(3)]
    limits = profile(32, (100, 120.0, 2.0), (300, 250.0, 1.0))
    shown = history(*runs, record(3, time_seconds=5.0, **CHOSEN), profiles=(limits,), eta=eta)
    cost, energy, time = (each.default.expected for each in (shown.savings, shown.energy_savings, shown.time_savings))
    assert cost.value == pytest.approx(eta * energy.value + (1 - eta) * runs[0].max_power_watts * time.value)
    assert shown.time_savings.compared[-1].paid == 5.0


def test_the_time_that_was_saved_is_the_same_on_gpus_of_another_power(history: Make, record: Make) -> None:
    runs = [record(index, time_seconds=8.0, **(CHOSEN if index else DEFAULT)) for index in range(3)]
    other = [*runs[:2], dataclasses.replace(runs[2], max_power_watts=700.0)]
    expected, found = (history(*each, eta=1.0).time_savings for each in (runs, other))
    assert found.default is not None
    assert expected.default is not None
    ends = [(each.expected.low, each.expected.high) for each in (found.default, expected.default)]
    assert ends[0] == pytest.approx(ends[1])
    assert [each.paid for each in found.compared] == [8.0, 8.0]


def test_savings_show_cost_energy_money_and_emissions() -> None:
    backend = backend_with(objective=OBJECTIVE, mode="Fixed")
    backend.tariff = TARIFF
    backend.run_once(metric=0.95, joules=4_000_000.0, seconds=1000.0)
    backend.run_once(metric=0.95, joules=1_000_000.0, seconds=500.0)
    # Both runs have the default batch size, so their mean is the expected value, and none of them saved.
    default = backend.savings["DefaultCost"]
    assert default.value == Decimal((4_000_000 + 400_000 + 1_000_000 + 200_000) // 4)
    assert default.text.startswith("1,400,000 J (")
    shown = {name: (each.value, each.text) for name, each in backend.savings.items() if each is not default}
    assert shown == dict.fromkeys(("Cost", "Energy", "Time"), (None, "not known yet"))
    recent = backend.job.status.recent_recurrences
    assert [each.cost_saving_percent for each in recent] == [None, None]
    assert (recent[0].energy, recent[0].metric) == ("0.2778 kWh", "0.95")


def test_saved_energy_and_time_are_those_of_the_default_less_what_was_measured() -> None:
    backend = backend_with(objective=OBJECTIVE)
    backend.tariff = TARIFF
    backend.run_once(metric=0.95, joules=7_200_000.0, seconds=1000.0)
    backend.run_once(metric=0.95, joules=3_600_000.0, seconds=400.0)
    first, second = sorted(backend.recurrences.values(), key=lambda each: each.spec.index)[:2]
    assert (first.spec.batch_size, second.spec.batch_size != 64) == (64, True)
    values = {name: (each.value, each.unit) for name, each in backend.savings.items()}
    assert (
        values.items()
        >= {
            "Energy": (Decimal(3_600_000), "J"),
            "Time": (Decimal(600), "s"),
            "Money": (Decimal("0.36"), "EUR"),
            "Carbon": (Decimal(360), "g"),
        }.items()
    )
    time = backend.savings["Time"]
    assert (time.low or 0) < 600 < (time.high or 0)
    assert [backend.savings[name].text.split()[-1] for name in ("Energy", "Time")] == ["kWh", "min"]


def test_without_a_tariff_there_are_no_money_and_emissions(backend: ModelBackend) -> None:
    backend.run_once(metric=0.95)
    backend.run_once(metric=0.95)
    assert backend.savings.keys().isdisjoint({"Money", "Carbon"})
