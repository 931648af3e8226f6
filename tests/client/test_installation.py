"""Messages name an installation's own origin, never a package index that does not have Wattloop."""

import json
import shlex
import sys
from pathlib import Path

import pytest

from wattloop.installation import how_to_install

PIP = f"{shlex.quote(sys.executable)} -m pip install"


def recorded(folder: Path, monkeypatch: pytest.MonkeyPatch, origin: str | None) -> None:
    """An installation of Wattloop whose installer recorded this origin."""
    installed = folder / "site" / "wattloop-9.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: wattloop\nVersion: 9\n")
    if origin is not None:
        (installed / "direct_url.json").write_text(origin)
    monkeypatch.syspath_prepend(str(installed.parent))


@pytest.mark.parametrize(
    ("origin", "arguments"),
    [
        ({"dir_info": {}, "url": "file://{}/my%20clone"}, ["{}/my clone[operator]"]),
        ({"dir_info": {"editable": True}, "url": "file://{}/my%20clone"}, ["--editable", "{}/my clone[operator]"]),
        ({"archive_info": {}, "url": "file://{}/a.whl"}, ["wattloop[operator] @ file://{}/a.whl"]),
        ({"archive_info": {}, "url": "https://example.org/a.whl"}, ["wattloop[operator] @ https://example.org/a.whl"]),
        (
            {"vcs_info": {"vcs": "git", "commit_id": "4b43053"}, "url": "https://example.org/w"},
            ["wattloop[operator] @ git+https://example.org/w@4b43053"],
        ),
    ],
)
def test_an_extra_is_installed_from_where_the_installation_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, origin: dict[str, object], arguments: list[str]
) -> None:
    (tmp_path / "my clone").mkdir()
    (tmp_path / "a.whl").touch()
    recorded(tmp_path, monkeypatch, json.dumps(origin).replace("{}/", f"{tmp_path}/"))
    expected = " ".join(shlex.quote(each.replace("{}", str(tmp_path))) for each in arguments)
    assert how_to_install("operator") == f"install it with: {PIP} {expected}"


@pytest.mark.parametrize("origin", [None, "", "[]", "{", '{"dir_info": {}, "url": "file:///no/such/folder"}'])
def test_an_installation_of_unknown_or_removed_origin_names_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, origin: str | None
) -> None:
    recorded(tmp_path, monkeypatch, origin)
    message = how_to_install("operator")
    assert message == (
        f"install the extra [operator] of Wattloop for {sys.executable} from a clone or a wheel (README.md, Install)"
    )
    assert "\n## Install\n" in (Path(__file__).parents[2] / "README.md").read_text()


def test_the_client_alone_is_installed_for_another_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded(tmp_path, monkeypatch, json.dumps({"dir_info": {}, "url": f"file://{tmp_path}"}))
    assert (
        how_to_install(python="/opt/py/bin/python") == f"install it with: /opt/py/bin/python -m pip install {tmp_path}"
    )
