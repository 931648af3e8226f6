"""The rows of a history: columns, digits, missing values, and the default cost."""

import csv
import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from wattloop.printable import printable
from wattloop_operator.domain.pipeline_result import PipelineResult
from wattloop_operator.history.rows import COLUMNS, rows_of, table_of, write_csv, write_json
from wattloop_operator.store import RESULTS

Make = Callable[..., Any]


def default_costs(history: Any) -> list[float]:
    return [row.default_cost_joules.value for row in rows_of(history) if row.default_cost_joules is not None]


def as_csv(history: Any) -> str:
    stream = io.StringIO()
    write_csv(stream, rows_of(history))
    return stream.getvalue()


def test_the_columns_are_those_of_recurrences_csv() -> None:
    assert ",".join(COLUMNS) == (
        "recurrence,attempt,batch_size,power_limit_watts,epochs,outcome,energy_joules,time_seconds,cost_joules,metric,"
        "default_cost_joules,low_default_cost_joules,high_default_cost_joules,cost_saving_percent,"
        "low_cost_saving_percent,high_cost_saving_percent,purpose,reason,image_digest,energy_origin,clocks,"
        "frequency_plan,planned_iteration_seconds,planned_iteration_joules,realised_iteration_seconds,realised_iteration_joules,plan_saving_percent,"
        "plan_slowdown_percent,plan_saving_error_percent,plan_slowdown_error_percent,planned_saving_percent,"
        "planned_slowdown_percent,probe_trials,probe_energy_joules,probe_time_seconds,resumed"
    )


def test_a_row_reads_back_with_ten_digits(history: Make, record: Make) -> None:
    written = as_csv(history(record(energy_joules=2000 / 3, time_seconds=10.0, reason='because, "so"', resumed=True)))
    (row,) = csv.DictReader(io.StringIO(written))
    assert row["energy_joules"] == "666.6666667"
    # η·E + (1−η)·MaxPower·T = ½·666.67 + ½·300·10
    assert row["cost_joules"] == "1833.333333"
    assert (row["reason"], row["resumed"]) == ('because, "so"', "1")
    assert "\r" not in written


def test_missing_values_are_empty(history: Make, record: Make) -> None:
    written = as_csv(
        history(record(power_limit_watts=None, result="NameConflict", max_power_watts=0.0, gpu_product=""))
    )
    (row,) = csv.DictReader(io.StringIO(written))
    assert (row["power_limit_watts"], row["cost_joules"], row["default_cost_joules"], row["resumed"]) == ("",) * 4


def test_an_implausible_cost_is_missing(history: Make, record: Make) -> None:
    (row,) = rows_of(history(record(time_seconds=1e14)))
    assert row.cost_joules is None


def test_every_result_has_an_outcome(history: Make, record: Make) -> None:
    outcomes = {row.outcome for result in RESULTS for row in rows_of(history(record(result=result)))}
    assert outcomes == {
        *("reached", "stopped", "exhausted", "diverged", "crashed", "hung", "deadline-exceeded", "missing-metric"),
        *("disrupted", "cancelled", "name-conflict", "start-failed", "script-error", "plateaued"),
    }


def test_json_has_the_same_names_and_numbers(history: Make, record: Make) -> None:
    shown = history(record(epochs=1 / 3), record(1, result="Crashed", max_power_watts=0.0))
    stream = io.StringIO()
    write_json(stream, rows_of(shown))
    first, second = json.loads(stream.getvalue())
    assert tuple(first) == COLUMNS
    assert first["epochs"] == 0.3333333333
    assert second["cost_joules"] is None


def test_the_default_cost_is_that_of_its_epochs_at_the_highest_measured_limit(
    history: Make, record: Make, profile: Make
) -> None:
    runs = [record(0, epochs=8.0), record(1, epochs=12.0, power_limit_watts=100.0)]
    shown = history(*runs, profiles=(profile(32, (100, 120.0, 2.0), (300, 250.0, 1.0)),))
    # Ten epochs of ½·250 + ½·300·1 joules each.
    assert default_costs(shown) == [2750.0, 2750.0]


def test_without_a_profile_the_default_cost_is_that_of_its_runs(history: Make, record: Make) -> None:
    shown = history(record(0, energy_joules=1000.0), record(1, energy_joules=3000.0), record(2, batch_size=64))
    assert default_costs(shown) == [2500.0] * 3


def test_the_default_cost_is_missing_before_the_default_reached_the_target(history: Make, record: Make) -> None:
    shown = history(record(0, batch_size=64), record(1, result="Stopped"))
    assert {row.default_cost_joules for row in rows_of(shown)} == {None}


