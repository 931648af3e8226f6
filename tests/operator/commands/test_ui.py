"""`wattloop ui` and `wattloop history --jobs`: which database they read, and who may reach the page."""

import csv
import io
import json
import re
import signal
import subprocess
import sysconfig
from pathlib import Path

import httpx
import pytest

from support.databases.many_jobs import LONGEST, NAMESPACE, RUNNING, make_database, running_recurrence
from wattloop.commands.main import main

WATTLOOP = Path(sysconfig.get_path("scripts"), "wattloop")


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


def test_a_cluster_that_cannot_be_read_as_asked_is_an_error_that_names_the_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ui", "--database", str(tmp_path), "-n", "research"]) == 2
    assert "--namespace: not with --database" in capsys.readouterr().err
    assert main(["ui", "--forward", "--bind", "127.0.0.2:8790"]) == 2
    assert "answers to localhost, 127.0.0.1, ::1 alone" in capsys.readouterr().err
    assert main(["ui", "--kubeconfig", str(tmp_path / "missing")], "kubectl wattloop") == 1
    assert "no cluster: " in capsys.readouterr().err


def test_the_jobs_of_a_database_are_listed_in_every_format(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_database(tmp_path / "wattloop.db", 2, 2).close()
    command = ["history", "--database", str(tmp_path), "--jobs"]
    assert main(command) == 0
    assert "31 % less (25 to 36)" in capsys.readouterr().out
    assert main([*command, "--format", "json"]) == 0
    first, _ = json.loads(capsys.readouterr().out)
    assert (first["job"], first["saved_energy_joules"]) == ("job-0000", 1200.5)
    assert first["high_saved_energy_joules"] == 1600.75
    assert main([*command, "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [(row["job"], row["outcome"]) for row in rows] == [("job-0000", "reached"), ("job-0001", "reached")]


def test_a_month_and_the_gpus_of_a_database_are_listed_in_every_format(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with make_database(tmp_path / "wattloop.db", 2, 2) as store:
        body = running_recurrence(LONGEST, powerLimitWatts=200)
        store.objects.create("TrainingRecurrence", NAMESPACE, RUNNING, body)
    command = ["history", "--database", str(tmp_path)]
    assert main([*command, "--month", "2026-03"]) == 0
    assert "energy (kJ)" in capsys.readouterr().out
    assert main([*command, "--month", "2026-03", "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [(row["job"], row["attempts"], row["money_amount"]) for row in rows] == [
        ("job-0000", "2", ""),
        ("job-0001", "2", ""),
    ]
    assert main([*command, "--month", "2026-03", "--format", "focus"]) == 0
    charges = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert [charge["ResourceId"] for charge in charges] == ["team/job-0000", "team/job-0001"]
    assert main([*command, "--gpus", "--format", "focus"]) == 2
    capsys.readouterr()
    assert main([*command, "--gpus"]) == 0
    assert "the attempt ends" in capsys.readouterr().out
    assert main([*command, "--gpus", "--format", "json"]) == 0
    (gpu,) = json.loads(capsys.readouterr().out)
    assert (gpu["gpus"], gpu["mean_power_watts"], gpu["limit_watts"], gpu["until"]) == (1, 250.0, 200, None)


@pytest.mark.parametrize(
    "words",
    [
        *(["--jobs"], ["digits", "--database", "x", "--jobs"], ["--database", "x"], ["--jobs", "--context", "c"], []),
        *(["--gpus"], ["--month", "2026-03"], ["--database", "x", "--month", "2026-03", "--uid", "y"]),
    ],
)
def test_a_list_of_jobs_needs_a_database_and_a_history_a_job(words: list[str]) -> None:
    assert main(["history", *words]) == 2


@pytest.mark.processes
def test_the_command_serves_until_it_is_asked_to_end_and_says_that_an_address_is_taken(tmp_path: Path) -> None:
    make_database(tmp_path / "wattloop.db", 1, 1).close()
    command = [WATTLOOP, "ui", "--database", tmp_path, "--bind"]
    with subprocess.Popen([*command, "127.0.0.1:0"], stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            line = server.stderr.readline()
            found = re.search(r"live page at http://(\S+)", line)
            assert found is not None, line
            assert httpx.get(f"http://{found[1]}/healthz", timeout=60).status_code == 204
            second = subprocess.run([*command, found[1]], capture_output=True, text=True, check=False)
            assert second.returncode == 1
            assert f"cannot listen on {found[1]}" in second.stderr
            assert "choose another address" in second.stderr
            server.send_signal(signal.SIGTERM)
            assert server.wait(60) == 130
            assert server.stderr.read() == "wattloop ui: interrupted\n"
        finally:
            server.kill()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["wattloop.db"]
