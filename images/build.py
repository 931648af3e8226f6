#!/usr/bin/env python3
"""Builds the images of Wattloop: operator, ui, agent, and digits, the training of examples/digits.

Run it with the Python of `make install`, which has setuptools and cyclonedx-py. Needs a C compiler for the planner's
extensions, and docker or buildah:

    .venv/bin/python images/build.py
    .venv/bin/python images/build.py --builder buildah --tag 0.1.0-rc1 operator agent
    .venv/bin/python images/build.py --builder 'buildah --storage-driver vfs' --builder-option=--isolation=chroot
    .venv/bin/python images/build.py --registry registry.example/team
    .venv/bin/python images/build.py --context-only --context /tmp/context
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
# The sources of Wattloop's wheel.
SOURCES = ("pyproject.toml", "setup.py", "README.md", "client", "operator", "agent", "planner", "research", "simulator")
# Versions and hashes of every wheel that images are made of.
LOCK = REPOSITORY / "constraints-runtime.txt"
DIGEST = re.compile(r"@(sha256:[0-9a-f]{64})$")
TRAINING = REPOSITORY / "examples" / "digits"


@dataclass(frozen=True)
class Image:
    """One image: what of wattloop is installed in it, and what the Containerfile makes of that."""

    name: str
    extra: str
    target: str
    description: str


IMAGES = {
    image.name: image
    for image in (
        Image("operator", "controller", "service", "Runs recurring training jobs and learns from their cost"),
        Image("ui", "operator", "service", "Shows the jobs of a cluster in a browser"),
        Image("agent", "agent", "service", "Holds power limits and meters energy of a node's GPUs"),
        Image("digits", "examples", "training", "An example training that Wattloop runs again and again"),
    )
}


def project() -> dict[str, Any]:
    """The project table of pyproject.toml."""
    with (REPOSITORY / "pyproject.toml").open("rb") as file:
        return dict(tomllib.load(file)["project"])


def requirements(extra: str) -> list[str]:
    """The requirements of an extra and of the extras that it names, except Wattloop itself."""
    found: list[str] = []
    for each in project()["optional-dependencies"][extra]:
        inner = re.fullmatch(r"wattloop\[(.+)\]", each)
        found += [name for part in inner.group(1).split(",") for name in requirements(part)] if inner else [each]
    return found


def make_context(
    folder: Path, images: Sequence[Image], dependencies: Path | None = None, sbom: Path | None = None
) -> None:
    """Fills a folder with what the Containerfile copies: wheels of wattloop and of all it needs, and the training.

    Args:
        folder: Is made where it is not there; must be empty.
        images: The images whose dependencies are built.
        dependencies: An earlier context's `dependencies` with the same lock; None: downloads them.
        sbom: The `sbom` of an earlier context with the same dependencies and the same project table; None: writes it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if dependencies is not None:
        shutil.copytree(dependencies, folder / "dependencies")
    else:
        download(folder / "dependencies")
    write_lists(folder / "dependencies", images)
    with tempfile.TemporaryDirectory(prefix="wattloop-sources-") as sources:
        # Built from a copy: a build folder of an earlier version in the tree would add its modules to the wheel.
        for name in SOURCES:
            copy_source(REPOSITORY / name, Path(sources) / name)
        pip_wheel("--wheel-dir", str(folder / "wattloop"), "--no-deps", "--no-build-isolation", sources)
    copy_source(TRAINING, folder / "digits")
    if sbom is not None:
        shutil.copytree(sbom, folder / "sbom")
        return
    (folder / "sbom").mkdir()
    for image in images:
        write_sbom(folder, image)


def download(folder: Path) -> None:
    """Creates a folder of the lock's wheels, each checked against its hash."""
    folder.mkdir()
    pip_wheel("--wheel-dir", str(folder), "--require-hashes", "--requirement", str(LOCK))


def write_lists(folder: Path, images: Sequence[Image]) -> None:
    """Writes the list of the requirements of each image. An unchanged one keeps its time, and a builder its layers."""
    for image in images:
        listed = folder / f"{image.extra}.txt"
        content = "".join(f"{each}\n" for each in requirements(image.extra))
        if not listed.exists() or listed.read_text(encoding="utf-8") != content:
            listed.write_text(content, encoding="utf-8")


