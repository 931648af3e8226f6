"""`wattloop plan`: the files of a result, and rejected arguments, which write nothing."""

import csv
import json
from pathlib import Path

import pytest

from support.pipelines.measured_pipelines import measured_file, measured_problem
from support.pipelines.plan_rows import clocks
from support.pipelines.reference_solvers import reference_evaluation
from wattloop.commands.main import main
from wattloop_operator.api.frequency_plan import FrequencyPlan, decode_archive
from wattloop_operator.api.manifests import check_file
from wattloop_planner.frequency.files.archive import read_archive
from wattloop_planner.frequency.solver.relaxation import relax
from wattloop_research.command_line.plan import DEFAULT_PLOTS
from wattloop_research.frequency.files.plan_file import read_plan

PROFILE = "stage,instruction,frequency,time,energy\n" + "".join(
    f"{stage},{instruction},{clock},{scale * time},{scale * energy}\n"
    for stage in (0, 1)
    for instruction, scale in (("forward", 1), ("backward", 2))
    for clock, time, energy in ((1410, 0.1, 30.0), (1200, 0.115, 26.0), (1000, 0.14, 24.5))
)


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    path = tmp_path / "profile.csv"
    path.write_text(PROFILE)
    return path


def small(profile: Path, *more: object, stages: object = 2, microbatches: object = 3, power: object = 50) -> list[str]:
    arguments = [
        "--profile",
        profile,
        "--stages",
        stages,
        "--microbatches",
        microbatches,
        "--blocking-power",
        power,
        *more,
    ]
    return [str(argument) for argument in arguments]


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_the_result_of_a_measured_pipeline_matches_the_reference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    problem = measured_problem("gpt3", 4)
    output = tmp_path / "plans"
    arguments = small(measured_file("gpt3"), "--output", output, "--baselines", stages=8, microbatches=4, power=83.64)
    assert main(["plan", *arguments]) == 0
    assert capsys.readouterr().out == ""

    frontier = relax(problem)
    assert [float(row["time"]) for row in rows(output / "frontier.csv")] == frontier.times_seconds.tolist()
    assert [float(row["energy"]) for row in rows(output / "frontier.csv")] == frontier.energies_joules.tolist()

    plans = rows(output / "iteration_time_energy.csv")
    files = sorted(output.glob("freqs_pipeline_*.py"))
    assert [int(row["plan"]) for row in plans] == list(range(len(files)))
    assert 30 <= len(files) <= 40
    for row, file in list(zip(plans, files, strict=True))[::10]:
        assert (float(row["time"]), float(row["energy"])) == pytest.approx(
            reference_evaluation(problem, clocks(read_plan(file, problem.graph)))
        )

    summary = json.loads((output / "summary.json").read_text())
    assert summary["plans"] == len(files)
    assert summary["breakpoints"] == len(frontier.times_seconds)
    assert set(summary["phase_seconds"]) == {"profile", "graph", "relaxation", "plans", "write"}
    assert 0 <= summary["gap_percent"]["mean"] <= summary["gap_percent"]["max"] <= 1
    assert {row["method"] for row in rows(output / "baselines.csv")} == {
        "max-frequency",
        "zeus-global",
        "zeus-per-stage",
        "envpipe",
    }

    # EnvPipe's plan is a folder of plans of its own, which an earlier result's is replaced by.
    envpipe = next(row for row in rows(output / "baselines.csv") if row["method"] == "envpipe")
    (file,) = (output / "envpipe").iterdir()
    assert file.name == "freqs_pipeline_00000.py"
    found = reference_evaluation(problem, clocks(read_plan(file, problem.graph)))
    assert found == pytest.approx((float(envpipe["time"]), float(envpipe["energy"])))
    assert main(["plan", *arguments]) == 0
    assert file.exists()
    (output / "envpipe" / "mine.txt").write_text("")
    assert main(["plan", *arguments]) == 2
    assert "found envpipe/mine.txt, expected a folder that is missing" in capsys.readouterr().err
    (output / "envpipe" / "mine.txt").unlink()

    power = 8 * 83.64
    max_frequency = next(row for row in rows(output / "baselines.csv") if row["method"] == "max-frequency")
    for row in rows(output / "stragglers.csv"):
        deadline = float(row["slowdown"]) * float(max_frequency["time"])
        in_time = [plan for plan in plans if float(plan["time"]) <= deadline]
        assert row["plan"] == in_time[0]["plan"]
        energy = float(in_time[0]["energy"]) + power * (deadline - float(in_time[0]["time"]))
        max_energy = float(max_frequency["energy"]) + power * (deadline - float(max_frequency["time"]))
        assert float(row["energy"]) == pytest.approx(energy)
        assert float(row["saving_percent"]) == pytest.approx(100 * (1 - energy / max_energy))


