"""Completion of `wattloop`: the words that a script asks for, and real shells that ask."""

import os
import shutil
import subprocess
import sysconfig
from collections.abc import Sequence
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from wattloop.commands.completion import SCRIPTS, completed
from wattloop.commands.contract import GROUP
from wattloop.commands.main import SERVICES, main

SCRIPTS_FOLDER = Path(sysconfig.get_path("scripts"))
# Calls the function as Readline does, and prints its answer.
COMPLETE_IN_BASH = """\
source <(wattloop completion bash)
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_wattloop wattloop "${@: -1}" "${@: -2:1}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


def test_every_subcommand_and_its_options_are_completed() -> None:
    names = {entry.name for entry in entry_points(group=GROUP)}
    assert completed([""]) == ([*sorted(names - SERVICES.keys()), "--help", "--version"], False)
    for name in names:
        assert "--help" in completed([name, "--"])[0], name


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["hi"], (["history"], False)),
        (["history", "--for"], (["--format"], False)),
        (["history", "--format", ""], (["table", "csv", "json", "focus"], False)),
        (["history", "--format=j"], (["--format=json"], False)),
        # As bash splits it.
        (["history", "--format", "="], (["table", "csv", "json", "focus"], False)),
        (["history", "--format", "=", "c"], (["csv"], False)),
        (["history", "digits", "--namespace", ""], ([], False)),
        (["history", "digits", "--output", ""], ([], True)),
        (["validate", ""], ([], True)),
        (["validate", "one.yaml", ""], ([], True)),
        (["convert", "one.yaml", ""], ([], False)),
        (["plan", "ch"], (["choose"], False)),
        (["plan", "choose", "--dead"], (["--deadline"], False)),
        (["no-such-command", ""], ([], False)),
        (["--help", ""], ([], False)),
    ],
)
def test_words_are_completed(words: Sequence[str], expected: tuple[list[str], bool]) -> None:
    assert completed(words) == expected


def test_the_answer_has_the_form_that_kubectl_reads(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "words", "--", "history", "--format", ""]) == 0
    assert capsys.readouterr().out == "table\ncsv\njson\nfocus\n:4\n"
    assert main(["completion", "words", "--", "validate", "x"]) == 0
    assert capsys.readouterr().out == ":0\n"


ENVIRONMENT = {**os.environ, "PATH": f"{SCRIPTS_FOLDER}:{os.environ['PATH']}", "TERM": "dumb"}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["wattloop", "hist"], "history\n"),
        (["wattloop", "history", "--format", "=", "c"], "csv\n"),
        (["wattloop", "plan", "choose", "--deadl"], "--deadline\n"),
        (["wattloop", "history", "--namespace", ""], "\n"),
    ],
)
def test_a_real_bash_completes_a_command_line(words: list[str], expected: str) -> None:
    command = ["bash", "--norc", "--noprofile", "-c", COMPLETE_IN_BASH, "bash", *words]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, env=ENVIRONMENT)
    assert (ran.stdout, ran.stderr) == (expected, "")


def test_a_real_bash_completes_names_of_files_where_they_fit(tmp_path: Path) -> None:
    (tmp_path / "nightly.yaml").touch()
    script = "source <(wattloop completion bash)\n"
    keys = f"cd {tmp_path}\nwattloop validate nigh\t; exit\n"
    rc = tmp_path / "rc"
    rc.write_text(script)
    # A terminal, so that Readline completes; the command that it has completed says what it got.
    command = ["script", "--quiet", "--return", "--command", f"bash --noprofile --rcfile {rc} -i", "/dev/null"]
    ran = subprocess.run(command, input=keys, capture_output=True, text=True, check=False, env=ENVIRONMENT)
    assert "nightly.yaml: found no manifest" in ran.stdout


@pytest.mark.parametrize("shell", sorted(SCRIPTS))
def test_each_shell_accepts_its_script(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    assert main(["completion", shell]) == 0
    script = tmp_path / "script"
    script.write_text(capsys.readouterr().out, encoding="utf-8")
    subprocess.run([shell, "-n", str(script)], check=True)