def write_sbom(context: Path, image: Image) -> Path:
    """Writes what an image will have installed as a CycloneDX document: sbom/EXTRA.cdx.json of the context.

    It is read from an environment that the context's wheels are installed into, as the Containerfile does. The same
    wheels give the same document, byte for byte.
    """
    written = context / "sbom" / f"{image.extra}.cdx.json"
    with tempfile.TemporaryDirectory(prefix="wattloop-sbom-") as aside:
        _run([sys.executable, "-m", "venv", "--without-pip", aside])
        python = str(Path(aside) / "bin" / "python")
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python, "install", "--quiet"]
        offline = ["--no-index", "--no-compile"]
        wheels = context / "dependencies"
        _run([*pip, *offline, "--find-links", str(wheels), "--requirement", str(wheels / f"{image.extra}.txt")])
        _run([*pip, *offline, "--no-deps", *(str(wheel) for wheel in sorted((context / "wattloop").glob("*.whl")))])
        made = ["environment", "--output-reproducible", "--short-PURLs", "--output-file", str(written), python]
        # With this variable the document would contain a timestamp.
        variables = {name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"}
        _run([sys.executable, "-m", "cyclonedx_py", *made], variables)
    _forget_places(written)
    return written


def _forget_places(document: Path) -> None:
    """Removes the wheels' paths on this machine from the document."""
    content = json.loads(document.read_text(encoding="utf-8"))
    for component in content.get("components", []):
        component.pop("externalReferences", None)
    document.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def pip_wheel(*arguments: str) -> None:
    """Builds wheels with the pip of this Python."""
    _run([sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet", *arguments])


def copy_source(source: Path, destination: Path) -> None:
    """Copies a file, or a folder without what builds leave in it."""
    if source.is_dir():
        shutil.copytree(source, destination, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "*.so"))
    else:
        shutil.copy(source, destination)


def image_name(name: str, registry: str = "") -> str:
    """An image's name in a registry, without a tag.

    Example:
        >>> image_name("operator", "registry.example/team")
        'registry.example/team/wattloop/operator'
    """
    return f"{registry}/wattloop/{name}" if registry else f"wattloop/{name}"


def build_image(
    image: Image, context: Path, builder: Sequence[str], options: Sequence[str], *, base: str, tag: str, registry: str
) -> str:
    """Builds one image and returns its id, the digest of its configuration.

    Raises:
        subprocess.CalledProcessError: The builder failed; it has said why.
    """
    name = f"{image_name(image.name, registry)}:{tag}"
    arguments = {
        "BASE": base,
        "BASE_DIGEST": digest_of(base),
        "EXTRA": image.extra,
        "TITLE": f"wattloop {image.name}",
        "DESCRIPTION": image.description,
        "VERSION": tag,
    }
    given = [word for key, value in arguments.items() for word in ("--build-arg", f"{key}={value}")]
    containerfile = ["--file", str(REPOSITORY / "images" / "Containerfile")]
    with tempfile.TemporaryDirectory(prefix="wattloop-id-") as aside:
        written = Path(aside) / "id"
        named = ["--target", image.target, "--tag", name, "--iidfile", str(written)]
        _run([*builder, "build", *options, *given, *named, *containerfile, str(context)])
        return written.read_text(encoding="ascii").strip()


def digest_of(reference: str) -> str:
    """The digest in an image's reference; empty where it names a tag, which may be another image tomorrow."""
    found = DIGEST.search(reference)
    return found.group(1) if found else ""


def _run(command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
    subprocess.run(command, check=True, cwd=REPOSITORY, env=environment)  # noqa: S603 - the builder is the user's own


def write_output(folder: Path, context: Path, images: Sequence[Image], built: Sequence[Mapping[str, str]]) -> None:
    """Writes a description of the images: images.json and NAME.cdx.json of each image."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "images.json").write_text(json.dumps(built, indent=2) + "\n", encoding="utf-8")
    for image in images:
        shutil.copy(context / "sbom" / f"{image.extra}.cdx.json", folder / f"{image.name}.cdx.json")


def main() -> int:
    """The command line; 0 when every image asked for is built, 1 when not, 2 for a name that is none of them."""
    description, _, examples = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=description, epilog=examples, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    parser.add_argument("names", nargs="*", metavar="IMAGE", help=f"of {', '.join(IMAGES)}; default: all")
    parser.add_argument("--builder", default="docker", help="docker, or buildah, with its global options (docker)")
    parser.add_argument("--builder-option", action="append", default=[], help="for its `build`; may be repeated")
    parser.add_argument(
        "--base",
        default=f"python:{python}-slim",
        help="an image with the Python that runs this, better by digest, NAME@sha256:… (%(default)s)",
    )
    parser.add_argument(
        "--require-digest", action="store_true", help="refuse a base that is not named by digest, NAME@sha256:…"
    )
    parser.add_argument(
        "--registry", default="", help="HOST[:PORT][/PATH]: name the images in this registry, and push them"
    )
    parser.add_argument("--output", type=Path, help="write images.json and each image's SBOM into this folder")
    parser.add_argument("--tag", default=project()["version"], help="of the images made (the version)")
    parser.add_argument(
        "--context", type=Path, help="make the build context here and keep it, or take the one that is here"
    )
    parser.add_argument("--dependencies", type=Path, help="a context's dependencies/, instead of downloading them")
    parser.add_argument(
        "--sbom", type=Path, help="the sbom/ of a context with the same dependencies, instead of writing it"
    )
    parser.add_argument("--context-only", action="store_true", help="make the build context and no image")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in IMAGES]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; known are {', '.join(IMAGES)}")
    images = [IMAGES[name] for name in arguments.names or IMAGES]
    if not digest_of(arguments.base):
        told = f"the base {arguments.base} is named by a tag, which may be another image tomorrow; use NAME@sha256:…"
        if arguments.require_digest:
            parser.error(f"--base: {told}")
        sys.stderr.write(f"{told}\n")
    built: list[dict[str, str]] = []
    try:
        with tempfile.TemporaryDirectory(prefix="wattloop-images-") as aside:
            context = arguments.context or Path(aside)
            if not (context / "wattloop").exists():
                make_context(context, images, arguments.dependencies, arguments.sbom)
            if not arguments.context_only:
                for image in images:
                    made = build_image(
                        image,
                        context,
                        shlex.split(arguments.builder),
                        arguments.builder_option,
                        base=arguments.base,
                        tag=arguments.tag,
                        registry=arguments.registry,
                    )
                    name = image_name(image.name, arguments.registry)
                    built.append({"name": name, "tag": arguments.tag, "id": made, "base": arguments.base})
                    sys.stdout.write(f"{name}:{arguments.tag} {made}\n")
                for each in built if arguments.registry else ():
                    _run([*shlex.split(arguments.builder), "push", f"{each['name']}:{each['tag']}"])
            if arguments.output is not None:
                write_output(arguments.output, context, images, built)
    except FileNotFoundError as error:
        sys.stderr.write(f"{error.filename!r} cannot be run; install it, or name another with --builder\n")
        return 1
    except subprocess.CalledProcessError as error:
        sys.stderr.write(f"{shlex.join(error.cmd)} ended with exit code {error.returncode}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
