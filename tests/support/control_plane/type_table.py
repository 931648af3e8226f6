"""The table of a Job's types, made of what an API server publishes about them.

`python -m support.control_plane.type_table < OPENAPI` prints it; OPENAPI is the answer to
`kubectl get --raw /openapi/v3/apis/batch/v1`. It belongs into `wattloop_operator.api.workload_checks.job_types`.
"""

import json
import sys
import textwrap
from typing import Any

ROOT = "io.k8s.api.batch.v1.JobSpec"
SCALARS = frozenset({"Quantity", "IntOrString", "Time"})
WIDTH = 116


def type_table(openapi: dict[str, Any]) -> str:
    """One entry for each type, with its fields and their types; `!` marks a required one."""
    schemas: dict[str, Any] = openapi["components"]["schemas"]
    waiting, types = [ROOT], {}
    while waiting:
        name = waiting.pop()
        short = name.rpartition(".")[2]
        if short in types or short in SCALARS:
            continue
        schema = schemas[name]
        required = schema.get("required", ())
        fields = schema.get("properties", {})
        types[short] = [f"{field}:{_type(part, waiting)}{'!' * (field in required)}" for field, part in fields.items()]
    return "".join(f"{name}\n{_wrapped(fields)}" for name, fields in sorted(types.items()))


def _wrapped(fields: list[str]) -> str:
    lines = textwrap.wrap(" ".join(sorted(fields)), WIDTH, break_long_words=False, break_on_hyphens=False)
    return "".join(f"  {line}\n" for line in lines)


def _type(schema: dict[str, Any], waiting: list[str]) -> str:
    reference = schema.get("$ref") or next((each["$ref"] for each in schema.get("allOf", ()) if "$ref" in each), None)
    if reference is not None:
        waiting.append(reference.rpartition("/")[2])
        return str(reference.rpartition(".")[2])
    match schema.get("type"):
        case "array":
            return f"[{_type(schema['items'], waiting)}]"
        case "object":
            return f"{{{_type(schema['additionalProperties'], waiting)}}}"
        case "integer":
            return str(schema["format"])
    choices = [choice for choice in schema.get("enum", ()) if choice]
    # The names of 65 signals need more room than they are worth.
    return "|".join(choices) if 0 < len(choices) < 20 else str(schema["type"])


if __name__ == "__main__":
    print(type_table(json.load(sys.stdin)), end="")
