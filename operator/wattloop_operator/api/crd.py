"""Generates the CustomResourceDefinitions: `python -m wattloop_operator.api.crd [--check] FOLDER`."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from typing import Any

from ruamel.yaml import YAML

from wattloop_operator.api import generated
from wattloop_operator.api.resource import CATEGORY, GROUP, VERSION, PrinterColumn
from wattloop_operator.api.schemas import KINDS, Kind, structural_schema

HEADER = "# Generated from operator/wattloop_operator/api by `make generate`; do not edit.\n"


def custom_resource_definition(model: type[Kind]) -> dict[str, Any]:
    """Return the CustomResourceDefinition of a kind."""
    resource = model.resource
    schema = structural_schema(model)
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
                    "schema": {"openAPIV3Schema": schema},
                    "subresources": {"status": {}} if "status" in schema["properties"] else {},
                    "additionalPrinterColumns": [_printer_column(column) for column in resource.columns],
                }
            ],
        },
    }


def rendered() -> dict[str, str]:
    """Return the text of each file by file name."""
    return {f"{GROUP}_{model.resource.plural}.yaml": _as_yaml(custom_resource_definition(model)) for model in KINDS}


def _printer_column(column: PrinterColumn) -> dict[str, Any]:
    entry = {
        "name": column.name,
        "type": column.type,
        "jsonPath": column.path,
        "description": column.description,
    }
    return entry | ({"priority": 1} if column.wide else {})


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
    return generated.main(
        arguments,
        description="Generates the CustomResourceDefinitions of the API.",
        folder="crds",
        pattern="*.yaml",
        files=rendered(),
    )


if __name__ == "__main__":
    sys.exit(main())
