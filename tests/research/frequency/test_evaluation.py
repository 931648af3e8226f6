"""`wattloop pipeline evaluate` and `analyze --base`, on the published data."""

import csv
import io
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from support.pipelines.measured_pipelines import PERSEUS
from wattloop.commands.main import main
from wattloop_planner.frequency.pipeline.plans import Realised
from wattloop_research.frequency.evaluation.emulated_models import emulated_models, emulated_savings
from wattloop_research.frequency.evaluation.experiments import read_experiments
from wattloop_research.frequency.evaluation.measured_savings import (
    MeasuredPoint,
    first_in_time,
    slowest_in_time,
    straggler_saving,
)
from wattloop_research.frequency.files.recorded_run_file import limit_runs

BERT = "merak+bert-huge-uncased+custom:0,8,14,20,26+dp1+pp4+tp1+mbs8+nmb32"
with (PERSEUS / "published_savings.csv").open(newline="") as published_rows:
    PUBLISHED = {(row["table"], row["slowdown"]): row for row in csv.DictReader(published_rows)}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder laid out as the published data: one experiment with the table of its baseline, one emulated model."""
    root = tmp_path / "data"
    shutil.copytree(PERSEUS / "prof_sample", root / "perseus" / "A100" / "dp1+pp4+tp1" / f"{BERT}+PointSolution")
    shutil.copytree(PERSEUS / "stage_profile", root / "emulation" / "stage_profile")
    frontiers = root / "emulation" / "iteration_time_energy" / "a100_sxm"
    frontiers.mkdir(parents=True)
    shutil.copy(PERSEUS / "published_frontier_gpt3-175b_a100_sxm_nmb12.csv", frontiers / "gpt3-175b_bf16_mb12.csv")
    tables = root / "zeus" / "csv" / "A100"
    tables.mkdir(parents=True)
    shutil.copy(PERSEUS / "zeus_global_a100.csv", tables / "zeus_global.csv")
    return root


def as_published(table: str, slowdown: float | None = None) -> Any:
    """The published value of a row, and how far from it the data of this tree may lead."""
    row = PUBLISHED[table, "" if slowdown is None else f"{slowdown:g}"]
    return pytest.approx(float(row["saving_percent"]), abs=float(row["tolerance_percent"]))


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


def dump(
    folder: Path, number: int, seconds: float, joules: float, ranks: int = 2, states: Sequence[int] | None = None
) -> None:
    """A run of three iterations, after two that take longer, without a deviation; with the limits of its ranks."""
    folder.mkdir(parents=True, exist_ok=True)
    iterations: list[dict[str, Any]] = [
        {
            "rank": rank,
            "iter_time": [9 * seconds, 5 * seconds, seconds, seconds, seconds],
            "iter_energy": [9 * joules, 5 * joules, *[joules / ranks] * 3],
        }
        for rank in range(ranks)
    ]
    (folder / f"{number}.prof.json").write_text(json.dumps(iterations))
    if states is not None:
        settings = [{"rank": rank, "power_states": [watts] * 4} for rank, watts in enumerate(states)]
        (folder / f"{number}.sched.json").write_text(json.dumps(settings))


def server(folder: Path, scheduler: str, mode: str, **given: object) -> None:
    """What Perseus' server says of the runs of a folder."""
    (folder / "perseus.json").write_text(json.dumps({"scheduler": scheduler, "scheduler_args": given, "mode": mode}))


def test_the_published_savings_of_an_emulated_model_are_found(data: Path) -> None:
    published, ours = emulated_models(data, {"a100_sxm": 83.64})
    slowdowns = tuple(float(slowdown) for table, slowdown in PUBLISHED if table == "emulated" and slowdown)
    assert len(slowdowns) == 3
    for saving in emulated_savings(published, slowdowns):
        if saving["rule"] != "published":
            continue
        assert saving["intrinsic_saving_percent"] == as_published("emulated")
        assert saving["saving_percent"] == as_published("emulated", saving["slowdown"])
        assert saving["all_pipelines_saving_percent"] == as_published("emulated-all", saving["slowdown"])
        assert saving["pipelines"] == 128
    # Our plans of the same profile save at least as much, at each slowdown and by our rule.
    for saving in emulated_savings(ours):
        assert saving["intrinsic_saving_percent"] > float(PUBLISHED["emulated", ""]["saving_percent"])
        if saving["rule"] == "slowest":
            others = [each for each in emulated_savings(published) if each["slowdown"] == saving["slowdown"]]
            assert all(saving["saving_percent"] > each["saving_percent"] for each in others)


