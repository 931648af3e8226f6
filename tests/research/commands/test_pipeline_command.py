"""`wattloop pipeline`: its outputs, and rejected arguments."""

import csv
import io
import json
from pathlib import Path

import pytest

from support.pipelines.knob_pipelines import KNOBS, knob_profile
from support.pipelines.measured_pipelines import PERSEUS, measured_file
from wattloop.commands.main import main
from wattloop_planner.frequency import SCHEDULES, schedule_graph
from wattloop_research.frequency.files.plan_file import knobs_of_plan, read_plan

SAMPLE = str(PERSEUS / "prof_sample")
PIPELINE = [
    "--profile",
    str(measured_file("bert")),
    "--stages",
    "4",
    "--microbatches",
    "8",
    "--blocking-power",
    "83.64",
]


@pytest.fixture
def plans(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    folder = tmp_path / "plans"
    assert main(["plan", *PIPELINE, "--plans", "5", "--output", str(folder)]) == 0
    capsys.readouterr()
    return folder


def test_analyze_prints_the_same_numbers_as_table_csv_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    texts = {}
    for form in ("table", "csv", "json"):
        assert main(["pipeline", "analyze", SAMPLE, "--format", form]) == 0
        texts[form] = capsys.readouterr().out
    rows = list(csv.DictReader(io.StringIO(texts["csv"])))
    documents = json.loads(texts["json"])
    assert [float(row["energy_joules"]) for row in rows] == [found["energy_joules"] for found in documents]
    assert set(documents[1]["instructions"]) == {"load", "forward", "backward"}
    assert "12.03 %" in texts["table"]
    assert float(rows[1]["slowdown_percent"]) == pytest.approx(12.03, abs=5e-3)


def test_one_remaining_iteration_has_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "analyze", SAMPLE, "--warm-up", "4", "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert rows[0]["time_error_seconds"] == ""
    assert main(["pipeline", "analyze", SAMPLE, "--warm-up", "4", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["time_error_seconds"] is None


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_compare_draws_a_picture(plans: Path, tmp_path: Path, suffix: str) -> None:
    picture = tmp_path / f"comparison.{suffix}"
    assert main(["pipeline", "compare", "--plans", str(plans), "--runs", SAMPLE, "--output", str(picture)]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG" if suffix == "png" else b"<?xml")


def test_compare_names_what_a_folder_without_plans_lacks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["pipeline", "compare", "--plans", str(tmp_path), "--runs", SAMPLE, "--output", str(tmp_path / "p.png")]
    assert main(command) == 2
    assert "found no frontier.csv, expected the folder of plans that `wattloop plan" in capsys.readouterr().err


def test_compare_draws_the_runs_of_a_baseline_beside_the_plans(plans: Path, tmp_path: Path) -> None:
    picture = tmp_path / "comparison.svg"
    command = ["pipeline", "compare", "--plans", str(plans), "--runs", SAMPLE, "--output", str(picture)]
    assert main([*command, "--baseline", SAMPLE]) == 0
    assert "prof_sample" in picture.read_text()
    assert main(command) == 0
    assert "prof_sample" not in picture.read_text()


def test_compare_without_plans_draws_only_what_was_measured(plans: Path, tmp_path: Path) -> None:
    picture = tmp_path / "comparison.svg"
    command = ["pipeline", "compare", "--runs", SAMPLE, "--baseline", SAMPLE, "--output", str(picture)]
    assert main(command) == 0
    assert "prof_sample" in picture.read_text()
    assert "lower bound" not in picture.read_text()
    assert main([*command, "--plans", str(plans)]) == 0
    assert "lower bound" in picture.read_text()


def test_compare_names_the_knobs_of_the_plan_that_a_run_had(tmp_path: Path) -> None:
    options = ["--stages", "2", "--microbatches", "4", "--blocking-power", "80", "--knobs", ",".join(KNOBS)]
    plans, picture = tmp_path / "plans", tmp_path / "comparison.svg"
    assert main(["plan", "--profile", str(knob_profile(tmp_path)), *options, "--output", str(plans)]) == 0
    # The recorded run 2 is that of plan 1.
    counts = knobs_of_plan(plans / "freqs_pipeline_00001.py")
    assert sum(counts.values()) == 16
    assert main(["pipeline", "compare", "--plans", str(plans), "--runs", SAMPLE, "--output", str(picture)]) == 0
    drawn = picture.read_text()
    assert all(f"{label} ({count})" in drawn for label, count in counts.items())


def test_emulate_without_latency_gives_the_realised_values_of_the_plan(
    plans: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = sorted(map(str, plans.glob("freqs_*.py")))
    assert main(["pipeline", "emulate", *PIPELINE, "--clock-latency", "0", "--iterations", "2", *files]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    with (plans / "iteration_time_energy.csv").open() as stream:
        realised = list(csv.DictReader(stream))
    assert [row["file"] for row in rows] == files
    for row, expected in zip(rows, realised, strict=True):
        assert float(row["time"]) == pytest.approx(float(expected["time"]))
        assert float(row["energy"]) == pytest.approx(float(expected["energy"]))
        assert float(row["group"]) == 0


def test_emulate_writes_plans_with_groups_where_they_are_better(
    plans: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = sorted(map(str, plans.glob("freqs_*.py")))
    folder = tmp_path / "grouped"
    arguments = ["--clock-latency", "0.2", "--iterations", "2", "--group", str(folder), "--format", "json", *files]
    assert main(["pipeline", "emulate", *PIPELINE, *arguments]) == 0
    captured = capsys.readouterr()
    better = [document for document in json.loads(captured.out) if document["group"]]
    assert better
    assert sorted(path.name for path in folder.iterdir()) == [Path(found["file"]).name for found in better]
    graph = schedule_graph(SCHEDULES["1f1b"](4, 8))
    for found in better:
        assert found["group_energy"] < found["energy"]
        assert read_plan(folder / Path(found["file"]).name, graph)
        assert f"{found['file']}: the shortest operation takes" in captured.err


def test_a_straggler_is_a_multiple_of_the_time_at_maximum_clocks(
    plans: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fastest = max(map(str, plans.glob("freqs_*.py")))
    times = []
    for slowdown in ("1.5", "3"):
        assert main(["pipeline", "emulate", *PIPELINE, "--straggler", slowdown, fastest]) == 0
        times.append(float(next(csv.DictReader(io.StringIO(capsys.readouterr().out)))["time"]))
    assert times[1] == pytest.approx(2 * times[0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["analyze", SAMPLE, "--warm-up", "5"], "--warm-up 5: run 0 has 5 iterations, so none remains; use at most 4"),
        (["compare", "--plans", "p", "--runs", SAMPLE, "--output", "picture.gif"], "must end with .png or .svg"),
        (["compare", "--plans", "p", "--runs", SAMPLE, "--output", "p.png", "--pipelines", "0"], "--pipelines 0"),
        (["emulate", "plan.py"], "--profile: missing; see wattloop pipeline emulate --help"),
        (["emulate", *PIPELINE, "--noise", "2", "plan.py"], "--noise 2: must be at most 1"),
        (["emulate", *PIPELINE, "--straggler", "0.9", "plan.py"], "--straggler 0.9: must be a finite number"),
        (["emulate", *PIPELINE, "--slow-stage", "9:2", "PLAN"], "--slow-stage 9: must be a stage from 0 to 3"),
        (["emulate", *PIPELINE, "missing.py"], "missing.py: found no readable file"),
        (["emulate", *PIPELINE, "--seed", "-1", "plan.py"], "--seed -1: must be at least 0"),
    ],
)
def test_invalid_arguments_end_with_code_2_and_the_valid_values(
    plans: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    plan = str(plans / "freqs_pipeline_00000.py")
    assert main(["pipeline", *(plan if argument == "PLAN" else argument for argument in arguments)]) == 2
    assert message in capsys.readouterr().err


def test_a_plan_of_another_pipeline_is_rejected_by_name(plans: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = str(plans / "freqs_pipeline_00000.py")
    other = ["--profile", str(measured_file("bert")), "--stages", "4", "--microbatches", "9", "--blocking-power", "80"]
    assert main(["pipeline", "emulate", *other, plan]) == 2
    assert f"{plan}: column stage 0: found 16 operations, expected 18" in capsys.readouterr().err


def test_a_slow_stage_without_a_factor_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["pipeline", "emulate", *PIPELINE, "--slow-stage", "1", "plan.py"])
    assert "'1': must be STAGE:FACTOR, for example 2:1.1" in capsys.readouterr().err