def test_evaluate_prints_time_and_energy_of_plan_files(
    tmp_path: Path, profile: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "plans"
    assert main(["plan", *small(profile, "--output", output)]) == 0
    files = sorted(output.glob("freqs_pipeline_*.py"))
    assert main(["plan", "evaluate", *small(profile), *map(str, files)]) == 0
    found = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    expected = rows(output / "iteration_time_energy.csv")
    assert [row["file"] for row in found] == [str(file) for file in files]
    assert [(row["time"], row["energy"]) for row in found] == [(row["time"], row["energy"]) for row in expected]


def test_sample_copies_every_nth_plan_and_the_last_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plans, sampled = tmp_path / "plans", tmp_path / "sampled"
    plans.mkdir()
    for number in (0, 1, 2, 3, 4, 5, 100_000):
        (plans / f"freqs_pipeline_{number:05d}.py").write_text(f"[[{number}]]")
    (plans / "summary.json").write_text("{}")
    assert main(["plan", "sample", str(plans), str(sampled), "-n", "3"]) == 0
    assert "3 of 7 plans" in capsys.readouterr().err
    assert sorted(file.name for file in sampled.iterdir()) == [
        "freqs_pipeline_00000.py",
        "freqs_pipeline_00003.py",
        "freqs_pipeline_100000.py",
    ]
    assert (sampled / "freqs_pipeline_00003.py").read_text() == "[[3]]"
    assert main(["plan", "sample", str(plans), str(tmp_path / "ends"), "-n", "4"]) == 0
    assert len(list((tmp_path / "ends").iterdir())) == 3
    for arguments, code, message in (
        ([str(plans), str(sampled)], 2, "expected none; name a new folder"),
        ([str(plans), str(tmp_path / "new"), "-n", "0"], 2, "-n 0: must be at least 1"),
        ([str(tmp_path), str(tmp_path / "new")], 2, "found no plan, expected files freqs_pipeline_N.py"),
        ([str(tmp_path / "missing"), str(tmp_path / "new")], 1, "cannot read"),
    ):
        assert main(["plan", "sample", *arguments]) == code
        assert message in capsys.readouterr().err


def test_choose_prints_the_slowest_plan_in_time_and_fails_without_one(
    tmp_path: Path, profile: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "plans"
    assert main(["plan", *small(profile, "--output", output)]) == 0
    plans = rows(output / "iteration_time_energy.csv")
    capsys.readouterr()
    assert main(["plan", "choose", "--directory", str(output), "--deadline", plans[2]["time"]]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["plan"], answer["file"], answer["meets_deadline"]) == (2, "freqs_pipeline_00002.py", True)
    assert answer["energy_until_deadline_joules"] == pytest.approx(float(plans[2]["energy"]))
    assert main(["plan", "choose", "--directory", str(output), "--deadline", "0.01"]) == 1
    captured = capsys.readouterr()
    answer = json.loads(captured.out)
    assert (answer["plan"], answer["meets_deadline"]) == (len(plans) - 1, False)
    assert captured.err.startswith(f"no plan in {output} ends within 0.01 s; the fastest takes ")


def test_choose_prints_the_plan_by_a_rule_and_for_a_straggler(
    tmp_path: Path, profile: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "plans"
    assert main(["plan", *small(profile, "--output", output)]) == 0
    plans = rows(output / "iteration_time_energy.csv")

    def answer(*options: str) -> dict[str, object]:
        capsys.readouterr()
        assert main(["plan", "choose", "--directory", str(output), *options]) == 0
        found: dict[str, object] = json.loads(capsys.readouterr().out)
        return found

    max_clocks = json.loads((output / "summary.json").read_text())["max_clocks"]["time_seconds"]
    fastest = answer("--fastest")
    in_time = [row for row in plans if float(row["time"]) <= max_clocks * 1.001]
    assert fastest["energy_joules"] == min(float(row["energy"]) for row in in_time)
    slow = answer("--fastest", "--straggler", "1000")
    assert (slow["plan"], slow["for_straggler"]) == (0, True)
    assert answer("--eta", "0", "--max-power", "600")["plan"] == len(plans) - 1
    least = min(plans, key=lambda row: float(row["energy"]))
    assert answer("--eta", "1", "--max-power", "600")["plan"] == int(least["plan"])


def test_the_folder_has_all_plans_in_one_archive(tmp_path: Path, profile: Path) -> None:
    output = tmp_path / "plans"
    assert main(["plan", *small(profile, "--output", output), "--gpu-product", "NVIDIA A100-SXM4-40GB"]) == 0
    archive = read_archive((output / "plans.json.gz").read_bytes())
    plans = rows(output / "iteration_time_energy.csv")
    assert [(found.time_seconds, found.energy_joules) for found in archive.realised] == [
        (float(row["time"]), float(row["energy"])) for row in plans
    ]
    assert (archive.gpu_product, archive.schedule) == ("NVIDIA A100-SXM4-40GB", "1f1b")


def test_the_manifest_of_a_plan_is_valid_and_has_its_plans(
    tmp_path: Path, profile: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "plans"
    arguments = ("--output", output, "--gpu-product", "NVIDIA A40", "--manifest", "gpt.two-stages")
    assert main(["plan", *small(profile, *arguments)]) == 0
    manifest = output / "frequencyplan.json"
    assert f"kubectl apply -f {manifest}\n" in capsys.readouterr().err
    checked = check_file(str(manifest))
    assert checked.problems == []
    (plan,) = checked.valid
    assert isinstance(plan, FrequencyPlan)
    assert (plan.metadata.name, plan.spec.gpu_product) == ("gpt.two-stages", "NVIDIA A40")
    assert plan.spec.archive is not None
    assert decode_archive(plan.spec.archive) == read_archive((output / "plans.json.gz").read_bytes())
    # A result without a manifest replaces this one completely.
    assert main(["plan", *small(profile, "--output", output)]) == 0
    assert not manifest.exists()


def test_a_graph_file_of_a_schedule_gives_the_same_result(tmp_path: Path, profile: Path) -> None:
    names = ("forward", "backward")
    operations = [{"stage": s, "instruction": name, "microbatch": 0} for s in (0, 1) for name in names]
    document = {"operations": operations, "order": [[0, 1], [2, 3]], "edges": [[0, 2], [3, 1]]}
    graph = tmp_path / "graph.json"
    graph.write_text(json.dumps(document))
    own, scheduled = tmp_path / "own", tmp_path / "scheduled"
    arguments = ["--profile", str(profile), "--blocking-power", "50", "--graph", str(graph), "--output", str(own)]
    assert main(["plan", *arguments]) == 0
    assert main(["plan", *small(profile, "--output", scheduled, microbatches=1)]) == 0
    for name in ("frontier.csv", "iteration_time_energy.csv"):
        assert rows(own / name) == rows(scheduled / name)
    assert "graph" in json.loads((own / "summary.json").read_text())["digests"]


@pytest.mark.parametrize("schedule", ["gpipe", "interleaved", "early-recompute-1f1b"])
def test_every_schedule_is_planned(tmp_path: Path, profile: Path, schedule: str) -> None:
    more = "".join(
        line.replace("forward", instruction) + "\n"
        for line in PROFILE.splitlines()
        for instruction in ("recomputation", "forward_backward")
        if ",forward," in line
    )
    profile.write_text(PROFILE + (more if schedule.startswith("early") else ""))
    output = tmp_path / "plans"
    assert main(["plan", *small(profile, "--schedule", schedule, "--output", output, microbatches=4)]) == 0
    text = (output / "freqs_pipeline_00000.py").read_text()
    assert ("('recomputation', " in text) == schedule.startswith("early")


def drawn_plans(output: Path) -> list[int]:
    """The numbers of the plans with a figure."""
    return sorted(int(path.stem.removeprefix("pipeline_")) for path in output.glob("pipeline_*.png"))


def test_all_figures_show_every_plan_and_the_frontier(tmp_path: Path, profile: Path) -> None:
    output = tmp_path / "plans"
    assert main(["plan", *small(profile, "--output", output, "--plans", 3, "--pictures", "all", "--baselines")]) == 0
    names = {path.name for path in output.iterdir() if path.suffix in {".png", ".svg"}}
    stems = ["frontier", *(path.stem for path in output.glob("pipeline_*.png"))]
    assert len(stems) == 1 + len(rows(output / "iteration_time_energy.csv"))
    assert names == {f"{stem}{suffix}" for stem in stems for suffix in (".png", ".svg")}
    assert (output / "frontier.png").read_bytes().startswith(b"\x89PNG")
    drawn = (output / "pipeline_00000.svg").read_text()
    assert all(f">{name}{microbatch}<" in drawn for name in "FB" for microbatch in range(3))


@pytest.mark.parametrize(("arguments", "count"), [([], DEFAULT_PLOTS), (["4"], 4)])
def test_figures_are_drawn_of_some_plans_under_their_numbers(
    tmp_path: Path, profile: Path, arguments: list[str], count: int
) -> None:
    output = tmp_path / "plans"
    assert main(["plan", *small(profile, "--output", output, "--pictures", *arguments)]) == 0
    plans = rows(output / "iteration_time_energy.csv")
    assert len(plans) > DEFAULT_PLOTS
    cheapest = min(range(len(plans)), key=lambda number: float(plans[number]["energy"]))
    assert len(drawn_plans(output)) == count
    assert {0, cheapest, len(plans) - 1} <= set(drawn_plans(output))
    title = f"plan {cheapest}: {float(plans[cheapest]['time']):.4g} s"
    assert title in (output / f"pipeline_{cheapest:05d}.svg").read_text()


def test_no_figure_is_drawn_by_default(tmp_path: Path, profile: Path) -> None:
    output = tmp_path / "plans"
    assert main(["plan", *small(profile, "--output", output)]) == 0
    assert not [path.name for path in output.iterdir() if path.suffix in {".png", ".svg"}]


def test_a_result_replaces_an_earlier_one_and_nothing_else(
    tmp_path: Path, profile: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "plans"
    assert main(["plan", *small(profile, "--output", output, "--plans", "all", "--baselines")]) == 0
    assert main(["plan", *small(profile, "--output", output, "--plans", 3)]) == 0
    assert len(list(output.glob("freqs_pipeline_*.py"))) == 3
    assert not (output / "baselines.csv").exists()
    before = {path.name: path.read_bytes() for path in output.iterdir()}
    (output / "notes.txt").write_text("mine")
    assert main(["plan", *small(profile, "--output", output)]) == 2
    assert "found notes.txt, expected a folder that is missing, empty or an earlier result" in capsys.readouterr().err
    (output / "notes.txt").unlink()
    assert {path.name: path.read_bytes() for path in output.iterdir()} == before


def test_plans_of_another_program_are_not_replaced(
    tmp_path: Path, profile: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "lowtime"
    output.mkdir()
    (output / "freqs_pipeline_00000.py").write_text("[[1410]]\n")
    assert main(["plan", *small(profile, "--output", output)]) == 2
    assert "found freqs_pipeline_00000.py" in capsys.readouterr().err
    assert [path.name for path in output.iterdir()] == ["freqs_pipeline_00000.py"]


def test_an_unreadable_folder_exits_1(tmp_path: Path, profile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *small(profile, "--output", tmp_path / ("x" * 300))]) == 1
    assert "cannot read: File name too long; name a writable folder" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == [profile.name]


def test_the_files_of_an_interrupted_run_are_replaced(tmp_path: Path, profile: Path) -> None:
    output = tmp_path / "plans"
    (output / ".wattloop-plan-x").mkdir(parents=True)
    (output / "freqs_pipeline_00000.py").write_text("[")
    assert main(["plan", *small(profile, "--output", output, "--plans", 3)]) == 0
    assert (output / "summary.json").is_file()
    assert not list(output.glob(".wattloop-plan-*"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--output: missing"),
        (["--output", ""], "found no name, expected a folder that is missing, empty or an earlier result"),
        (["--output", "plans", "--stages", "0"], "--stages 0: must be at least 1"),
        (["--output", "plans", "--microbatches", "0"], "--microbatches 0: must be at least 1"),
        (
            ["--output", "plans", "--microbatches", "100000000"],
            "400,000,000 operations would take about 800 GB of memory",
        ),
        (["--output", "plans", "--blocking-power", "-1"], "--blocking-power -1: must be a finite number of at least 0"),
        (["--output", "plans", "--blocking-power", "nan"], "--blocking-power nan: must be a finite number"),
        (
            ["--output", "plans", "--blocking-power", "1e9"],
            "must be at most 10,000 times the highest power of a measured option",
        ),
        (
            ["--output", "plans", "--plans", "2"],
            "--plans 2: must be 3 (the slowest,",
        ),
        (["--output", "plans", "--plans", "10001"], "to 10000, or all"),
        (["--output", "plans", "--chunks", "2"], "--chunks 2: only --schedule interleaved has several chunks"),
        (["--output", "plans", "--schedule", "interleaved"], "--microbatches 3 must be a multiple of --stages 2"),
        (["--output", "plans", "--stages", "3"], "found no row of stage 2 (stages: 0, 1)"),
        (["--output", "plans", "--stages", "1"], "column stage: found stage 1, expected exactly the stages 0 to 0"),
        (["--output", "plans", "--schedule", "early-recompute-1f1b"], "found no row of stage 0, forwardbackward"),
        (["--output", "plans", "--profile", "none.csv"], "none.csv: found no readable file"),
        (["--output", "plans", "--graph", "none.json"], "none.json: found no readable file"),
    ],
)
def test_wrong_usage_ends_with_2_and_writes_nothing(
    tmp_path: Path,
    profile: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["plan", *small(profile), *arguments]) == 2
    assert message in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == [profile.name]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["choose", "--directory", ".", "--deadline", "1"], "summary.json: found no readable file"),
        (["choose", "--directory", ".", "--eta", "0.5"], "--eta, --max-power: must be given together"),
        (["choose", "--directory", ".", "--deadline", "1", "--straggler", "2"], "--straggler: --deadline is the time"),
        (["choose", "--directory", ".", "--deadline", "nan"], "--deadline nan: must be a finite number of seconds"),
        (["evaluate", "plan.py"], "--profile: missing"),
        (["--plans", "many"], ""),
        (["--pictures", "2"], "'2': must be a whole number of at least 3, or all"),
        (["--pictures", "some"], "'some': must be a whole number of at least 3, or all"),
    ],
)
def test_wrong_usage_of_the_other_actions_ends_with_2(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        code = main(["plan", *arguments])
    except SystemExit as end:
        code = int(str(end.code))
    assert code == 2
    assert message in capsys.readouterr().err


def test_a_plan_with_an_unmeasured_clock_is_rejected_with_its_operation(
    tmp_path: Path, profile: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "plan.py"
    plan.write_text("[[1410, 1410], [1410, 7]]\n")
    assert main(["plan", "evaluate", *small(profile, microbatches=1), str(plan)]) == 2
    error = capsys.readouterr().err
    assert f"{plan}: stage 1 backward of microbatch 0: found 7 MHz, expected a frequency of the profile" in error


def test_anomalies_of_the_profile_are_printed_and_stored(
    tmp_path: Path, profile: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profile.write_text(PROFILE + PROFILE.splitlines()[1] + "\n")
    output = tmp_path / "plans"
    assert main(["plan", *small(profile, "--output", output, "--plans", 3)]) == 0
    assert "repeated rows were merged: line 14 (as line 2)" in capsys.readouterr().err
    assert len(json.loads((output / "summary.json").read_text())["profile_notes"]) == 1


@pytest.mark.parametrize(
    ("summary", "found"),
    [
        ('{"stages": ' + "9" * 5000 + "}", "invalid JSON (a whole number of more than 4300 digits)"),
        ("[" * 50_000, "invalid JSON (lists or objects nested too deeply)"),
        ('{"command": "wattloop plan"}', "an invalid summary (stages: found nothing"),
        (
            '{"command": "wattloop plan", "stages": 2, "blocking_power_watts": "x"}',
            "an invalid summary (blocking_power_watts",
        ),
    ],
    ids=["digits", "nested", "fields", "type"],
)
def test_an_invalid_summary_is_rejected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], summary: str, found: str
) -> None:
    (tmp_path / "summary.json").write_text(summary)
    (tmp_path / "iteration_time_energy.csv").write_text("plan,time,energy\n0,1,1\n")
    assert main(["plan", "choose", "--directory", str(tmp_path), "--deadline", "1"]) == 2
    assert f"summary.json: found {found}" in capsys.readouterr().err