def test_the_published_saving_of_a_measured_plan_is_found(data: Path, tmp_path: Path) -> None:
    folder = data / "perseus" / "A100" / "dp1+pp4+tp1" / f"{BERT}+PointSolution"
    shutil.copy(PERSEUS / "fastest_plan" / "29.prof.json", folder)
    output = tmp_path / "evaluation"
    assert main(["pipeline", "evaluate", str(data), "--output", str(output)]) == 0
    (row,) = rows_of(output / "intrinsic.csv")
    assert row["run"] == "29"
    assert float(row["saving_percent"]) == as_published("intrinsic")
    assert float(row["slowdown_percent"]) == as_published("slowdown")


def test_evaluate_writes_tables_and_a_picture_of_each_frontier(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "evaluation"
    assert main(["pipeline", "evaluate", str(data), "--output", str(output)]) == 0
    intrinsic, stragglers = rows_of(output / "intrinsic.csv"), rows_of(output / "stragglers.csv")
    assert [row["base_source"] for row in intrinsic] == ["zeus/csv/A100/zeus_global.csv"]
    assert float(intrinsic[0]["base_energy_joules"]) == pytest.approx(6819.0174)
    # The sample has three iterations of the slowest plan, and the published value is of all its iterations.
    at_slowdown = {row["slowdown"]: float(row["saving_percent"]) for row in stragglers if row["rule"] == "published"}
    assert at_slowdown["1.2"] == as_published("straggler", 1.2)
    assert "1.05" not in at_slowdown
    pictures = sorted(path.name for path in output.glob("*.png"))
    assert pictures == [f"frontier-A100-{BERT}.png", "frontier-a100_sxm-gpt3-175b-mb12.png"]
    assert all((output / name).read_bytes().startswith(b"\x89PNG") for name in pictures)
    text = (output / "evaluation.md").read_text()
    assert "| gpt3-175b | a100_sxm | 12 | 128 | published | published | 1.2 | 15.2 | 24.9 |" in text
    capsys.readouterr()
    assert main(["pipeline", "evaluate", str(data)]) == 0
    assert capsys.readouterr().out == text


def test_the_baseline_is_run_1_of_its_dumps_and_envpipe_is_a_method(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "torch+gpt+uniform+dp1+pp2+tp1+mbs4+nmb8"
    group = tmp_path / "data" / "H100" / "dp1+pp2+tp1"
    for number, (seconds, joules) in enumerate([(9.0, 999.0), (2.0, 400.0), (2.2, 380.0)]):
        dump(group / f"{name}+ZeusGlobalPowerLimit", number, seconds, joules)
    # Measured times need not be in the order of the plans, which run from the slowest to the fastest.
    for number, (seconds, joules) in enumerate([(2.0, 400.0), (2.0, 400.0), (2.2, 330.0), (2.25, 325.0), (2.0, 360.0)]):
        dump(group / f"{name}+PointSolution", number, seconds, joules)
    for number, (seconds, joules) in enumerate([(2.0, 400.0), (2.0, 400.0), (1.9, 390.0)]):
        dump(group / f"{name}+EnvPipe", number, seconds, joules)
    data, output = str(tmp_path / "data"), tmp_path / "out"
    assert main(["pipeline", "evaluate", data]) == 2
    assert "add --blocking-power H100=WATTS" in capsys.readouterr().err
    assert main(["pipeline", "evaluate", data, "--blocking-power", "H100=50", "--output", str(output)]) == 0
    plans, envpipe = rows_of(output / "intrinsic.csv")
    assert (plans["run"], envpipe["run"], plans["method"], envpipe["method"]) == ("4", "2", "plans", "envpipe")
    assert float(plans["saving_percent"]) == pytest.approx(10)
    assert float(plans["saving_error_percent"]) == pytest.approx(0)
    assert (float(plans["slowdown_percent"]), float(envpipe["slowdown_percent"])) == (0, 0)
    assert plans["base_source"].endswith("ZeusGlobalPowerLimit")
    chosen = {(row["slowdown"], row["rule"]): row for row in rows_of(output / "stragglers.csv")}
    assert (chosen["1.2", "published"]["run"], chosen["1.2", "slowest"]["run"]) == ("2", "3")
    # 2.4 s: the baseline waits 0.4 s and the plan 0.15 s, with two GPUs of 50 W.
    assert float(chosen["1.2", "slowest"]["saving_percent"]) == pytest.approx(100 * (1 - (325 + 15) / (400 + 40)))
    assert chosen["1.05", "published"]["run"] == "4"


def test_a_straggler_that_no_plan_ends_before_has_no_saving() -> None:
    base = MeasuredPoint(1, Realised(1.0, 100.0))
    plans = [MeasuredPoint(2, Realised(1.4, 80.0)), MeasuredPoint(3, Realised(1.2, 85.0))]
    assert straggler_saving(base, plans, 1.1, 50.0, slowest_in_time) is None
    found = straggler_saving(base, plans, 1.3, 50.0, first_in_time)
    assert (found.plan.number, found.energy_joules) == (3, pytest.approx(90))
    assert found.base_energy_joules == pytest.approx(115)


@pytest.mark.parametrize(
    ("folder", "message"),
    [
        ("GPU/group/wrong-name", "found a folder of runs with another name, expected framework+model+partition+dp1"),
        ("GPU/group/a+b+c+dp1+pp4+tp1+mbs1+nmb2+PointSolution", "found 2 ranks in run 0, expected 4, as dp1+pp4+tp1"),
        ("GPU/group/a+b+c+dp1+pp2+tp1+mbs1+nmb2+EnvPipe", "found 3 runs, expected one run under EnvPipe's plan"),
    ],
)
def test_a_folder_that_contradicts_its_name_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], folder: str, message: str
) -> None:
    for number in range(3):
        dump(tmp_path / folder, number, 1.0, 10.0)
    assert main(["pipeline", "evaluate", str(tmp_path), "--warm-up-runs", "0", "--blocking-power", "GPU=50"]) == 2
    assert message in capsys.readouterr().err


