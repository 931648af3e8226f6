"""The lines of ended attempts: none is wider than the terminal, whatever the history holds."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.databases.sample_record import RECORD
from wattloop_operator.history.job_history import JobHistory
from wattloop_operator.local.live_view import ended_attempts, header, line_text, reason_code
from wattloop_operator.store import RESULTS, ObservationRecord
from wattloop_planner.bandit.configuration import Configuration

FIGURES = st.one_of(st.just(0.0), st.floats(1e-9, 1e14))
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=64)
PARAMETERS = st.dictionaries(st.sampled_from(("learning_rate", "optimizer", "warmup")), TEXTS, max_size=3)


@st.composite
def records(draw: st.DrawFn) -> ObservationRecord:
    parameters = draw(PARAMETERS)
    return dataclasses.replace(
        RECORD,
        recurrence=draw(st.integers(0, 10**6)),
        attempt=draw(st.integers(0, 20)),
        batch_size=draw(st.integers(1, 2**31)),
        power_limit_watts=draw(st.one_of(st.none(), st.floats(1, 1e5))),
        result=draw(st.sampled_from(sorted(RESULTS))),
        epochs=draw(FIGURES),
        metric=draw(st.one_of(st.none(), st.floats(-1e14, 1e14))),
        energy_joules=draw(FIGURES),
        time_seconds=draw(FIGURES),
        reason=draw(TEXTS),
        parameters=tuple(sorted(parameters.items())),
    )


def shown_line(record: ObservationRecord, width: int) -> str:
    history = JobHistory("team", "digits", 0.5, 32, (record,))
    (attempt,) = ended_attempts(history)
    return line_text(attempt, width, history.units)


@given(records(), st.integers(20, 200))
def test_every_line_fits_into_the_terminal_and_has_no_control_character(record: ObservationRecord, width: int) -> None:
    history = JobHistory("team", "digits", 0.5, 32, (record,))
    for line in (header(width, history.units), shown_line(record, width)):
        assert len(line) <= width
        assert line.isprintable()


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_run_configuration_result_and_reason_are_shown_at_any_width(width: int) -> None:
    line = shown_line(RECORD, width)
    assert [line.split()[each] for each in (0, 1, -2, -1)] == ["0", "32@300", "reached", "trial"]


def test_a_metric_has_four_digits() -> None:
    record = dataclasses.replace(RECORD, metric=0.907941254456)
    assert " 0.9079 " in shown_line(record, 80)


def test_figures_that_were_not_measured_are_dashes() -> None:
    record = dataclasses.replace(RECORD, energy_joules=0.0, max_power_watts=0.0, time_seconds=90.0)
    assert shown_line(record, 80).split()[4:6] == ["–", "90"]


def test_all_lines_have_the_units_of_the_title() -> None:
    few, many = (dataclasses.replace(RECORD, energy_joules=joules) for joules in (5.0, 36.6e6))
    history = JobHistory("team", "digits", 0.5, 32, (few, many))
    assert " energy (kWh)   time (s) " in header(80, history.units)
    lines = [line_text(each, 80, history.units) for each in ended_attempts(history)]
    assert [line.split()[4] for line in lines] == ["1.389e-06", "10.17"]


def test_a_wide_terminal_shows_all_parameters() -> None:
    configuration = Configuration(64, (("learning_rate", "0.000125"), ("optimizer", "adamw")))
    record = dataclasses.replace(RECORD, batch_size=64, parameters=configuration.parameters)
    assert "64,0.000125,adamw@300" in shown_line(record, 120)
    assert "64,0.000125,ada…" in shown_line(record, 80)


@pytest.mark.parametrize(
    ("kind", "attempt", "is_default", "code"),
    [
        ("Default", 0, True, "default"),
        ("Default", 0, False, "search"),
        ("Incumbent", 0, True, "incumbent"),
        ("Comparison", 0, True, "compare"),
        ("Sample", 1, False, "retry"),
    ],
)
def test_a_reason_is_one_short_word(kind: str, attempt: int, is_default: bool, code: str) -> None:
    assert reason_code(kind, attempt, is_default) == code
