"""The images are as the documentation states: small, labelled, without build tools, and their programs run."""

import importlib.metadata
import json
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.images import built_images, missing_requirement
from support.images.building import NAMES, REPOSITORY
from support.images.opened_image import OpenedImage, opened

# The first of them may have to build the images.
pytestmark = [pytest.mark.node, pytest.mark.timeout(1200)]

USER = "65532:65532"
TOOLS = re.compile(r"(?:.*-)?(?:gcc|g\+\+|cc|c\+\+|clang|ld|make|pip|pip3|curl|wget|git)(?:-?[\d.]+)?")
DOCUMENTED = re.compile(r"^\| `wattloop/(\w+)` \| (\d+) MB \| (\d+) MB \|", re.MULTILINE)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, OpenedImage]]:
    if missing_requirement() is not None:
        pytest.skip(f"no images: {missing_requirement()}")
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(opened(archive, tmp_path_factory.mktemp(name)))
            for name, archive in built_images().items()
        }


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def image(images: dict[str, OpenedImage], name: str) -> OpenedImage:
    return images[name]


def files(image: OpenedImage) -> Iterator[Path]:
    for folder, _, names in os.walk(image.root):
        yield from (Path(folder, each) for each in names)


def test_an_image_runs_as_a_fixed_user_other_than_root(image: OpenedImage) -> None:
    assert image.configuration["User"] == USER
    assert image.run("id").startswith("uid=65532(wattloop) gid=65532(wattloop) ")


def test_an_image_is_labelled(image: OpenedImage, name: str) -> None:
    prefix = "org.opencontainers.image."
    labels = {
        key.removeprefix(prefix): value
        for key, value in image.configuration["Labels"].items()
        if key.startswith(prefix)
    }
    assert labels.pop("description")
    # The tests' base is an archive, which has no digest.
    assert labels.pop("base.name").startswith("docker-archive:")
    assert labels.pop("base.digest") == ""
    assert labels == {
        "title": f"wattloop {name}",
        "version": image.run("wattloop", "--version").split()[-1],
        "licenses": "Apache-2.0",
    }


def test_an_images_sbom_lists_exactly_the_installed_distributions(image: OpenedImage) -> None:
    document = json.loads((image.root / "usr/share/sbom/wattloop.cdx.json").read_text())
    (packages,) = image.root.glob("opt/wattloop/lib/python3*/site-packages")
    installed = {
        (each.metadata["Name"], each.version) for each in importlib.metadata.distributions(path=[str(packages)])
    }
    assert {(each["name"], each["version"]) for each in document["components"]} == installed


def test_an_images_output_is_unbuffered(image: OpenedImage) -> None:
    assert "PYTHONUNBUFFERED=1" in image.configuration["Env"]


def test_an_image_contains_no_compiler_installer_or_downloader(image: OpenedImage) -> None:
    programs = [path for path in files(image) if path.parent.name in {"bin", "sbin"}]
    assert len(programs) > 50
    assert [path.name for path in programs if TOOLS.fullmatch(path.name)] == []
    packages = {path.name for path in image.root.glob("**/site-packages/*")}
    assert not [each for each in packages if re.match(r"(pip|setuptools|wheel)(-|$)", each)]
    assert not (image.root / "dependencies").exists()


def test_an_images_dependencies_have_bytecode_and_no_tests(image: OpenedImage) -> None:
    (packages,) = image.root.glob("opt/wattloop/lib/python3*/site-packages")
    assert [path for path in packages.glob("**/tests") if path.is_dir()] == []
    assert (packages / "wattloop" / "__pycache__").is_dir()


def test_only_root_can_change_an_images_programs(image: OpenedImage) -> None:
    ours = [path for path in files(image) if path.is_relative_to(image.root / "opt") and not path.is_symlink()]
    assert ours
    assert [path for path in ours if path.stat().st_mode & 0o022 or path.stat().st_uid != 0] == []


def test_an_image_is_no_larger_than_documented(image: OpenedImage, name: str) -> None:
    text = (REPOSITORY / "docs" / "internals" / "architecture.md").read_text(encoding="utf-8")
    documented = {found[1]: (int(found[2]), int(found[3])) for found in DOCUMENTED.finditer(text)}
    whole_mb, ours_mb = documented[name]
    assert sum(image.layer_bytes) / 1e6 <= whole_mb
    assert sum(image.layer_bytes[1:]) / 1e6 <= ours_mb


@pytest.mark.parametrize(
    ("name", "command"),
    [("operator", "operator"), ("operator", "history"), ("ui", "ui-server"), ("agent", "agent"), ("agent", "monitor")],
)
def test_an_images_commands_have_all_dependencies(images: dict[str, OpenedImage], name: str, command: str) -> None:
    assert images[name].configuration["Entrypoint"] == ["wattloop"]
    assert f"usage: wattloop {command}" in images[name].run("wattloop", command, "--help")


def test_the_planners_extensions_are_in_the_operators_image(images: dict[str, OpenedImage]) -> None:
    images["operator"].run(
        "python",
        "-c",
        "from wattloop_planner.frequency import _parametric_flow, _rounding; "
        "from wattloop_planner.bandit import _cost_model",
    )


def test_the_example_trains_without_the_packages_of_operator_and_agent(images: dict[str, OpenedImage]) -> None:
    image = images["digits"]
    assert image.configuration["WorkingDir"] == "/opt/digits"
    assert "epoch 60 batch_size 1024 accuracy=0.9" in image.run(*image.configuration["Cmd"])
    (packages,) = image.root.glob("opt/wattloop/lib/python3*/site-packages")
    assert not any((packages / each).exists() for each in ("kubernetes", "sqlalchemy", "h2", "pynvml.py"))
