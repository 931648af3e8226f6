"""`wattloop simulate --arrivals` and `wattloop simulate assign`, as a user runs them."""

import csv
import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.test_sets.parameters import exhaustive_after
from wattloop.commands.main import main
from wattloop_research.simulation import tasks
from wattloop_research.simulation.cluster_trace import clusters_of

DATA = Path(__file__).parents[2] / "data"
WORKLOADS = """job,dataset,network,optimizer,target_metric,max_epochs,default_batch_size
vision,cifar100,shufflenetv2,adadelta,0.6,100,1024
ranking,movielens-1m,ncf,adam,0.41,100,1024
language,sentiment140,bert_base_uncased,adamw,0.84,10,128
"""
TIMES = ("start_seconds", "end_seconds", "in_flight")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jobs.csv").write_text(WORKLOADS)
    return tmp_path


def simulate(*options: str) -> int:
    traces = DATA / "zeus-traces"
    files = ("--train", str(traces / "summary_train.csv"), "--power", str(traces / "summary_power_v100.csv"))
    return main(["simulate", *files, *options])


def write_arrivals(folder: Path, *rows: tuple[object, str]) -> None:
    lines = "".join(f"{seconds},{job}\n" for seconds, job in rows)
    (folder / "arrivals.csv").write_text(f"arrival_seconds,job\n{lines}")


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("policy", exhaustive_after(["zeus", "thompsonSampling", "grid", "default"], usual=2))
def test_recurrences_that_do_not_overlap_are_byte_for_byte_those_of_a_simulation_in_sequence(
    folder: Path, policy: str
) -> None:
    write_arrivals(folder, *((number * 1e8, "vision") for number in range(15)))
    shared = ("--jobs", "jobs.csv", "--policy", policy, "--seeds", "1-2")
    assert simulate(*shared, "--arrivals", "arrivals.csv", "--output", "arriving.csv") == 0
    (folder / "jobs.csv").write_text("\n".join(WORKLOADS.splitlines()[:2]) + "\n")
    assert simulate(*shared, "--recurrences", "15", "--output", "sequence.csv") == 0
    with (folder / "arriving.csv").open(newline="") as file:
        header, *cells = csv.reader(file)
    places = [place for place, name in enumerate(header) if name not in TIMES]
    left = "".join(",".join(row[place] for place in places) + "\n" for row in (header, *cells))
    assert left == (folder / "sequence.csv").read_text()
    assert header[header.index("start_seconds") :][:4] == [*TIMES, "energy_joules"]


