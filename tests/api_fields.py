"""Counts the fields of the API, and fails if there are more than its users need.

``python tests/api_fields.py`` prints a table of kinds by spec and status. A field is a property of a kind's schema
below `spec` or `status`, at every level; the items of an array count once, and so do the values of a map.
"""

import sys
from typing import Any

from wattloop_operator.api.schemas import KINDS, structural_schema

PARTS = ("spec", "status")
MAX_SPEC_OF_JOB, MAX_STATUS_OF_JOB, MAX_ALL = 65, 80, 300


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
    for name, row in (("fields", PARTS), *counts.items()):
        print(f"{name:22}", *(f"{each:>6}" for each in row))
    spec, status = counts["RecurringTrainingJob"]
    bounds = {
        "the spec of a job": (spec, MAX_SPEC_OF_JOB),
        "the status of a job": (status, MAX_STATUS_OF_JOB),
        "all kinds": (sum(map(sum, counts.values())), MAX_ALL),
    }
    for name, (found, most) in bounds.items():
        print(f"{name:22} {found:>6} of at most {most}")
    return int(any(found > most for found, most in bounds.values()))


if __name__ == "__main__":
    sys.exit(main())
