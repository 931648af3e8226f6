"""Every manifest of tests/manifests gets the verdict that it was written for; tests/cluster/api asks the API server."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from wattloop.commands.main import main

MANIFESTS = Path(__file__).parents[2] / "manifests"
ACCEPTED = sorted(MANIFESTS.glob("accepted/*.yaml"))
REFUSED = sorted(MANIFESTS.glob("refused/*.yaml"))


def test_there_are_manifests_of_both_kinds() -> None:
    assert len(ACCEPTED) >= 25
    assert len(REFUSED) >= 75


@pytest.mark.parametrize("path", ACCEPTED, ids=lambda path: path.stem)
def test_a_right_manifest_is_accepted(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["validate", str(path)])
    lines = capsys.readouterr().out.splitlines()
    assert code == 0, lines
    assert any(line.endswith(": valid") or ": valid, but not supported: " in line for line in lines)


@pytest.mark.parametrize("path", REFUSED, ids=lambda path: path.stem)
def test_a_wrong_manifest_is_refused_with_place_found_and_expected(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = re.findall(r"^# expect: (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    assert expected, "the manifest does not say what is expected"
    code = main(["validate", str(path)])
    out = capsys.readouterr().out
    assert code == 2
    for fragment in expected:
        assert fragment in out
    assert all(re.match(rf"{re.escape(str(path))}:\d+:\d+: .*found .+, expected .+", line) for line in out.splitlines())
