"""Control characters in what a command is given reach no terminal, whatever the command writes."""

import contextlib
from pathlib import Path

import pytest

from wattloop.commands.main import main

# Clears a terminal, and turns the direction of writing; as a manifest has them in a name, a value and a comment.
CRON_JOB = r"""
apiVersion: batch/v1
kind: CronJob
metadata: {name: "a\e[2J\u202e"}
spec:
  schedule: "0 3 * * *"
  "b\e[2J": "c\e[2J"
  jobTemplate:
    spec:
      "d\x9b2J": 1
      template:
        spec:
          containers:
            - {name: train, image: i, "e\e[2J": 1, command: [python, "f\e[2J", --batch-size, "32"]}
"""


NAME = "\x1b[2J"
COMMANDS = (["convert"], ["convert", "--metric", NAME], ["validate"], ["logs", "--metric", NAME], ["run"])


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_command_writes_a_control_character_of_what_it_is_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    path = tmp_path / f"job{NAME}.yaml"
    path.write_text(CRON_JOB)
    with contextlib.suppress(SystemExit):
        main([*command, str(path)])
    written = "".join(capsys.readouterr())
    assert "\\x1b[2J" in written
    assert all(each.isprintable() or each == "\n" for each in written)
