import csv
import math
from pathlib import Path

import pytest

from wattloop.commands.main import main

HEADER = "recurrence,attempt,batch_size,cost_joules,reached\n"
HISTORY = HEADER + "0,0,16,10,1\n1,0,8,30,0\n1,1,32,14,1\n2,0,16,12,1\n3,0,32,14,1\n4,0,16,14,1\n"


def replay(tmp_path: Path, history: str = HISTORY, policy: str = "zeus", **options: str) -> int:
    (tmp_path / "history.csv").write_text(history)
    given = {"batch_sizes": "8,16,32", "default_batch_size": "16", "seed": "1", **options}
    arguments = [argument for name, value in given.items() for argument in (f"--{name.replace('_', '-')}", value)]
    files = ["--history", str(tmp_path / "history.csv"), "--output", str(tmp_path / "out.csv")]
    return main(["replay", "--policy", policy, *files, "--arms", str(tmp_path / "arms.csv"), *arguments])


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_zeus_shows_stage_decision_and_posterior_of_each_step(tmp_path: Path) -> None:
    assert replay(tmp_path) == 0
    steps = table(tmp_path / "out.csv")
    assert [(s["step"], s["stage"], s["decided"]) for s in steps] == [
        ("0", "pruning", "16"),
        ("1", "pruning", "8"),
        ("2", "pruning", "32"),
        ("3", "pruning", "16"),
        ("4", "pruning", "32"),
        ("5", "sampling", ""),
        ("6", "sampling", ""),
    ]
    assert all(s["drawn"] == s["decided"] for s in steps[:5])
    assert all(s["drawn"] in {"16", "32"} for s in steps[5:])
    arms = [(a["step"], a["batch_size"], a["observations"], float(a["mean"]), float(a["precision"]))
            for a in table(tmp_path / "arms.csv")]  # fmt: skip
    assert arms == [
        ("5", "16", "2", -11.0, 2.0),
        ("5", "32", "2", -14.0, math.inf),
        ("6", "16", "3", -12.0, pytest.approx(3 / (8 / 3))),
        ("6", "32", "2", -14.0, math.inf),
    ]


def test_one_arm_left_is_decided(tmp_path: Path) -> None:
    assert replay(tmp_path, HEADER + "0,0,16,10,1\n1,0,8,30,0\n1,1,32,30,0\n2,0,16,12,1\n") == 0
    last = table(tmp_path / "out.csv")[-1]
    assert (last["stage"], last["decided"], last["drawn"]) == ("sampling", "16", "16")


def test_a_step_without_arms_is_empty_and_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert replay(tmp_path, HEADER + "0,0,16,10,0\n0,1,32,30,0\n") == 0
    assert table(tmp_path / "out.csv")[-1] == {"step": "2", "stage": "pruning", "decided": "", "drawn": ""}
    assert "step 2: the published algorithm pruned every batch size" in capsys.readouterr().err


def test_the_window_applies_to_each_arm(tmp_path: Path) -> None:
    assert replay(tmp_path, window="2") == 0
    last = [arm for arm in table(tmp_path / "arms.csv") if arm["step"] == "6"]
    assert [(arm["batch_size"], arm["observations"], float(arm["mean"])) for arm in last] == [
        ("16", "2", -13.0),
        ("32", "2", -14.0),
    ]


def test_the_seed_changes_what_is_drawn_and_nothing_else(tmp_path: Path) -> None:
    close = HEADER + "0,0,16,10,1\n1,0,8,30,0\n1,1,32,11,1\n2,0,16,12,1\n3,0,32,12,1\n"
    drawn = set()
    for seed in range(20):
        assert replay(tmp_path, close, seed=str(seed)) == 0
        last = table(tmp_path / "out.csv")[-1]
        drawn.add(last["drawn"])
        assert last["decided"] == ""
    assert drawn == {"16", "32"}


def test_the_default_policy_shows_mean_and_sd_of_log_cost(tmp_path: Path) -> None:
    history = HEADER + "".join(f"{i},0,16,{10 + i % 3},1\n" for i in range(12))
    assert replay(tmp_path, history, "thompsonSampling") == 0
    last = {arm["batch_size"]: arm for arm in table(tmp_path / "arms.csv") if arm["step"] == "12"}
    assert set(last) == {"8", "16", "32"}
    assert float(last["16"]["mean"]) == pytest.approx(math.log(11), abs=0.05)
    assert float(last["16"]["sd"]) < float(last["8"]["sd"])


def test_epochs_and_epoch_costs_are_distinguished_if_present(tmp_path: Path) -> None:
    header = "recurrence,attempt,batch_size,cost_joules,reached,epochs,epoch_cost_joules,outcome\n"
    assert replay(tmp_path, header + "0,0,16,100,1,10,10,reached\n1,0,8,0,0,,,crashed\n", "thompsonSampling") == 0
    last = {arm["batch_size"]: arm for arm in table(tmp_path / "arms.csv") if arm["step"] == "2"}
    assert float(last["16"]["mean"]) == pytest.approx(math.log(100), abs=0.05)


