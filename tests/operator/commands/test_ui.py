"""`wattloop ui` and `wattloop history --jobs`: which database they read, and who may reach the page."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from support.databases.many_jobs import make_database
from wattloop.commands.main import main


@pytest.mark.parametrize("bind", ["0.0.0.0:8790", "[::]:8790", "192.0.2.1:8790", "example.org:8790", "127.0.0.1"])
def test_an_address_that_others_reach_is_a_usage_error(bind: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["ui", "--bind", bind])
    assert ended.value.code == 2
    assert "expected an address of this machine alone" in capsys.readouterr().err


def test_without_a_database_the_message_says_how_to_make_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["ui"]) == 2
    assert "name one with --database, or make one with wattloop run" in capsys.readouterr().err
    assert main(["ui", "--database", "none"]) == 1


def test_the_jobs_of_a_database_are_listed_in_every_format(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_database(tmp_path / "wattloop.db", 2, 2).close()
    command = ["history", "--database", str(tmp_path), "--jobs"]
    assert main(command) == 0
    assert "31 % less (25 to 36)" in capsys.readouterr().out
    assert main([*command, "--format", "json"]) == 0
    first, _ = json.loads(capsys.readouterr().out)
    assert (first["job"], first["saved_joules"], first["high_saved_joules"]) == ("job-0000", 1200.5, 1600.75)
    assert main([*command, "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [(row["job"], row["outcome"]) for row in rows] == [("job-0000", "reached"), ("job-0001", "reached")]


@pytest.mark.parametrize(
    "words",
    [["--jobs"], ["digits", "--database", "x", "--jobs"], ["--database", "x"], ["--jobs", "--context", "c"], []],
)
def test_a_list_of_jobs_needs_a_database_and_a_history_a_job(words: list[str]) -> None:
    assert main(["history", *words]) == 2
