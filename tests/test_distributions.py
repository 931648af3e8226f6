"""What `make dist` builds contains the product, and no more; what is missing after it is named with its origin."""

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
import yaml

from wattloop.installation import how_to_install

ROOT = Path(__file__).parents[1]
ROOTS = ("client", "operator", "agent", "planner", "research", "simulator")
VERSION = "0.1.0"
REGISTRY = "registry.example:5000/team"
SCRIPT = ROOT / "images" / "distributions.py"
# A builder of images: writes what it is called with, and an image's id where it is asked for one.
BUILDER = """\
#!/bin/sh
echo "$@" >> "$0.calls"
while [ $# -gt 0 ]; do [ "$1" = --iidfile ] && echo sha256:0 > "$2"; shift; done
"""


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, str(SCRIPT), "--output", str(folder), "--registry", REGISTRY]
    subprocess.run(command, check=True, capture_output=True)
    return folder


def wheel_of(folder: Path) -> Path:
    (wheel,) = folder.glob("wattloop-*.whl")
    return wheel


def test_the_wheel_has_the_modules_of_the_tree_and_what_they_read(dist: Path) -> None:
    tree = {
        path.relative_to(ROOT / root).as_posix()
        for root in ROOTS
        for path in (ROOT / root).rglob("*")
        if path.is_file()
        and "__pycache__" not in path.parts
        and (path.suffix in {".py", ".pyi", ".typed", ".mako"} or path.parent.name in {"src", "templates", "static"})
    }
    with zipfile.ZipFile(wheel_of(dist)) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert tree <= names
    extensions = {"_cost_model.abi3.so", "_parametric_flow.abi3.so", "_rounding.abi3.so"}
    assert {Path(name).name for name in names - tree} == extensions


def test_the_source_archive_has_no_tests_and_no_caches(dist: Path) -> None:
    with tarfile.open(dist / f"wattloop-{VERSION}.tar.gz") as archive:
        folders = {Path(name).parts[1] for name in archive.getnames() if len(Path(name).parts) > 2}
    assert folders == {*ROOTS, "wattloop.egg-info"}


def test_chart_and_example_name_the_images_that_are_pushed(dist: Path, tmp_path: Path) -> None:
    builder = tmp_path / "builder"
    builder.write_text(BUILDER)
    builder.chmod(0o755)
    (tmp_path / "context" / "wattloop").mkdir(parents=True)
    words = ["--builder", str(builder), "--context", str(tmp_path / "context"), "--registry", REGISTRY]
    subprocess.run([sys.executable, str(ROOT / "images" / "build.py"), *words], check=True, capture_output=True)
    calls = Path(f"{builder}.calls").read_text().splitlines()
    pushed = {call.split()[1] for call in calls if call.startswith("push ")}
    with tarfile.open(dist / f"wattloop-chart-{VERSION}.tgz") as chart:
        values = yaml.safe_load(chart.extractfile("wattloop/values.yaml") or b"")
        version = yaml.safe_load(chart.extractfile("wattloop/Chart.yaml") or b"")["appVersion"]
    job = yaml.safe_load((dist / "digits.yaml").read_text())
    (container,) = job["spec"]["template"]["spec"]["template"]["spec"]["containers"]
    services = {f"{values[part]['image']['repository']}:{version}" for part in ("operator", "ui", "agent")}
    assert pushed == {*services, container["image"]}
    assert all(each.startswith(f"{REGISTRY}/wattloop/") for each in pushed)


def test_the_client_alone_names_the_command_that_adds_what_wattloop_run_needs(dist: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=False)
    python = str(tmp_path / "venv" / "bin" / "python")
    install = ["install", "--quiet", "--no-deps", "--no-index", str(wheel_of(dist))]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python]
    subprocess.run([*pip, *install], check=True, capture_output=True)
    program = str(tmp_path / "venv" / "bin" / "wattloop")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ran = subprocess.run([program, "run", "job.yaml"], env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert ran.stderr.startswith("wattloop run: needs the module ")
    # Without pip in that environment, uv installs.
    command = f"uv pip install --python {python} 'wattloop[operator] @ file://{wheel_of(dist)}'"
    assert ran.stderr.endswith(f"; install it with: {command}\n")


def test_this_environment_names_its_own_origin() -> None:
    assert "--editable" in how_to_install("operator")
    assert f"{ROOT}[operator]" in how_to_install("operator")


def test_no_page_and_no_message_installs_wattloop_from_an_index() -> None:
    listed = subprocess.run(["git", "ls-files", "*.md", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True)
    pages = [name for name in listed.stdout.split() if not name.startswith("tests/") and (ROOT / name).is_file()]
    wrong = [
        f"{name}: {line.strip()}"
        for name in pages
        for line in (ROOT / name).read_text(encoding="utf-8").splitlines()
        if "pip install wattloop" in line or "pip install 'wattloop" in line
    ]
    assert wrong == []