BAD = {
    "a missing column": (
        "recurrence,attempt,batch_size,cost_joules\n",
        "line 1, column reached: found no such column",
    ),
    "not a number": (HEADER + "0,0,16,high,1\n", "line 2, column cost_joules: found 'high'"),
    "neither 0 nor 1": (HEADER + "0,0,16,1,yes\n", "line 2, column reached: found 'yes', expected 0 or 1"),
    "a size not offered": (HEADER + "0,0,64,1,1\n", "line 2, column batch_size: found 64, expected one of"),
    "an attempt twice": (HEADER + "0,0,16,1,1\n0,0,16,1,1\n", "line 3, column attempt"),
    "an empty file": ("", "line 1, column 1"),
    "outcome against reached": (HEADER.strip() + ",outcome\n0,0,16,1,1,stopped\n", "line 2, column outcome"),
    "an unknown outcome": (HEADER.strip() + ",outcome\n0,0,16,1,0,lost\n", "line 2, column outcome: found 'lost'"),
    "epochs for some only": (HEADER.strip() + ",epochs\n0,0,16,1,1,\n", "line 2, column epochs"),
}


@pytest.mark.parametrize("name", BAD)
def test_an_invalid_history_is_rejected_with_its_position(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    text, place = BAD[name]
    assert replay(tmp_path, text) == 2
    assert f"history.csv: {place}" in capsys.readouterr().err
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_sizes": "8,8,16"}, "--batch-sizes: found '8,8,16'"),
        ({"batch_sizes": "8,x"}, "--batch-sizes"),
        ({"default_batch_size": "64"}, "--default-batch-size: found 64"),
        ({"window": "-1"}, "--window: found -1"),
    ],
)
def test_wrong_usage_exits_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: dict[str, str], message: str
) -> None:
    assert replay(tmp_path, **options) == 2
    assert message in capsys.readouterr().err


RATES = HEADER.replace("\n", ",param:learning_rate\n") + "0,0,16,10,1,0.1\n1,0,16,4,1,0.4\n2,0,32,6,1,0.4\n"


def test_parameters_are_read_from_the_history_and_written_with_each_decision(tmp_path: Path) -> None:
    picture = str(tmp_path / "posterior.png")
    assert replay(tmp_path, RATES, "thompsonSampling", parameter="learning_rate=0.1,0.4,1.6", picture=picture) == 0
    steps = table(tmp_path / "out.csv")
    assert (steps[0]["drawn"], steps[0]["param:learning_rate"]) == ("16", "0.1")
    assert (steps[-1]["drawn"], steps[-1]["param:learning_rate"]) != ("16", "0.1")
    last = [arm for arm in table(tmp_path / "arms.csv") if arm["step"] == "3"]
    means = {(arm["batch_size"], arm["param:learning_rate"]): float(arm["mean"]) for arm in last}
    assert len(means) == 9
    assert means["16", "0.4"] < means["32", "0.4"] < means["16", "0.1"]


@pytest.mark.parametrize(
    ("parameter", "message"),
    [
        ("learning_rate", "expected NAME=VALUES"),
        ("learning_rate=0.1,,1", "expected NAME=VALUES"),
        ("learning_rate=0.1,1e-1", "occurs twice"),
        ("learning_rate=" + ",".join(map(str, range(1, 101))), "found 300 configurations"),
        ("learning_rate=0.1,1.6", "line 3, column param:learning_rate: found '0.4', expected one of 0.1, 1.6"),
        ("dropout=0.1,0.4", "found parameter learning_rate, expected --parameter learning_rate=VALUES"),
    ],
)
def test_invalid_parameters_are_refused(
    tmp_path: Path, parameter: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert replay(tmp_path, RATES, "thompsonSampling", parameter=parameter) == 2
    assert message in capsys.readouterr().err


def test_policy_zeus_has_no_parameters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert replay(tmp_path, RATES, "zeus", parameter="learning_rate=0.1,0.4") == 2
    assert "policy zeus chooses the batch size alone" in capsys.readouterr().err


def test_the_table_of_a_run_is_refused_with_what_it_lacks_and_where_the_whole_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = "recurrence,attempt,batch_size,power_limit_watts,epochs,outcome,energy_joules,time_seconds,cost_joules"
    assert replay(tmp_path, f"{columns}\n0,0,16,300,5,reached,9,9,10\n") == 2
    error = " ".join(capsys.readouterr().err.split())
    assert "line 1, column reached: found the table of a run, without reached (0 or 1)" in error
    assert "epoch_energy_joules, epoch_time_seconds (what an epoch costs)" in error
    assert "wattloop.db of the output folder: wattloop replay FOLDER" in error
