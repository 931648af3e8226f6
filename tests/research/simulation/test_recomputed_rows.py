"""Recomputes every row of every policy from the trace files and the row's choices, without product code."""

import csv
import math
from collections import defaultdict
from collections.abc import Callable
from itertools import groupby
from pathlib import Path

import pytest

from support.test_sets.parameters import exhaustive_after

Table = list[dict[str, str]]
POLICIES = ("thompsonSampling", "zeus", "grid", "default")


def table(path: Path) -> Table:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def close(one: str | float, other: float) -> bool:
    return math.isclose(float(one), other, rel_tol=2e-9, abs_tol=1e-9)


class Recomputed:
    """The traces of the workload of a row."""

    def __init__(self, train: Table, power: Table, row: dict[str, str], max_epochs: int) -> None:
        key = ("dataset", "network", "optimizer")
        self.eta, self.max_epochs = float(row["eta"]), max_epochs
        self.max_power = max(float(p["power_limit"]) for p in power)
        self.paths: dict[tuple[int, float], dict[str, str]] = defaultdict(dict)
        for t in train:
            if all(t[k] == row[k] for k in key):
                self.paths[int(t["batch_size"]), float(t["target_metric"])][t["run"]] = t["target_epoch"]
        self.limits: dict[int, dict[float, tuple[float, float]]] = defaultdict(dict)
        for p in power:
            if all(p[k] == row[k] for k in key):
                time = float(p["time_per_epoch"])
                self.limits[int(p["batch_size"])][float(p["power_limit"])] = (float(p["average_power"]) * time, time)

    def cost(self, energy: float, time: float) -> float:
        return self.eta * energy + (1 - self.eta) * self.max_power * time

    def best_limit(self, size: int) -> float:
        return min(self.limits[size], key=lambda limit: (self.cost(*self.limits[size][limit]), limit))

    def mean_epoch(self, size: int) -> tuple[float, float]:
        epochs = list(self.limits[size].values())
        return sum(e for e, _ in epochs) / len(epochs), sum(t for _, t in epochs) / len(epochs)

    def check(self, row: dict[str, str], known: set[int], stop: str) -> None:
        size, epochs, profiled = int(row["batch_size"]), float(row["epochs"]), row["profiled"] == "1"
        limits = self.limits[size]
        if row["policy"] == "default":
            assert not profiled
            assert float(row["power_limit_watts"]) == max(limits)
            first = later = limits[max(limits)]
        else:
            assert profiled == (size not in known)
            later = limits[self.best_limit(size)]
            first = self.mean_epoch(size) if profiled else later
            if profiled and epochs < 1:
                assert row["power_limit_watts"] == ""
            else:
                assert float(row["power_limit_watts"]) == self.best_limit(size)
                known.add(size)
        share, rest = min(epochs, 1.0), max(epochs - 1, 0.0)
        energy, time = (share * f + rest * n for f, n in zip(first, later, strict=True))
        assert close(row["energy_joules"], energy)
        assert close(row["time_seconds"], time)
        assert close(row["cost_joules"], self.cost(energy, time))
        text = self.paths[size, float(row["target_metric"])][row["run"]]
        target = math.inf if text in {"", "nan"} else float(text)
        self.check_outcome(row["outcome"], epochs, target)
        if stop == "epoch-end":
            assert epochs == int(epochs)

    def check_outcome(self, outcome: str, epochs: float, target: float) -> None:
        if outcome == "reached":
            assert epochs == target <= self.max_epochs
        elif outcome == "exhausted":
            assert epochs == self.max_epochs < target
        else:
            assert outcome == "stopped"
            assert epochs < min(target, self.max_epochs)


def check_all(output: Path, train: Path, power: dict[str, Path], max_epochs: dict[str, int], stop: str) -> Table:
    rows, trains = table(output), table(train)
    powers = {gpu: table(path) for gpu, path in power.items()}
    order = [(r["job"], int(r["seed"]), int(r["recurrence"]), int(r["attempt"])) for r in rows]
    assert order == sorted(order)
    for _, job_rows in groupby(rows, key=lambda r: (r["job"], r["gpu"], r["policy"], r["seed"])):
        known: set[int] = set()
        ended = True
        expected = (0, 0)
        recomputed: Recomputed | None = None
        for row in job_rows:
            if recomputed is None:
                recomputed = Recomputed(trains, powers[row["gpu"]], row, max_epochs[row["dataset"]])
            recomputed.check(row, known, stop)
            assert (int(row["recurrence"]), int(row["attempt"])) == expected
            ended = row["outcome"] == "reached" or expected[1] == 19
            expected = (expected[0] + 1, 0) if ended else (expected[0], expected[1] + 1)
        assert ended
    return rows


@pytest.mark.parametrize("stop", ["inside", "epoch-end"])
@pytest.mark.parametrize("policy", POLICIES)
def test_every_row_of_small_traces_can_be_recomputed(
    simulate: Callable[..., int], traces: tuple[Path, Path], tmp_path: Path, policy: str, stop: str
) -> None:
    assert simulate(policy=policy, stop=stop, recurrences=25, switch_at=15, switch_target_metric=0.95) == 0
    rows = check_all(tmp_path / "out.csv", traces[0], {"": traces[1]}, {"digits": 20}, stop)
    assert {row["batch_size"] for row in rows} <= {"8", "16", "32"}
    assert {row["target_metric"] for row in rows} == {"0.9", "0.95"}
    assert all((int(row["recurrence"]) < 15) == (row["target_metric"] == "0.9") for row in rows)


@pytest.mark.parametrize("stop", exhaustive_after(["inside", "epoch-end"]))
@pytest.mark.parametrize("policy", POLICIES)
def test_every_row_of_published_traces_can_be_recomputed(
    simulate: Callable[..., int], zeus_traces: Path, tmp_path: Path, policy: str, stop: str
) -> None:
    jobs = tmp_path / "jobs.csv"
    jobs.write_text(
        "job,gpu,power,dataset,network,optimizer,target_metric,max_epochs,default_batch_size\n"
        + "".join(
            f"{dataset}-{gpu},{gpu},{zeus_traces}/summary_power_{gpu}.csv,{dataset},{rest}\n"
            for gpu in ("a40", "v100")
            for dataset, rest in (
                ("cifar100", "shufflenetv2,adadelta,0.6,100,1024"),
                ("imagenet", "resnet50,adadelta,0.65,100,256"),
                ("movielens-1m", "ncf,adam,0.41,100,1024"),
                ("sentiment140", "bert_base_uncased,adamw,0.84,10,128"),
            )
        )
    )
    given = dict.fromkeys(
        ("power", "dataset", "network", "optimizer", "target_metric", "max_epochs", "default_batch_size")
    )
    train = zeus_traces / "summary_train.csv"
    assert simulate(**given, jobs=jobs, train=train, policy=policy, stop=stop, seeds="7", recurrences=40) == 0
    power = {gpu: zeus_traces / f"summary_power_{gpu}.csv" for gpu in ("a40", "v100")}
    max_epochs = {"cifar100": 100, "imagenet": 100, "movielens-1m": 100, "sentiment140": 10}
    rows = check_all(tmp_path / "out.csv", train, power, max_epochs, stop)
    assert len({(row["job"], row["recurrence"]) for row in rows}) == 8 * 40
