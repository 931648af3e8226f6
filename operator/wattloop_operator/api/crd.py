"""Writes the CustomResourceDefinitions of the API: `python -m wattloop_operator.api.crd [--check] FOLDER`."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from wattloop.files.whole import written_whole
from wattloop_operator.api.group import CATEGORY, GROUP, VERSION
from wattloop_operator.api.kinds import KINDS, Kind
from wattloop_operator.api.resource import Column
from wattloop_operator.api.structural_schema import structural_schema

HEADER = "# Generated from operator/wattloop_operator/api by `make generate`; do not edit.\n"


def custom_resource_definition(model: type[Kind]) -> dict[str, Any]:
    """The CustomResourceDefinition of a kind."""
    resource = model.resource
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": resource.kind,
                "listKind": f"{resource.kind}List",
                "plural": resource.plural,
                "singular": resource.singular,
                "shortNames": [resource.short_name],
                "categories": [CATEGORY],
            },
            "scope": resource.scope.value,
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": structural_schema(model)},
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [_printer_column(column) for column in resource.columns],
                }
            ],
        },
    }


def rendered() -> dict[str, str]:
    """The text of every file of the folder, by file name."""
    return {f"{GROUP}_{model.resource.plural}.yaml": _as_yaml(custom_resource_definition(model)) for model in KINDS}


def _printer_column(column: Column) -> dict[str, Any]:
    entry = {
        "name": column.name,
        "type": column.type,
        "jsonPath": column.path,
        "description": column.description,
    }
    return entry | ({"priority": 1} if column.wide else {})


def _as_yaml(document: dict[str, Any]) -> str:
    yaml = YAML()
    # One line a text: a fold inside a regular expression is hard to read and harder to search.
    yaml.width = 4096
    # The same text twice is written twice: an alias would not survive every tool that reads a manifest.
    yaml.representer.ignore_aliases = lambda _: True
    stream = io.StringIO()
    yaml.dump(document, stream)
    return HEADER + stream.getvalue()


def _out_of_date(folder: Path) -> list[str]:
    """Names of files in the folder that are missing, differ, or should not be there."""
    expected = rendered()
    found = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.yaml")}
    return sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the files, or with --check only compare them; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m wattloop_operator.api.crd", description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("crds"), help="where they are (default: crds)")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file is out of date")
    options = parser.parse_args(arguments)
    if options.check:
        stale = _out_of_date(options.folder)
        for name in stale:
            sys.stderr.write(f"{options.folder / name}: out of date; run make generate\n")
        return 1 if stale else 0
    options.folder.mkdir(parents=True, exist_ok=True)
    for name, text in rendered().items():
        with written_whole(options.folder / name) as stream:
            stream.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
