"""Counts the fields of the API, and fails if there are more than its users need.

``python tests/api_fields.py`` prints a table of kinds by spec and status. A field is a property of a kind's schema
below `spec` or `status`, at every level; the items of an array count once, and so do the values of a map.
"""

from __future__ import annotations

import sys
from typing import Any

from wattloop_operator.api.schemas import KINDS, structural_schema

PARTS = ("spec", "status")
MAX_SPEC_OF_JOB = 65
MAX_ALL = 417


def fields_of(schema: dict[str, Any]) -> int:
    """The number of properties below a schema."""
    properties = schema.get("properties", {}).values()
    below = [*properties, schema.get("items"), schema.get("additionalProperties")]
    return len(properties) + sum(fields_of(each) for each in below if isinstance(each, dict))


def main() -> int:
    """Print the table, and return 1 if a bound is exceeded."""
    counts = {
        model.resource.kind: [fields_of(structural_schema(model)["properties"].get(part, {})) for part in PARTS]
        for model in KINDS
    }
    total = sum(map(sum, counts.values()))
    for name, row in (("fields", PARTS), *counts.items()):
        print(f"{name:22}", *(f"{each:>6}" for each in row))
    print(f"{'all kinds':22} {total:>6} of at most {MAX_ALL}")
    spec = counts["RecurringTrainingJob"][0]
    print(f"{'the spec of a job':22} {spec:>6} of at most {MAX_SPEC_OF_JOB}")
    return int(total > MAX_ALL or spec > MAX_SPEC_OF_JOB)


if __name__ == "__main__":
    sys.exit(main())
