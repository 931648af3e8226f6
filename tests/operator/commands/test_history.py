"""`wattloop history` and `wattloop plot` on a database: rows, plots, and errors."""

import csv
import dataclasses
import io
import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from support.databases.sample_record import RECORD
from wattloop.commands.main import main
from wattloop_operator.history.cost_history import UNKNOWN_WEIGHT
from wattloop_operator.store import PowerMeasurement, PowerProfileKey, Store, open_store

# As `wattloop run` stores it beside the observations.
JOB: dict[str, Any] = {
    "apiVersion": "wattloop.dev/v1alpha1",
    "kind": "RecurringTrainingJob",
    "metadata": {"name": "digits", "namespace": "team", "uid": RECORD.job_uid},
    "spec": {
        "objective": {"energyWeightPercent": 100, "target": {"metric": "accuracy", "threshold": "0.97"}},
        "batchSize": {"default": 32, "candidates": [32, 64]},
        "template": {
            "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "b"}]}}}
        },
    },
}


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'wattloop.db'}"


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with open_store(url) as opened:
        opened.observations.record(RECORD)
        opened.observations.record(
            dataclasses.replace(RECORD, recurrence=1, batch_size=64, energy_joules=1000.0, recurrence_name="digits-1")
        )
        yield opened


@pytest.fixture
def job(store: Store) -> None:
    store.objects.create("RecurringTrainingJob", "team", "digits", JOB)


@pytest.mark.usefixtures("job")
def test_costs_use_the_weight_and_the_default_batch_size_of_the_job(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["history", "digits", "--database", url, "--format", "csv"]) == 0
    output = capsys.readouterr()
    rows = list(csv.DictReader(io.StringIO(output.out)))
    assert [(row["cost_joules"], row["default_cost_joules"]) for row in rows] == [("2000", "2000"), ("1000", "2000")]
    assert "In all, learning included, one recurrence used 1 kJ less (0." in output.err
    assert "Not counted in it: one recurrence in the default configuration." in output.err


