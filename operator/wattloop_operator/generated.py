"""Generates what follows from the API: `python -m wattloop_operator.generated`.

These are the CustomResourceDefinitions, and the OpenAPI descriptions of the reporting API and of the live page.
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from wattloop.files.atomic_write import open_atomic
from wattloop_operator.api.model import GROUP
from wattloop_operator.api.schemas import KINDS, custom_resource_definition
from wattloop_operator.page.page_app import openapi_text
from wattloop_operator.reporting import app

HEADER = "# Generated from operator/wattloop_operator/api by `make generate`; do not edit.\n"
# What matches and is not generated any more is out of date.
PATTERNS = ("crds/*.yaml", "docs/reference/*-api.json")


def rendered() -> dict[str, str]:
    """Return the text of each generated file by its path in the repository."""
    definitions = {f"crds/{GROUP}_{model.resource.plural}.yaml": custom_resource_definition(model) for model in KINDS}
    return {path: _as_yaml(definition) for path, definition in definitions.items()} | {
        "docs/reference/live-page-api.json": openapi_text(),
        "docs/reference/reporting-api.json": app.openapi_text(),
    }


def out_of_date(root: Path, files: Mapping[str, str]) -> list[Path]:
    """Return the files below the root that are missing, differ, or are not generated any more."""
    paths = (path for pattern in PATTERNS for path in root.glob(pattern))
    current = {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in paths}
    return sorted(root / name for name in files.keys() | current.keys() if files.get(name) != current.get(name))


def _as_yaml(document: dict[str, Any]) -> str:
    yaml = YAML()
    # No line folding: a folded regular expression is hard to read and to search.
    yaml.width = 4096
    # No aliases: not every tool that reads manifests supports them.
    yaml.representer.ignore_aliases = lambda _: True
    stream = io.StringIO()
    yaml.dump(document, stream)
    return HEADER + stream.getvalue()


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the files, or only compare them if --check is given; return the exit code."""
    parser = argparse.ArgumentParser(description="Generates the files that follow from the API.")
    parser.add_argument("root", type=Path, nargs="?", default=Path(), help="root of the repository (default: .)")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a file is out of date")
    options = parser.parse_args(arguments)
    files = rendered()
    if options.check:
        stale = out_of_date(options.root, files)
        for path in stale:
            sys.stderr.write(f"{path}: out of date; run make generate\n")
        return 1 if stale else 0
    for name, text in files.items():
        path = options.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with open_atomic(path) as stream:
            stream.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