def test_the_totals_compare_with_the_default_on_the_same_arrivals(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_arrivals(folder, *sorted((number * 50 % 997, ("vision", "ranking")[number % 2]) for number in range(60)))
    options = ("--jobs", "jobs.csv", "--arrivals", "arrivals.csv", "--seeds", "1-2", "--output", "out.csv")
    assert simulate(*options, "--slots", "3") == 0
    error = capsys.readouterr().err
    assert "1 of the jobs have no arrival and did not run: language" in error
    assert "all 2 jobs: 60 recurrences, mean of 2 seeds: energy" in error
    found = rows(folder / "out.csv")
    waits = [float(each["start_seconds"]) for each in found if each["attempt"] == "0" and each["seed"] == "1"]
    arrived = [float(each["arrival_seconds"]) for each in rows(folder / "arrivals.csv")]
    assert sum(waits) - sum(arrived) > 0
    for seed in "12":
        spans = [(float(r["start_seconds"]), float(r["end_seconds"])) for r in found if r["seed"] == seed]
        assert max(sum(begin <= at < end for begin, end in spans) for at, _ in spans) == 3


def test_processes_give_the_same_rows_as_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_arrivals(folder, *((number * 100, ("vision", "ranking")[number % 2]) for number in range(40)))
    options = ("--jobs", "jobs.csv", "--arrivals", "arrivals.csv", "--seeds", "1-2", "--policy", "zeus")
    assert simulate(*options, "--output", "one.csv") == 0
    monkeypatch.setattr(tasks, "MIN_RECURRENCES_FOR_PROCESSES", 1)
    assert simulate(*options, "--output", "several.csv") == 0
    assert (folder / "one.csv").read_text() == (folder / "several.csv").read_text()


@pytest.mark.parametrize(
    ("arrived", "message"),
    [
        (
            [(5, "vision"), (4, "vision")],
            "line 3, column arrival_seconds: found 4, which is before the 5 of the row",
        ),
        ([(0, "audio")], "line 2, column job: found 'audio', expected the name of a job of --jobs: language, ranking"),
        ([(-1, "vision")], "found '-1', expected a finite number of at least 0"),
        ([("nan", "vision")], "found 'nan', expected a finite number of at least 0"),
        ([], "no row below the header"),
    ],
)
def test_an_invalid_arrival_is_named_with_what_would_be_right(
    folder: Path, arrived: list[tuple[object, str]], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_arrivals(folder, *arrived)
    assert simulate("--jobs", "jobs.csv", "--arrivals", "arrivals.csv", "--output", "out.csv") == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--slots", "2"), "--slots has a meaning only with --arrivals FILE"),
        (("--overlap", "posterior"), "--overlap has a meaning only with --arrivals FILE"),
        (("--arrivals", "arrivals.csv", "--recurrences", "5"), "has 5 recurrences, but with --arrivals it has one per"),
        (("--arrivals", "arrivals.csv", "--picture", "a.png"), "--picture draws recurrences in sequence"),
        (("--arrivals", "arrivals.csv", "--switch-at", "5", "--switch-target-metric", "0.5"), "switches its target"),
    ],
)
def test_options_that_exclude_each_other_are_refused(
    folder: Path, options: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_arrivals(folder, (0, "vision"))
    assert simulate("--jobs", "jobs.csv", "--output", "out.csv", *options) == 2
    assert message in capsys.readouterr().err


def test_arrivals_need_jobs_with_different_names(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_arrivals(folder, (0, "vision"))
    assert simulate("--arrivals", "arrivals.csv", "--output", "out.csv") == 2
    assert "--arrivals names jobs: give them with --jobs FILE" in capsys.readouterr().err
    (folder / "jobs.csv").write_text(WORKLOADS + WORKLOADS.splitlines()[1] + "\n")
    assert simulate("--jobs", "jobs.csv", "--arrivals", "arrivals.csv", "--output", "out.csv") == 2
    assert "job vision is in --jobs twice" in capsys.readouterr().err


def assign(*options: str) -> int:
    traces = DATA / "zeus-traces"
    files = ("--train", str(traces / "summary_train.csv"), "--power", str(traces / "summary_power_v100.csv"))
    outputs = ("--output", "arrivals.csv", "--output-jobs", "groups.csv")
    return main(["simulate", "assign", "--jobs", "jobs.csv", *files, *outputs, *options])


def test_a_clusters_trace_is_assigned_by_duration_and_simulated(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = DATA / "cluster"
    speeds = ("--throughputs", str(cluster / "throughputs.csv"), "--gpu-model", "v100")
    assert assign("--trace", str(cluster / "2869ce.csv"), *speeds) == 0
    arrived = rows(folder / "arrivals.csv")
    assert len(arrived) == len(rows(cluster / "2869ce.csv"))
    groups = {each["job"]: each["workload"] for each in arrived}
    assert [each["job"] for each in rows(folder / "groups.csv")] == list(groups)
    means = {
        name: sum(found) / len(found)
        for name in groups
        if (found := [float(each["trace_seconds"]) for each in arrived if each["job"] == name])
    }
    order = [groups[name] for name in sorted(groups, key=means.__getitem__)]
    assert [name for name, _ in itertools.groupby(order)] == ["ranking", "vision", "language"]
    assert "ranking (" in capsys.readouterr().err
    options = ("--jobs", "groups.csv", "--arrivals", "arrivals.csv", "--policy", "zeus", "--seeds", "1")
    assert main(["simulate", *options, "--output", "out.csv"]) == 0
    found = rows(folder / "out.csv")
    assert sum(each["attempt"] == "0" for each in found) == len(arrived)
    assert any(int(each["in_flight"]) for each in found)


def test_a_trace_with_groups_and_durations_needs_no_throughputs(folder: Path) -> None:
    (folder / "trace.csv").write_text("arrival_seconds,group,duration_seconds\n0,a,10\n1,b,1000\n2,a,30\n3,c,100000\n")
    assert assign("--trace", "trace.csv") == 0
    assert [each["workload"] for each in rows(folder / "arrivals.csv")] == ["ranking", "vision", "ranking", "language"]


@pytest.mark.parametrize(
    ("trace", "options", "message"),
    [
        (
            "arrival_seconds,group,duration_seconds\n5,a,1\n4,a,1\n",
            (),
            "line 3, column arrival_seconds: found 4, which",
        ),
        ("arrival_seconds,group,duration_seconds\n5,a,0\n", (), "found '0', expected a finite number above 0"),
        (
            "arrival_seconds,model,batch_size,gpus,steps\n0,LM,5,1,9\n",
            (),
            "has steps and no durations: give --throughp",
        ),
        ("arrival_seconds,steps\n0,9\n", (), "column model: found no such column, expected the columns model, batch"),
        ("arrival_seconds,group,duration_seconds\n", (), "no row below the header"),
        ("arrival_seconds\n1\n", (), "expected one of the columns duration_seconds, steps"),
        ("arrival_seconds,group,duration_seconds\n5,a,1\n", ("--gpu-model", "v100"), "require each other"),
    ],
)
def test_an_invalid_trace_is_named_with_what_would_be_right(
    folder: Path, trace: str, options: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "trace.csv").write_text(trace)
    assert assign("--trace", "trace.csv", *options) == 2
    assert message in capsys.readouterr().err


def test_a_training_that_was_not_measured_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "trace.csv").write_text("arrival_seconds,model,batch_size,gpus,steps\n0,VGG,5,1,9\n")
    speeds = str(DATA / "cluster" / "throughputs.csv")
    assert assign("--trace", "trace.csv", "--throughputs", speeds, "--gpu-model", "v100") == 2
    assert "found VGG with batch size 5 on 1 GPUs, expected a training of" in capsys.readouterr().err
    assert assign("--trace", "trace.csv", "--throughputs", speeds, "--gpu-model", "t4") == 2
    assert "found no row of GPU model 't4', expected one of v100" in capsys.readouterr().err


@given(st.lists(st.integers(0, 60), min_size=1, max_size=9), st.integers(1, 4))
def test_clusters_are_the_best_intervals(values: list[int], count: int) -> None:
    numbers = [float(value) for value in values]
    found = clusters_of(numbers, count)

    def spread(clusters: list[int]) -> float:
        total = 0.0
        for cluster in set(clusters):
            members = [value for value, each in zip(numbers, clusters, strict=True) if each == cluster]
            mean = sum(members) / len(members)
            total += sum((member - mean) ** 2 for member in members)
        return total

    distinct = sorted(set(numbers))
    best = min(
        spread([sum(value >= bound for bound in bounds) for value in numbers])
        for bounds in itertools.combinations(distinct[1:], min(count, len(distinct)) - 1)
    )
    assert spread(found) == pytest.approx(best, abs=1e-6)
    assert [cluster for _, cluster in sorted(zip(numbers, found, strict=True))] == sorted(found)
    assert set(found) == set(range(min(count, len(distinct))))
