"""The sentence about a job's savings, and the costs of recurrences over their attempts."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from wattloop_operator.domain.tariff import Tariff
from wattloop_operator.history.cost_history import costs_of, saving_sentence, summary
from wattloop_operator.history.rows import rows_of
from wattloop_planner.bandit.configuration import Configuration

Make = Callable[..., Any]


def test_the_attempts_of_a_recurrence_add_up(history: Make, record: Make) -> None:
    missed, reached = record(0, 0, batch_size=8, result="Stopped"), record(0, 1)
    (recurrence,) = costs_of(rows_of(history(missed, reached)))
    assert recurrence.attempts == ((Configuration(8), 2500.0), (Configuration(32), 2500.0))
    assert recurrence.cost_joules == 5000.0
    assert recurrence.reached


def test_a_recurrence_without_a_known_cost_is_left_out(history: Make, record: Make) -> None:
    unknown = record(0, result="NameConflict", max_power_watts=0.0)
    assert [each.recurrence for each in costs_of(rows_of(history(unknown, record(1))))] == [1]


def test_the_sentence_gives_the_present_cost_the_cost_of_learning_and_the_sum(history: Make, record: Make) -> None:
    default = record(0, decision_kind="Default")
    trial = record(1, batch_size=128, energy_joules=4000.0, decision_kind="Trial")
    chosen = [record(index, batch_size=64, energy_joules=1000.0, decision_kind="Incumbent") for index in (2, 3)]
    sentence = saving_sentence(history(default, trial, *chosen))
    # ½·1000 J + ½·300 W·10 s = 2 kJ, of 2.5 kJ; the trial cost 3.5 kJ.
    assert sentence.startswith(
        "A recurrence now uses 1 kJ in 10 s (mean of the latest 2), and costs 20 % less (5 to 33) than in the default "
        "configuration. A run of the default configuration is expected to use 2 kJ (1.5"
    )
    assert "Trials and measurements of power limits used 2 kJ more (1." in sentence
    assert "3 recurrences used between 0.9" in sentence
    assert "and cost between 19 % more and 16 % less." in sentence
    assert sentence.endswith("Not counted in it: one recurrence in the default configuration.")


def test_no_sentence_claims_the_value_of_a_saving_whose_interval_has_both_signs(history: Make, record: Make) -> None:
    # Of a mean of 2 kJ (1.3 to 3.1), 500 J are less for certain; 1.8 kJ are not.
    claims = ((500.0, "one recurrence used 1.5 kJ less ("), (1800.0, "one recurrence used between 0.4"))
    for energy_joules, claim in claims:
        records = [record(0, decision_kind="Default"), record(1, batch_size=64, energy_joules=energy_joules)]
        assert claim in saving_sentence(history(*records))


def test_the_saved_energy_has_its_price_with_its_interval(history: Make, record: Make) -> None:
    records = [record(0, decision_kind="Default"), record(1, batch_size=64, energy_joules=500.0)]
    tariff = Tariff(currency="EUR", per_kilowatt_hour=Decimal(360))
    # 1.5 kJ of energy is saved, at 0.1 EUR a kilojoule.
    assert "At its price, that energy cost 0.15 EUR less (0.0" in saving_sentence(history(*records, tariff=tariff))


def test_the_sentence_has_the_figures_of_the_live_page(history: Make, record: Make) -> None:
    shown = history(record(0, decision_kind="Default"), record(1, batch_size=64, energy_joules=500.0, time_seconds=6.0))
    sentence = saving_sentence(shown)
    for savings, unit in ((shown.energy_savings, shown.units.energy), (shown.time_savings, shown.units.time)):
        value, interval = unit.interval_text(savings.saved).split(" (")
        assert f"{value} less ({interval}" in sentence


def test_default_runs_alone_give_no_saving(history: Make, record: Make) -> None:
    sentence = saving_sentence(history(*(record(index, energy_joules=1000.0 + 300 * index) for index in range(4))))
    assert "What was saved is not known yet: no other configuration has reached the target." in sentence
    assert "% less" not in sentence
    assert "% more" not in sentence


def test_runs_without_energy_say_how_to_let_simulated_time_pass(history: Make, record: Make) -> None:
    idle = (record(index, energy_joules=0.0, time_seconds=0.0) for index in range(4))
    text = summary(history(*idle, energy_origin="simulated"))
    assert text.startswith("No energy was measured, so no costs are known.\n")
    assert "declare a load: --simulated-load cpu" in text
    assert "%" not in text


def test_the_latest_recurrence_is_said_not_to_have_reached_the_target(history: Make, record: Make) -> None:
    for result, said in (("Reached", "in 10 s."), ("Disrupted", "in 10 s and has not reached the target.")):
        sentence = saving_sentence(history(record(batch_size=64, result=result)))
        assert sentence.startswith(f"The latest recurrence used 2 kJ {said} What was saved is not known yet")


def test_the_sentence_omits_unknown_costs(history: Make, record: Make) -> None:
    assert saving_sentence(history()) == "No costs are known yet."
    assert "not known yet: the default configuration has not reached the target" in saving_sentence(
        history(record(batch_size=64))
    )


def test_recurrences_with_an_earlier_target_are_not_compared(history: Make, record: Make) -> None:
    earlier = [record(index, target_threshold=0.9, energy_joules=9000.0) for index in range(3)]
    present = [record(3), record(4, batch_size=64, energy_joules=1000.0)]
    rows = rows_of(history(*earlier, *present))
    assert [row.default_cost_joules and row.default_cost_joules.value for row in rows] == [
        None,
        None,
        None,
        2500.0,
        2500.0,
    ]
    assert saving_sentence(history(*earlier, *present)) == saving_sentence(history(*present))
