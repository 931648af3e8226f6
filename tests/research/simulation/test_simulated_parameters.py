"""`wattloop simulate` and its output as a history, for jobs that choose further parameters."""

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

Simulate = Callable[..., int]
TRAIN_HEADER = "dataset,network,batch_size,optimizer,learning_rate,run,target_metric,target_epoch"
EPOCHS = {(8, "0.1"): 12, (8, "1"): 6, (16, "0.1"): 10, (16, "1"): 4, (32, "0.1"): 9, (32, "1"): 5}


@pytest.fixture
def train(tmp_path: Path) -> Path:
    """Two learning rates and two optimizers; adam needs three epochs more."""
    lines = [f"{TRAIN_HEADER},param:method"]
    for (size, rate), epochs in EPOCHS.items():
        lines += [
            f"digits,mlp,{size},sgd,{rate},1,0.9,{epochs},sgd",
            f"digits,mlp,{size},sgd,{rate},1,0.9,{epochs + 3},adam",
        ]
    path = tmp_path / "parameters.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def rows(tmp_path: Path) -> list[dict[str, str]]:
    with (tmp_path / "out.csv").open(newline="") as file:
        return list(csv.DictReader(file))


CHOSEN = "learning_rate=1e-1,method=adam"


def test_each_parameter_has_a_column_and_its_default_runs_first(
    simulate: Simulate, train: Path, tmp_path: Path
) -> None:
    assert simulate(train=train, parameters=CHOSEN, seeds="1") == 0
    first = rows(tmp_path)[0]
    assert list(first)[-3:] == ["decision", "param:learning_rate", "param:method"]
    assert (first["batch_size"], first["param:learning_rate"], first["param:method"]) == ("16", "0.1", "adam")


def test_the_epochs_are_those_of_the_configuration(simulate: Simulate, train: Path, tmp_path: Path) -> None:
    assert simulate(train=train, parameters=CHOSEN, seeds="1-5", policy="grid") == 0
    for row in rows(tmp_path):
        if row["outcome"] == "reached":
            expected = EPOCHS[int(row["batch_size"]), row["param:learning_rate"]] + 3 * (row["param:method"] == "adam")
            assert float(row["epochs"]) == expected


def test_the_policy_finds_the_best_configuration(simulate: Simulate, train: Path, tmp_path: Path) -> None:
    assert simulate(train=train, parameters=CHOSEN, seeds="1", recurrences=20) == 0
    last = rows(tmp_path)[-1]
    assert (last["batch_size"], last["param:learning_rate"], last["param:method"]) in {
        ("16", "1", "sgd"),
        ("32", "1", "sgd"),
    }


def test_the_default_policy_keeps_all_defaults(simulate: Simulate, train: Path, tmp_path: Path) -> None:
    assert simulate(train=train, parameters=CHOSEN, seeds="1", policy="default") == 0
    assert {(r["batch_size"], r["param:learning_rate"], r["param:method"]) for r in rows(tmp_path)} == {
        ("16", "0.1", "adam")
    }


def test_a_parameter_may_change_the_epoch(
    simulate: Simulate, train: Path, traces: tuple[Path, Path], tmp_path: Path
) -> None:
    power = tmp_path / "power-by-method.csv"
    header, *lines = traces[1].read_text().splitlines()
    slower = [",".join((*(cells := line.split(","))[:5], str(2 * float(cells[5])), cells[6], "adam")) for line in lines]
    power.write_text("\n".join([f"{header},param:method", *(f"{line},sgd" for line in lines), *slower]) + "\n")
    assert simulate(train=train, power=power, parameters=CHOSEN, seeds="1", policy="grid", recurrences=12) == 0
    per_epoch = {
        (row["batch_size"], row["param:method"]): float(row["time_seconds"]) / float(row["epochs"])
        for row in rows(tmp_path)
        if row["profiled"] == "1" and row["power_limit_watts"] == "200" and float(row["epochs"]) > 1
    }
    assert per_epoch["8", "adam"] > 1.5 * per_epoch["8", "sgd"]


def test_the_output_is_a_history_with_parameters(simulate: Simulate, train: Path, tmp_path: Path) -> None:
    assert simulate(train=train, parameters=CHOSEN, seeds="1", recurrences=20, gpu="A") == 0
    (tmp_path / "out.csv").rename(tmp_path / "history.csv")
    assert (
        simulate(train=train, parameters=CHOSEN, seeds="1", recurrences=2, gpu="B", history=tmp_path / "history.csv")
        == 0
    )
    second = rows(tmp_path)[1]
    assert (second["param:learning_rate"], second["param:method"]) == ("1", "sgd")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"parameters": "learning_rate"}, "--parameters: found 'learning_rate', expected NAME=DEFAULT"),
        ({"parameters": "method=lion,learning_rate=1"}, "found default lion of method, expected one of sgd, adam"),
        ({"parameters": "method=sgd,dropout=0.1"}, "param:dropout: found no such column"),
        ({"parameters": "learning_rate=1"}, "param:method: found 2 values of parameter method"),
        ({"parameters": CHOSEN, "policy": "zeus"}, "policy zeus chooses the batch size alone"),
    ],
)  # fmt: skip
def test_invalid_parameters_are_refused(
    simulate: Simulate, train: Path, options: dict[str, str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulate(train=train, **options) == 2
    assert message in capsys.readouterr().err


def test_every_configuration_needs_rows(simulate: Simulate, train: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = train.read_text().splitlines()
    train.write_text("\n".join(line for line in lines if not line.startswith("digits,mlp,32,sgd,1,")) + "\n")
    assert simulate(train=train, parameters=CHOSEN) == 2
    assert "found no row of batch size 32 with learning_rate 1, method sgd" in capsys.readouterr().err