def test_a_folder_without_experiments_or_baselines_says_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pipeline", "evaluate", str(tmp_path)]) == 2
    assert "found 0 experiments with plans" in capsys.readouterr().err
    folder = tmp_path / "A40" / "dp1+pp2+tp1" / "a+b+c+dp1+pp2+tp1+mbs1+nmb2+PointSolution"
    for number in range(3):
        dump(folder, number, 1.0, 10.0)
    assert main(["pipeline", "evaluate", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "on A40: no saving, because there is no baseline; run it under ZeusGlobalPowerLimit" in error
    assert main(["pipeline", "evaluate", str(tmp_path / "missing")]) == 1
    assert main(["pipeline", "evaluate", str(tmp_path), "--warm-up", "-1"]) == 2


def test_analyze_compares_with_a_run_of_a_baseline(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs, base = tmp_path / "runs", tmp_path / "base"
    dump(runs, 2, 2.1, 360.0)
    for number, joules in enumerate([999.0, 400.0, 380.0]):
        dump(base, number, 2.0, joules)
    command = ["pipeline", "analyze", str(runs), "--warm-up", "2", "--format", "csv"]
    for options, saving in (([], 10.0), (["--base-run", "2"], 100 * (1 - 360 / 380))):
        assert main([*command, "--base", str(base), *options]) == 0
        (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
        assert float(row["energy_reduction_percent"]) == pytest.approx(saving)
        assert float(row["slowdown_percent"]) == pytest.approx(5)
    assert main([*command, "--base", str(base), "--base-run", "7"]) == 2
    assert f"--base-run 7: {base} has the runs 0, 1, 2; name one of them" in capsys.readouterr().err
    assert main([*command, "--base-run", "1"]) == 2
    assert "--base-run 1: is a run of --base, which is missing" in capsys.readouterr().err


def test_perseus_json_says_what_the_runs_of_a_folder_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # As the artifact has GPT-3 6.7B on A40s: limits of stages in a folder named as one of plans, and no run that warms
    # up. Run 0 and the limits have their published time and energy; the other plans have made ones.
    data = tmp_path / "data"
    name = "merak+gpt3-6.7b+uniform_transformer+dp2+pp4+tp2+mbs4+nmb64"
    plans = data / "perseus" / "A40" / "dp2+pp4+tp2" / f"{name}+PointSolution3D"
    runs = [(136.807, 493_119.8), (136.9, 490_000.0), (137.06, 487_700.0), (152.17, 447_000.0)]
    for number, (seconds, joules) in enumerate(runs):
        dump(plans, number, seconds, joules, ranks=16)
    server(plans, "PointSolution3D", "frequency", solution_path="plans", warmup_iters=0, reverse=True)
    limits = data / "zeus" / "raw" / "A40" / "zeus_global" / f"{name}+ZeusGlobalPowerLimit"
    for number, (watts, seconds, joules) in enumerate([(300, 136.389, 567_139.6), (275, 137.939, 538_880.3)]):
        dump(limits, number, seconds, joules, ranks=16, states=[watts] * 16)
    server(limits, "ZeusGlobalPowerLimit", "power limit", warmup_step_ratio=0.34)
    of_stages = data / "zeus" / "raw" / "A40" / "zeus_local" / f"{name}+PointSolution3D"
    for number, (watts, seconds, joules) in enumerate([(300, 185.319, 540_230.5), (275, 186.205, 534_301.4)]):
        dump(of_stages, number, seconds, joules, ranks=16, states=[175, 200, 175, watts] * 4)
    server(of_stages, "ZeusLocalPowerState3D", "power limit", warmup_iters=0)
    command, output = ["pipeline", "evaluate", str(data), "--output"], tmp_path / "evaluation"
    # The published row, 14.0 % and 0.5 %, leaves out the first two runs, although they are plans.
    assert main([*command, str(output)]) == 0
    (row,) = rows_of(output / "intrinsic.csv")
    assert (row["run"], row["base_source"]) == ("2", str(limits.relative_to(data)))
    assert float(row["base_energy_joules"]) == pytest.approx(567_139.6)
    expected = "2 first runs left out, but perseus.json says that 0 warm up; --warm-up-runs 0 follows it"
    assert capsys.readouterr().err.count(expected) == 1
    assert main([*command, str(tmp_path / "all"), "--warm-up-runs", "0"]) == 0
    assert "left out" not in capsys.readouterr().err
    (row,) = rows_of(tmp_path / "all" / "intrinsic.csv")
    assert row["run"] == "0"
    assert float(row["saving_percent"]) == pytest.approx(13.05, abs=0.005)
    assert float(row["slowdown_percent"]) == pytest.approx(0.31, abs=0.005)
    (experiment,) = read_experiments(data, 2, 0)
    assert [point.number for point in experiment.plans] == [3, 2, 1, 0]
    assert {kind: [point.number for point in points] for kind, points in experiment.limits.items()} == {
        "ZeusGlobalPowerLimit": [0, 1],
        "ZeusLocalPowerState": [0, 1],
    }


def test_a_baseline_is_in_the_order_of_its_limits_and_a_limit_that_is_repeated_warmed_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs, base = tmp_path / "runs", tmp_path / "base"
    dump(runs, 0, 2.1, 360.0)
    # The limits rise, and the highest one was repeated.
    for number, (watts, joules) in enumerate([(250, 380.0), (300, 999.0), (300, 400.0)]):
        dump(base, number, 2.0, joules, states=[watts, watts])
    command = ["pipeline", "analyze", str(runs), "--warm-up", "2", "--format", "csv", "--base", str(base)]
    assert main(command) == 0
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert float(row["energy_reduction_percent"]) == pytest.approx(10)
    assert limit_runs(base, [0, 1, 2]) == [2, 0]
    # One run whose limits are not known leaves the order of the numbers.
    (base / "1.sched.json").unlink()
    assert limit_runs(base, [0, 1, 2]) == [1, 2]


def test_a_second_folder_of_plans_is_named_and_the_later_one_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    group = tmp_path / "data" / "A40" / "dp1+pp2+tp1"
    name = "a+b+c+dp1+pp2+tp1+mbs1+nmb2"
    for prefix, joules in (("2026-01-01-10-00-00+", 90.0), ("2026-01-02-10-00-00+", 80.0)):
        for number in range(3):
            dump(group / f"{prefix}{name}+PointSolution", number, 1.0, joules)
    for number in range(2):
        dump(group / f"{name}+ZeusGlobalPowerLimit", number, 1.0, 100.0)
    output = tmp_path / "evaluation"
    assert main(["pipeline", "evaluate", str(tmp_path / "data"), "--output", str(output)]) == 0
    assert [float(row["saving_percent"]) for row in rows_of(output / "intrinsic.csv")] == [pytest.approx(20)]
    assert f"2026-01-01-10-00-00+{name}+PointSolution: not used, because A40" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"scheduler": 3}, "expected an object with scheduler"),
        ({"scheduler": "PointSolution", "scheduler_args": []}, "expected an object with scheduler"),
        ([], "expected an object with scheduler"),
        ({"scheduler": "PointSolution", "scheduler_args": {"warmup_iters": -1}}, "column warmup_iters: found -1"),
    ],
)
def test_another_perseus_json_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: object, message: str
) -> None:
    folder = tmp_path / "A40" / "dp1+pp2+tp1" / "a+b+c+dp1+pp2+tp1+mbs1+nmb2+PointSolution"
    dump(folder, 0, 1.0, 10.0)
    (folder / "perseus.json").write_text(json.dumps(content))
    assert main(["pipeline", "evaluate", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err
