import csv
from collections.abc import Callable
from pathlib import Path

import pytest

from wattloop.commands.main import main
from wattloop.files.csv_table import MAX_FILE_BYTES
from wattloop_research.simulation import tasks

Simulate = Callable[..., int]
POWER_HEADER = "dataset,network,batch_size,optimizer,power_limit,time_per_epoch,average_power\n"


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_output_has_the_documented_columns_and_one_summary_per_job(
    simulate: Simulate, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulate(gpu="A40") == 0
    assert (tmp_path / "out.csv").read_text().splitlines()[0] == (
        "job,gpu,dataset,network,optimizer,target_metric,default_batch_size,eta,policy,seed,recurrence,attempt,"
        "batch_size,power_limit_watts,run,profiled,epochs,outcome,energy_joules,time_seconds,cost_joules,decision"
    )
    found = rows(tmp_path / "out.csv")
    assert {(r["job"], r["gpu"], r["policy"], r["seed"]) for r in found} == {
        ("digits-mlp", "A40", "thompsonSampling", seed) for seed in "12"
    }
    output = capsys.readouterr()
    assert output.out == ""
    assert (
        "digits-mlp on A40, policy thompsonSampling, 2 seeds: cost relative to the best fixed choice: first 20"
        in output.err
    )
    assert "dead recurrences 0" in output.err


def test_the_first_attempt_is_the_profiled_default(simulate: Simulate, tmp_path: Path) -> None:
    assert simulate(policy="zeus", seeds="3") == 0
    first = rows(tmp_path / "out.csv")[0]
    assert (first["batch_size"], first["profiled"], first["decision"]) == ("16", "1", "prune")
    # 16 at eta 0.5 and 300 W: (80 + 150)·7 = 1610 at 200 W, (47.5 + 150)·10 = 1975 at 100 W; the mean epoch is 8.5 s.
    assert first["power_limit_watts"] == "200"
    epochs = float(first["epochs"])
    assert float(first["time_seconds"]) == 8.5 + 7 * (epochs - 1)


def test_automatic_recurrences_are_twice_the_sizes_times_the_limits(simulate: Simulate, tmp_path: Path) -> None:
    assert simulate(recurrences="auto", policy="default", seeds="1") == 0
    assert max(int(r["recurrence"]) for r in rows(tmp_path / "out.csv")) == 2 * 3 * 2 - 1


def test_the_path_depends_only_on_seed_recurrence_attempt_and_batch_size(simulate: Simulate, tmp_path: Path) -> None:
    drawn: dict[tuple[str, ...], set[str]] = {}
    for policy in ("thompsonSampling", "zeus", "grid", "default"):
        assert simulate(policy=policy, job=policy, gpu=policy, seeds="1-3") == 0
        for row in rows(tmp_path / "out.csv"):
            key = (row["seed"], row["recurrence"], row["attempt"], row["batch_size"])
            drawn.setdefault(key, set()).add(row["run"])
    assert all(len(runs) == 1 for runs in drawn.values())
    assert len({runs.copy().pop() for key, runs in drawn.items() if key[3] == "16"}) == 2


@pytest.mark.parametrize(
    ("text", "seeds"), [("3", {3}), ("1-4", {1, 2, 3, 4}), ("1,5,9", {1, 5, 9}), ("2,1-2", {1, 2})]
)
def test_seeds_have_three_notations(simulate: Simulate, tmp_path: Path, text: str, seeds: set[int]) -> None:
    assert simulate(seeds=text, policy="default", recurrences=2) == 0
    assert {int(r["seed"]) for r in rows(tmp_path / "out.csv")} == seeds


def test_jobs_on_all_cores_give_the_same_rows_as_sequential_jobs(
    simulate: Simulate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "MIN_RECURRENCES_FOR_PROCESSES", 120)
    assert simulate(recurrences=40, seeds="1-3", policy="grid") == 0
    together = rows(tmp_path / "out.csv")
    for seed in "123":
        assert simulate(recurrences=40, seeds=seed, policy="grid") == 0
        assert rows(tmp_path / "out.csv") == [row for row in together if row["seed"] == seed]


def test_rows_can_be_written_to_standard_output(simulate: Simulate, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate(output="-", policy="default", recurrences=3, seeds="1") == 0
    assert len(capsys.readouterr().out.splitlines()) == 4


def test_a_jobs_file_overrides_the_options_of_the_command_line(simulate: Simulate, tmp_path: Path) -> None:
    jobs = tmp_path / "jobs.csv"
    jobs.write_text("job,eta,policy,recurrences,gpu\nb,0,zeus,3,\na,1,default,,G\n")
    assert simulate(jobs=jobs, eta=0.25, recurrences=2, seeds="1") == 0
    found = rows(tmp_path / "out.csv")
    assert [(r["job"], r["gpu"], r["eta"], r["policy"]) for r in found if r["attempt"] == "0"] == [
        *[("a", "G", "1", "default")] * 2,
        *[("b", "", "0", "zeus")] * 3,
    ]


def test_a_history_of_another_gpu_model_avoids_the_first_exploration(simulate: Simulate, tmp_path: Path) -> None:
    learned = tmp_path / "learned.csv"
    assert simulate(output=learned, gpu="A", recurrences=30, default_batch_size=8, seeds="1") == 0
    assert simulate(history=learned, gpu="B", recurrences=6, default_batch_size=8, seeds="1") == 0
    moved = rows(tmp_path / "out.csv")
    assert {r["batch_size"] for r in moved if r["attempt"] == "0"} == {"16"}
    assert moved[0]["profiled"] == "1"


BAD = {
    "a missing column": (
        "power",
        "dataset,network,batch_size,optimizer,power_limit,time_per_epoch\n",
        "line 1, column average_power: found no such column",
    ),
    "a column twice": ("power", POWER_HEADER.replace("dataset", "network"), "line 1, column dataset"),
    "not a number": (
        "power",
        POWER_HEADER + "digits,mlp,8,sgd,100,fast,90\n",
        "line 2, column time_per_epoch: found 'fast'",
    ),
    "not finite": ("power", POWER_HEADER + "digits,mlp,8,sgd,inf,20,90\n", "line 2, column power_limit: found 'inf'"),
    "negative": ("power", POWER_HEADER + "digits,mlp,8,sgd,100,20,-90\n", "line 2, column average_power"),
    "half a batch": ("power", POWER_HEADER + "digits,mlp,8.5,sgd,100,20,90\n", "line 2, column batch_size"),
    "a limit twice": (
        "power",
        POWER_HEADER + "digits,mlp,8,sgd,100,20,90\n\ndigits,mlp,8,sgd,100.0,20,90\n",
        "line 4, column power_limit: found batch size 8 at 100 W again, first on line 2",
    ),
    "too few cells": (
        "power",
        POWER_HEADER + "digits,mlp,8,sgd,100,20\n",
        "line 2, column average_power: found 6 cells",
    ),
    "too many cells": ("power", POWER_HEADER + "digits,mlp,8,sgd,100,20,90,1\n", "line 2, column 8: found 8 cells"),
    "an empty file": ("power", "", "line 1, column 1: found no header"),
    "only a header": ("power", POWER_HEADER, "line 2, column 1: found no row"),
    "an unknown workload": ("power", POWER_HEADER + "x,mlp,8,sgd,100,20,90\n", "line 1, column dataset: found no row"),
    "an empty training file": ("train", "", "line 1, column 1: found no header"),
    "an epoch of 0": (
        "train",
        "dataset,network,batch_size,optimizer,run,target_metric,target_epoch\ndigits,mlp,8,sgd,1,0.9,0\n",
        "line 2, column target_epoch",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_an_invalid_file_is_rejected_with_file_line_and_column(
    simulate: Simulate, traces: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    which, text, place = BAD[name]
    file = traces[0] if which == "train" else traces[1]
    file.write_text(text)
    assert simulate() == 2
    assert f"{file.name}: {place}" in capsys.readouterr().err
    assert not (tmp_path / "out.csv").exists()


def test_traces_without_a_common_batch_size_are_rejected(
    simulate: Simulate, traces: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    traces[1].write_text(POWER_HEADER + "digits,mlp,7,sgd,100,20,90\n")
    assert simulate() == 2
    assert "train.csv: line 1, column batch_size: found no batch size of dataset digits" in capsys.readouterr().err


def test_bytes_that_are_not_text_are_rejected_with_their_position(
    simulate: Simulate, traces: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    traces[1].write_bytes(POWER_HEADER.encode() + b"dig\xffits,mlp\n")
    assert simulate() == 2
    assert "power.csv: line 2, column 4: found bytes that are not UTF-8" in capsys.readouterr().err


@pytest.mark.parametrize("seeds", ["1-" + "9" * 20, "9" * 5000, "1-" + "9" * 5000, "5-1", "1-100001"])
def test_invalid_seeds_are_rejected(simulate: Simulate, capsys: pytest.CaptureFixture[str], seeds: str) -> None:
    assert simulate(seeds=seeds) == 2
    output = capsys.readouterr().err
    assert "expected seeds as in 3, 1-20 or 1,5,9" in output
    assert len(output) < 300


def test_a_file_of_100_megabytes_is_rejected(
    simulate: Simulate, traces: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    with traces[1].open("wb") as file:
        file.truncate(100 * 1024 * 1024)
    assert simulate() == 2
    expected = f"found more than {MAX_FILE_BYTES} bytes, expected a CSV file of at most {MAX_FILE_BYTES} bytes"
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "sizes"),
    [({"max_epochs": 3}, {"8", "16", "32"}), ({"target_metric": 0.99, "default_batch_size": 32}, {"32"})],
)
@pytest.mark.parametrize("policy", ["thompsonSampling", "grid", "default"])
def test_a_job_that_no_batch_size_reaches_has_one_attempt_per_recurrence_once_that_is_known(
    simulate: Simulate,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: dict[str, object],
    sizes: set[str],
    policy: str,
) -> None:
    assert simulate(**options, policy=policy, seeds="1") == 0
    with (tmp_path / "out.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["outcome"] for row in rows} == {"exhausted"}
    assert [int(row["recurrence"]) for row in rows if int(row["recurrence"]) >= 4] == list(range(4, 12))
    first = [row["batch_size"] for row in rows if row["recurrence"] == "0"]
    if policy == "thompsonSampling":
        assert (set(first), len(first)) == (sizes, max(len(sizes), 2))
    assert len(first) <= 4
    output = capsys.readouterr().err
    assert "no batch size reaches target" in output
    assert "dead recurrences 12" in output


WRONG = {
    "a target the file does not have": ({"target_metric": 0.5}, "line 1, column target_metric: found no row of target"),
    "a default without power rows": (
        {"default_batch_size": 64},
        "power.csv: column batch_size: found no row of the default",
    ),
    "a default without training rows": ({"default_batch_size": 128}, "train.csv: column batch_size: found no row"),
    "eta out of range": ({"eta": 1.5}, "--eta: found '1.5', expected a number from 0 to 1"),
    "eta no number": ({"eta": "nan"}, "--eta: found 'nan'"),
    "an unknown policy": ({"policy": "best"}, "--policy: found 'best', expected one of thompsonSampling"),
    "no recurrence": ({"recurrences": 0}, "--recurrences: found '0'"),
    "seeds backwards": ({"seeds": "5-1"}, "--seeds: found '5-1'"),
    "a stop of another name": ({"stop": "now"}, "--stop: found 'now', expected inside or epoch-end"),
    "half a switch": ({"switch_at": 3}, "require each other; switch_target_metric is missing"),
    "missing options": (
        {"dataset": None, "max_epochs": None},
        "2 required option(s) are missing:\n  --dataset: dataset of the workload; a name\n  --max-epochs: maximum",
    ),
    "a missing file": ({"train": "absent.csv"}, "absent.csv: found no readable file"),
    "a history without the job": ({"history": "HISTORY"}, "column target_metric: found no row of dataset digits"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_usage_exits_2_and_names_the_valid_values(
    simulate: Simulate, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    options, output = WRONG[name]
    if "history" in options:
        assert simulate(output=tmp_path / "other.csv", recurrences=2, seeds="1") == 0
        capsys.readouterr()
        options = {"history": tmp_path / "other.csv", "target_metric": 0.95}
    assert simulate(**options) == 2
    assert output in capsys.readouterr().err


def test_an_invalid_cell_of_a_jobs_file_is_named_by_line_and_column(
    simulate: Simulate, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = tmp_path / "jobs.csv"
    jobs.write_text("job,eta\na,0.5\nb,2\n")
    assert simulate(jobs=jobs) == 2
    assert "jobs.csv: line 3, column eta: found '2', expected a number from 0 to 1" in capsys.readouterr().err
    jobs.write_text("job,switch_at\na,5\n")
    assert simulate(jobs=jobs) == 2
    assert "jobs.csv: line 2, column switch_target_metric: found an empty cell" in capsys.readouterr().err
    jobs.write_text("job,eta\n")
    assert simulate(jobs=jobs) == 2
    assert "jobs.csv: line 2, column 1: found no row below the header" in capsys.readouterr().err


def test_a_missing_folder_is_reported_and_exits_1(simulate: Simulate, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate(output="absent/out.csv", recurrences=2) == 1
    assert "name a file in an existing, writable folder" in capsys.readouterr().err


def test_help_shows_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["simulate", "--help"])
    assert ended.value.code == 0
    assert "wattloop simulate --jobs jobs.csv" in capsys.readouterr().out


def test_help_shows_which_options_are_required_and_an_empty_command_names_them_all(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["simulate", "--help"])
    usage = capsys.readouterr().out.partition("\n\n")[0]
    assert max(map(len, usage.splitlines())) < 80
    assert main(["simulate"]) == 2
    error = capsys.readouterr().err
    assert "9 required option(s) are missing:\n  --output: CSV" in error
    required = {line.strip().partition(":")[0] for line in error.splitlines()[1:]}
    assert all(f"{flag}=" in usage for flag in required)
    assert main(["simulate", "--jobs", "jobs.csv"]) == 2
    assert capsys.readouterr().err.startswith("wattloop simulate: --output is missing")
