"""Each example of docs/file-formats.md is complete: its command runs on the files above it."""

import re
import shlex
from pathlib import Path

import pytest

from wattloop.commands.main import main

PAGE = (Path(__file__).parents[3] / "docs" / "file-formats.md").read_text(encoding="utf-8")
FILES = re.findall(r"^```(?:csv|json) (\S+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
COMMANDS = re.findall(r"^```\nwattloop (.*?)\n```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_command_of_an_example_reads_the_files_of_the_page(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in FILES:
        Path(name).write_text(text)
    words = shlex.split(command.replace("\\\n", " "))
    assert main(words) == 0
    output = Path(words[words.index("--output") + 1])
    assert output.is_dir() or len(output.read_text().splitlines()) > 2


def test_the_page_has_an_example_of_each_command() -> None:
    assert {command.partition(" ")[0] for command in COMMANDS} == {"simulate", "replay", "plan"}
    assert len(COMMANDS) == 7
