"""Writes the CustomResourceDefinitions of the API: `python -m wattloop_operator.api.crd [--check] FOLDER`."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from typing import Any

from ruamel.yaml import YAML

from wattloop_operator.api import generated
from wattloop_operator.api.resource import CATEGORY, GROUP, VERSION, Column
from wattloop_operator.api.schemas import KINDS, Kind, structural_schema

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


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the files, or with --check only compare them; returns the exit code."""
    return generated.main(
        arguments, what="the CustomResourceDefinitions of the API", folder="crds", pattern="*.yaml", files=rendered()
    )


if __name__ == "__main__":
    sys.exit(main())