@pytest.mark.parametrize(("eta", "cost"), [(1.0, 2000.0), (0.0, 3000.0)])
def test_the_cost_follows_from_the_weight_of_energy(history: Make, record: Make, eta: float, cost: float) -> None:
    (row,) = rows_of(history(record(), eta=eta))
    assert row.cost_joules == cost


PLANNED = PipelineResult("Plan", "digits-1", 1.25, 204.0, 1.252, 206.5, 6.12, 0.0, 0.25, 0.01, 7.3, 0.0)


def test_files_have_the_plan_of_a_pipeline(history: Make, record: Make) -> None:
    rows = rows_of(history(record(), record(1, pipeline=PLANNED), record(2, pipeline=PipelineResult("Profile"))))
    stream = io.StringIO()
    write_json(stream, rows)
    free, planned, profiled = (
        [row[name] for name in COLUMNS[COLUMNS.index("clocks") :][:12]] for row in json.loads(stream.getvalue())
    )
    assert free == [None] * 12
    assert planned == ["plan", "digits-1", 1.25, 204.0, 1.252, 206.5, 6.12, 0.0, 0.25, 0.01, 7.3, 0.0]
    assert profiled == ["profile", *[None] * 11]


def test_the_table_has_plans_only_if_an_attempt_ran_as_a_pipeline(history: Make, record: Make) -> None:
    def lines(*records: Any) -> list[str]:
        stream = io.StringIO()
        Console(file=stream, width=200).print(table_of(rows_of(history(*records))))
        return stream.getvalue().splitlines()

    assert "planned" not in lines(record())[0]
    heading, planned, other, *_ = lines(record(pipeline=PLANNED), record(1))
    assert heading.split("saved (%)")[1].split() == ["clocks", "planned", "realised", "plan", "saves", "(%)", "why"]
    assert "plan  1.25 s, 204 J  1.252 s, 206.5 J  6.12 ± 0.49 (planned: 7.3)  every batch size" in planned
    assert other.split()[10:14] == ["–"] * 4
    unknown = replace(PLANNED, saving_percent=None, saving_error_percent=None)
    assert "not known yet (planned: 7.3)" in lines(record(pipeline=unknown))[1]
    # Withdrawn: no plan runs, and its measured saving stays.
    withdrawn = PipelineResult("Free", "digits-1", saving_percent=-3.5, saving_error_percent=0.25)
    assert "free  –  –  -3.5 ± 0.49  every" in re.sub(" {2,}", "  ", lines(record(pipeline=withdrawn))[1])


@pytest.mark.parametrize(
    "hostile", ["[/a]", "[red]b[/red]", "\x1b]0;c\x07", "d\ne", "\u202ef", "\x9b2J", "[link=http://g]h"]
)
def test_the_table_shows_hostile_texts_whole_and_printable(history: Make, record: Make, hostile: str) -> None:
    stream = io.StringIO()
    shown = history(record(reason=hostile, parameters=(("tokenizer", hostile),)))
    Console(file=stream, width=160, force_terminal=True, color_system=None).print(table_of(rows_of(shown), hostile))
    assert all(line.isprintable() for line in stream.getvalue().splitlines())
    assert stream.getvalue().count(printable(hostile)) == 3


def test_the_table_shows_every_attempt_and_its_reason(history: Make, record: Make) -> None:
    stream = io.StringIO()
    shown = history(record(), record(1, result="Stopped", batch_size=1024, reason="never tried before"))
    Console(file=stream, width=160).print(table_of(rows_of(shown), "team/digits"))
    title, _heading, first, second = stream.getvalue().splitlines()
    assert title.strip() == "team/digits"
    assert first.split()[:6] == ["0", "0", "32", "300", "10", "reached"]
    assert first.split()[6:10] == ["2", "10", "0.97", "–"], "the default itself is the baseline"
    assert second.rstrip().endswith("never tried before")


def test_the_table_shows_the_trials_of_probes_and_their_share_of_the_time(history: Make, record: Make) -> None:
    trials = {"probe_trials": 4, "probe_energy_joules": 50.0, "probe_time_seconds": 0.5}
    probed = record(energy_joules=1000.0, time_seconds=10.0, **trials)
    for row, shown in ((probed, True), (record(), False)):
        stream = io.StringIO()
        Console(width=200, file=stream).print(table_of(rows_of(history(row))))
        assert ("trials (% of time)" in stream.getvalue()) is shown
        assert ("4 (5)" in stream.getvalue()) is shown
