"""Each row of docs/coming-from.md is run: here on small inputs, by another test that is named, or not, for a reason."""

from pathlib import Path

import pytest

from support.coming_from.merak import WAYS as MERAK
from support.coming_from.other_systems import BASSOON, NOTEBOOK, ZEUS
from support.coming_from.perseus import WAYS as PERSEUS
from support.coming_from.ways import ROOT, Elsewhere, Reason, Way, rows_of, way_of
from support.coming_from.workspace import write_workspace

SYSTEMS: dict[str, dict[str, Way]] = {
    "Perseus and Lowtime": PERSEUS,
    "Merak": MERAK,
    "Automatic Bassoon": BASSOON,
    "Zeus": ZEUS,
    "The notebook": NOTEBOOK,
}
ROWS = [(system, theirs) for system in SYSTEMS for theirs, _ in rows_of(system)]


@pytest.mark.parametrize("system", SYSTEMS)
def test_each_row_has_one_way_and_each_way_a_row(system: str) -> None:
    found = {theirs: way_of(theirs, SYSTEMS[system]) for theirs, _ in rows_of(system)}
    assert [theirs for theirs, keys in found.items() if not keys] == []
    keys = [key for each in found.values() for key in each]
    assert sorted(keys) == sorted(SYSTEMS[system])


@pytest.mark.parametrize(("system", "theirs"), ROWS, ids=lambda value: value.replace("`", "")[:60])
def test_what_a_row_names_runs(
    system: str, theirs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (key,) = way_of(theirs, SYSTEMS[system])
    way = SYSTEMS[system][key]
    if isinstance(way, Elsewhere):
        file, _, name = way.test.partition("::")
        assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), way.test
    elif isinstance(way, Reason):
        with capsys.disabled():
            print(f"\n{system}, {key}: not run: {way.text}")
    else:
        monkeypatch.chdir(tmp_path)
        write_workspace(tmp_path)
        way(tmp_path)
