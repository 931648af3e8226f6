#!/usr/bin/env python3
"""Builds what is installed elsewhere: source archive, wheel, chart package, and the example that uses the image.

Run it with the Python of `make install`, which has setuptools. Needs a C compiler for the planner's extensions:

    .venv/bin/python images/distributions.py
    .venv/bin/python images/distributions.py --registry registry.example/team --output /tmp/dist
"""

from __future__ import annotations

import argparse
import fnmatch
import gzip
import io
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

from build import REPOSITORY, SOURCES, copy_source, image_name, pip_wheel, project

CHART = REPOSITORY / "helm" / "wattloop"
EXAMPLE = REPOSITORY / "examples" / "digits" / "job.yaml"
# Host and path, as in an image's reference.
REGISTRY = re.compile(r"[a-z0-9.-]+(:[0-9]+)?(/[a-z0-9._-]+)*")
BUILD_SDIST = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"


def build_archives(folder: Path) -> None:
    """Builds the source archive, and the wheel from it, so that one lacks nothing that the other has.

    Raises:
        subprocess.CalledProcessError: A build failed; it has said why.
    """
    with tempfile.TemporaryDirectory(prefix="wattloop-sources-") as sources:
        # From a copy: a build folder of an earlier version in the tree would add its modules.
        for name in (*SOURCES, "LICENSE"):
            copy_source(REPOSITORY / name, Path(sources) / name)
        command = [sys.executable, "-c", BUILD_SDIST, str(folder)]
        subprocess.run(command, check=True, cwd=sources, stdout=subprocess.DEVNULL)  # noqa: S603 - as a list
    archive = folder / f"wattloop-{project()['version']}.tar.gz"
    pip_wheel("--wheel-dir", str(folder), "--no-deps", "--no-build-isolation", str(archive))


def package_chart(folder: Path, registry: str) -> Path:
    """Writes the chart's package; its images are those of the registry. The same chart gives the same bytes."""
    package = folder / f"wattloop-chart-{project()['version']}.tgz"
    with (
        package.open("wb") as file,
        gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as stream,
        tarfile.open(fileobj=stream, mode="w") as archive,
    ):
        for path in _chart_files():
            content = path.read_bytes()
            name = path.relative_to(CHART).as_posix()
            if name == "values.yaml":
                content = _with_registry(content.decode(), "repository: ", registry).encode()
            entry = tarfile.TarInfo(f"wattloop/{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return package


def _chart_files() -> Iterator[Path]:
    """The chart's files, links followed, without those of .helmignore."""
    ignored = (CHART / ".helmignore").read_text(encoding="utf-8").split()
    # The definitions are a link to the folder crds/, which glob does not follow.
    crds = CHART / "files" / "crds"
    for path in sorted({*CHART.rglob("*"), *crds.glob("*")}):
        if path.is_file() and not any(fnmatch.fnmatch(path.name, pattern) for pattern in ignored):
            yield path


def write_example(folder: Path, registry: str) -> Path:
    """Writes the job of the example training, whose image is the registry's."""
    example = folder / "digits.yaml"
    example.write_text(_with_registry(EXAMPLE.read_text(encoding="utf-8"), "image: ", registry), encoding="utf-8")
    return example


def _with_registry(text: str, key: str, registry: str) -> str:
    """Names the registry in every field that names an image of Wattloop."""
    return re.sub(rf"({re.escape(key)})wattloop/(\w+)", lambda found: found[1] + image_name(found[2], registry), text)


def main() -> int:
    """The command line; 0 when all is built, 1 when not."""
    description, _, examples = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=description, epilog=examples, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=REPOSITORY / "dist", help="the folder to write into (dist/)")
    parser.add_argument("--registry", default="", help="where the images are, for chart and example; as in build.py")
    arguments = parser.parse_args()
    if arguments.registry and not REGISTRY.fullmatch(arguments.registry):
        parser.error(f"--registry: found {arguments.registry!r}, expected HOST[:PORT][/PATH] in lower case")
    folder: Path = arguments.output
    folder.mkdir(parents=True, exist_ok=True)
    try:
        build_archives(folder.resolve())
    except subprocess.CalledProcessError as error:
        sys.stderr.write(f"the build ended with exit code {error.returncode}\n")
        return 1
    package_chart(folder, arguments.registry)
    write_example(folder, arguments.registry)
    sys.stdout.writelines(f"{path}\n" for path in sorted(folder.iterdir()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
