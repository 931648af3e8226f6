"""The page of the API (docs/reference/api.md): its kinds, rules and fields, from the schemas."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from wattloop_operator.api.field_types import DECIMAL_PATTERN, NON_NEGATIVE_DECIMAL_PATTERN
from wattloop_operator.api.model import API_VERSION
from wattloop_operator.api.schemas import KINDS, Kind, structural_schema

Schema = dict[str, Any]
HEAD = f"""\
<!-- Generated from operator/wattloop_operator/api by `make generate`; do not edit. -->
# The API: {API_VERSION}

You describe a training job once, as a RecurringTrainingJob. The operator creates a TrainingRecurrence for each attempt.

| kind | short name | scope | written by | content |
|---|---|---|---|---|
| [RecurringTrainingJob](#recurringtrainingjob) | rtj | namespaced | you | a training job and its objective |
| [TrainingRecurrence](#trainingrecurrence) | trec | namespaced | the operator | an attempt: its decision and cost |
| [GPUPowerPolicy](#gpupowerpolicy) | gpp | cluster | an administrator | bounds on power limits and clocks |
| [FrequencyPlan](#frequencyplan) | fplan | namespaced | the operator, or you | GPU clocks of a training pipeline |
| [GPUNode](#gpunode) | gnode | cluster | the operator | GPUs of a node: power, limits, holders |

A minimal job; all other fields have defaults:

```yaml
apiVersion: {API_VERSION}
kind: RecurringTrainingJob
metadata:
  name: digits
spec:
  schedule: "0 3 * * *"
  timeZone: Europe/Paris
  objective:
    target: {{metric: accuracy, threshold: "0.97"}}
  batchSize:
    default: 64
    candidates: [16, 32, 64, 128, 256]
  template:
    spec:
      template:
        spec:
          restartPolicy: Never
          containers:
          - name: train
            image: registry.example/digits:1
            args: ["--batch-size=$(WATTLOOP_BATCH_SIZE)"]
```

`kubectl explain rtj.spec.batchSize` shows the descriptions of this page. Each kind lists its columns of `kubectl get`;
columns marked * need `--output wide`.

## Validation

- The API server checks the schema and the rules of this page at `kubectl apply`.
- `wattloop validate FILE` checks the same without a cluster, and reports line, column and the expected value. It also
  rejects schedules that never occur (30 February), duplicate keys, null instead of a string, and Jobs and pods that the
  API server would refuse. It reports features of a valid job that this version does not support.
- The operator checks the template by a dry run on the API server, and the schedule. It reports the result in the
  condition `Ready` of the job.

## Conventions

- A user may write a number as one (`0.76`) or in quotes. Wattloop writes decimals in quotes, since not every client
  preserves a float exactly.
- The members of a union (the source of a plan) exclude each other.
- The API server does not set a default for the target's `direction`: it could not be told from a choice, which a metric
  such as a loss needs. The objects of attempts state the direction.
"""


def text() -> str:
    """The text of the page."""
    return "\n".join([HEAD, *(line for model in KINDS for line in _kind(model))])


def _kind(model: type[Kind]) -> Iterator[str]:
    schema = structural_schema(model)
    resource = model.resource
    yield f"## {resource.kind}\n"
    yield f"{schema['description']}\n"
    columns = ", ".join(f"{column.name}{'*' if column.wide else ''}" for column in resource.columns)
    yield f"`kubectl get {resource.short_name}` columns: {columns}.\n"
    rules = list(_rules(schema, resource.short_name))
    if rules:
        yield "Rules:\n"
        yield from rules
        yield ""
    for part in (name for name in ("spec", "status") if name in schema["properties"]):
        yield f"### {resource.kind}.{part}\n"
        yield "| field | type | default | description |"
        yield "|---|---|---|---|"
        yield from _fields(schema["properties"][part], "")
        yield ""


def _fields(schema: Schema, path: str) -> Iterator[str]:
    """Rows of all fields below this schema, parents before children; `[]` denotes the items of a list."""
    for name, part in schema.get("properties", {}).items():
        here = f"{path}{name}"
        default = "required" if name in schema.get("required", []) else _default(part)
        yield f"| `{here}` | {_type(part)} | {default} | {_cell(part.get('description', ''))} |"
        yield from _fields(part.get("items", part), f"{here}[]." if "items" in part else f"{here}.")


def _rules(schema: Schema, path: str) -> Iterator[str]:
    for rule in schema.get("x-kubernetes-validations", []):
        yield f"- `{path}{rule.get('fieldPath', '')}`: {rule['message']}"
    for name, part in schema.get("properties", {}).items():
        yield from _rules(part, f"{path}.{name}")
    if "items" in schema:
        yield from _rules(schema["items"], f"{path}[]")


def _type(schema: Schema) -> str:
    if "enum" in schema:
        return "one of " + ", ".join(schema["enum"])
    if "items" in schema:
        return f"list{_bounds(schema.get('minItems'), schema.get('maxItems'))} of: {_type(schema['items'])}"
    if "additionalProperties" in schema:
        return f"map of: {_type(schema['additionalProperties'])}"
    if "type" not in schema:
        return _decimal(schema) or f"number or string, at most {schema['maxLength']} characters"
    if schema["type"] == "integer":
        return "integer" + _bounds(schema.get("minimum"), schema.get("maximum"))
    return _string(schema) if schema["type"] == "string" else str(schema["type"])


def _string(schema: Schema) -> str:
    if schema.get("format") == "date-time":
        return "time"
    return _decimal(schema) or f"string, at most {schema['maxLength']} characters"


def _decimal(schema: Schema) -> str:
    """What a decimal number is called; empty for another field."""
    unit = "decimal" if "type" in schema else "number"
    names = {DECIMAL_PATTERN: unit, NON_NEGATIVE_DECIMAL_PATTERN: f"{unit}, 0 or more"}
    return names.get(schema.get("pattern", ""), "")


def _bounds(minimum: int | None, maximum: int | None) -> str:
    if minimum is not None and maximum is not None:
        return f" ({minimum} to {maximum})"
    if minimum is not None:
        return f" (at least {minimum})"
    return "" if maximum is None else f" (at most {maximum})"


def _default(schema: Schema) -> str:
    if "default" not in schema:
        return ""
    default = schema["default"]
    return f"`{default if isinstance(default, str) else json.dumps(default)}`"


def _cell(value: str) -> str:
    return value.replace("|", "\\|").replace("<", "&lt;")
