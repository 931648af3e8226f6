"""The SBOM of an image lists exactly the installed distributions, the same at each build."""

import importlib.util
import json
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

from support.images.building import BUILD

DIGEST = "sha256:" + "0" * 64


@pytest.fixture(scope="module")
def build() -> ModuleType:
    specification = importlib.util.spec_from_file_location("images_build", BUILD)
    module = importlib.util.module_from_spec(specification)
    # Its dataclasses look themselves up there.
    sys.modules["images_build"] = module
    specification.loader.exec_module(module)
    return module


def put_wheel(folder: Path, name: str, version: str, *needs: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    metadata = [
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}",
        *(f"Requires-Dist: {need}" for need in needs),
    ]
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}.py", "")
        wheel.writestr(f"{info}/METADATA", "\n".join(metadata) + "\n")
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")


def context_of(folder: Path) -> Path:
    """A build context with one distribution for the agent, one for another image, and one that no image needs."""
    put_wheel(folder / "dependencies", "direct", "1.2", "indirect>=3")
    put_wheel(folder / "dependencies", "indirect", "3.4")
    put_wheel(folder / "dependencies", "unneeded", "9.9")
    (folder / "dependencies" / "agent.txt").write_text("direct>=1\n")
    put_wheel(folder / "wattloop", "wattloop", "0.1.0")
    (folder / "sbom").mkdir()
    return folder


def test_the_sbom_lists_exactly_the_installed_distributions_reproducibly(build: ModuleType, tmp_path: Path) -> None:
    texts = [
        build.write_sbom(context_of(tmp_path / each), build.IMAGES["agent"]).read_text() for each in ("first", "second")
    ]
    assert texts[0] == texts[1]
    document = json.loads(texts[0])
    assert document["bomFormat"] == "CycloneDX"
    found = {component["name"]: component["version"] for component in document["components"]}
    assert found == {"direct": "1.2", "indirect": "3.4", "wattloop": "0.1.0"}
    assert str(tmp_path) not in texts[0]
    depends = {each["ref"]: each.get("dependsOn", []) for each in document["dependencies"]}
    assert depends["direct==1.2"] == ["indirect==3.4"]


@pytest.mark.parametrize(
    ("base", "digest"), [(f"python@{DIGEST}", DIGEST), ("python:3.11-slim", ""), ("python@sha256:1", "")]
)
def test_a_base_is_named_by_digest_or_by_tag(base: str, digest: str, build: ModuleType) -> None:
    assert build.digest_of(base) == digest


def test_a_base_by_tag_is_rejected_if_a_digest_is_required(
    build: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["build.py", "--require-digest", "--base", "python:3.11-slim", "agent"])
    with pytest.raises(SystemExit):
        build.main()
    assert "--base: the base python:3.11-slim is named by a tag" in capsys.readouterr().err


def test_the_built_images_are_recorded(build: ModuleType, tmp_path: Path) -> None:
    context = context_of(tmp_path / "context")
    (context / "sbom" / "agent.cdx.json").write_text("{}")
    built = [{"name": "wattloop/agent", "tag": "1", "id": DIGEST, "base": f"python@{DIGEST}"}]
    build.write_output(tmp_path / "out", context, [build.IMAGES["agent"]], built)
    assert json.loads((tmp_path / "out" / "images.json").read_text()) == built
    assert (tmp_path / "out" / "agent.cdx.json").read_text() == "{}"