@pytest.mark.usefixtures("store")
def test_without_the_job_energies_are_shown_and_no_cost(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", "digits", "--database", url, "--format", "json"]) == 0
    output = capsys.readouterr()
    rows = json.loads(output.out)
    assert [row["energy_joules"] for row in rows] == [2000.0, 1000.0]
    assert {(row["cost_joules"], row["default_cost_joules"]) for row in rows} == {(None, None)}
    assert output.err.startswith(UNKNOWN_WEIGHT)


@pytest.mark.parametrize("mode", ["Advise", "Optimize"])
def test_the_advice_of_a_job_in_mode_advise_follows_the_saving(
    store: Store, url: str, mode: str, capsys: pytest.CaptureFixture[str]
) -> None:
    saving = {"savingPercent": "50", "lowSavingPercent": "40", "highSavingPercent": "55"}
    advice = {"batchSize": 64, "powerLimitWatts": 250, **saving, "reason": "it is cheapest"}
    job = {**JOB, "spec": {**JOB["spec"], "mode": mode}, "status": {"next": advice}}
    store.objects.create("RecurringTrainingJob", "team", "digits", job)
    assert main(["history", "digits", "--database", url]) == 0
    text = (
        "Mode Advise: every run has the default configuration. Advised is batch size 64 at 250 W, expected to "
        "cost 50 % less (40 to 55) (it is cheapest)."
    )
    assert (text in capsys.readouterr().err) == (mode == "Advise")


@pytest.mark.usefixtures("job")
def test_the_default_format_is_a_table_and_any_format_can_be_written_to_a_file(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["history", "digits", "--database", url]) == 0
    assert "every batch size is tried" in capsys.readouterr().out
    assert main(["history", "digits", "--database", url, "--format", "csv", "--output", str(tmp_path / "h.csv")]) == 0
    assert capsys.readouterr().out == ""
    assert (tmp_path / "h.csv").read_text().startswith("recurrence,attempt,batch_size,")


@pytest.mark.usefixtures("job")
def test_plot_writes_both_plots_to_a_folder_that_it_creates(url: str, store: Store, tmp_path: Path) -> None:
    key = PowerProfileKey(RECORD.job_uid, 32, "NVIDIA A40", 1)
    store.profiles.record(key, [PowerMeasurement(limit, 50.0, 300 / limit, 0.25) for limit in (100.0, 300.0)])
    folder = tmp_path / "new" / "plots"
    assert main(["plot", "digits", "--database", url, "--output", str(folder)]) == 0
    assert sorted(path.name for path in folder.iterdir()) == ["cost.png", "tradeoff.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in folder.iterdir())


@pytest.mark.usefixtures("job")
def test_a_job_that_is_created_again_with_its_name_is_another_job(
    url: str, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    later = dataclasses.replace(
        RECORD, job_uid="later", batch_size=64, finished_at=RECORD.finished_at + timedelta(days=1)
    )
    store.observations.record(later)
    arguments = ["history", "digits", "--database", url, "--format", "csv"]
    assert main(arguments) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert main([*arguments, "--uid", "0c3b2d9e"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3


@pytest.mark.usefixtures("store")
def test_a_missing_job_is_reported_with_the_existing_jobs(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", "letters", "--database", url]) == 2
    assert "there are no recurrences of a job letters; jobs with recurrences: team/digits" in capsys.readouterr().err


def test_a_name_in_two_namespaces_needs_the_option_namespace(
    url: str, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    store.observations.record(dataclasses.replace(RECORD, job_uid="uid-2", namespace="other"))
    assert main(["history", "digits", "--database", url]) == 2
    assert "choose with --namespace: other/digits, team/digits" in capsys.readouterr().err
    assert main(["history", "digits", "--database", url, "--namespace", "other", "--format", "csv"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_a_job_that_this_version_cannot_parse_is_named_and_its_attempts_are_shown(
    url: str, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    store.objects.create("RecurringTrainingJob", "team", "digits", {**JOB, "spec": {}})
    assert main(["history", "digits", "--database", url]) == 1
    written = capsys.readouterr()
    assert "RecurringTrainingJob team/digits: found an object that this version" in written.err
    assert "reached" in written.out


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [(["--output", "missing/history.csv"], 1, "name a file in an existing, writable folder")],
)
def test_wrong_usage_is_reported_with_the_expected_value(
    url: str, arguments: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["history", "digits", "--database", url, *arguments]) == code
    assert message in capsys.readouterr().err


def test_a_folder_that_does_not_exist_is_not_looked_for_in_a_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", "wattloop-output/none"]) == 2
    assert "wattloop-output/none is no output folder of wattloop run" in capsys.readouterr().err


def test_a_uid_without_a_database_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", "digits", "--uid", "0c3b2d9e"]) == 2
    assert "add --database DATABASE" in capsys.readouterr().err


def test_a_missing_database_is_not_created(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", "digits", "--database", f"sqlite:///{tmp_path / 'typo.db'}"]) == 1
    assert "the file does not exist" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("job")
def test_a_folder_that_cannot_be_created_is_reported(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert main(["plot", "digits", "--database", url, "--output", str(tmp_path / "file" / "plots")]) == 1
    assert "cannot create the output folder" in capsys.readouterr().err


@pytest.mark.usefixtures("job")
def test_an_output_folder_names_its_database_and_its_only_job(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path.parent)
    assert main(["history", "digits", "--database", url, "--format", "csv"]) == 0
    expected = capsys.readouterr().out
    for words in (
        ["digits", "--database", str(tmp_path)],
        ["digits", "--database", str(tmp_path / "wattloop.db")],
        ["digits", "--database", tmp_path.name],
        [str(tmp_path)],
        [tmp_path.name, "--namespace", "team"],
    ):
        assert main(["history", *words, "--format", "csv"]) == 0
        assert capsys.readouterr().out == expected
    assert main(["plot", tmp_path.name, "--output", str(tmp_path)]) == 0
    assert (tmp_path / "cost.png").exists()


def test_a_folder_of_several_jobs_needs_a_name(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store.observations.record(dataclasses.replace(RECORD, job_name="letters", job_uid="other", recurrence_name="x"))
    assert main(["history", str(tmp_path)]) == 2
    assert "there are several jobs; name one, with --database: team/digits, team/letters" in capsys.readouterr().err


def test_a_folder_without_a_database_says_which_file_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["history", "digits", "--database", str(tmp_path)]) == 1
    assert f"{tmp_path}/wattloop.db: the file does not exist" in capsys.readouterr().err


@pytest.mark.usefixtures("store")
def test_the_gpus_in_an_operators_database_are_unknown_and_no_empty_list(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["history", "--database", url, "--gpus"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "kubectl wattloop ui shows them" in captured.err
