"""Writes the page of the API's fields from the models: `python -m wattloop_operator.api.reference [--check] FOLDER`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from wattloop_operator.api import generated
from wattloop_operator.api.field_types import DECIMAL_PATTERN
from wattloop_operator.api.resource import API_VERSION
from wattloop_operator.api.schemas import KINDS, Kind, structural_schema

Schema = dict[str, Any]
HEAD = f"""\
<!-- Generated from operator/wattloop_operator/api by `make generate`; do not edit. -->
# The API: {API_VERSION}

| kind | short | scope | written by |
|---|---|---|---|
| [RecurringTrainingJob](#recurringtrainingjob) | rtj | namespaced | you: when, what to train, what may be chosen |
| [TrainingRecurrence](#trainingrecurrence) | trec | namespaced | the operator: one decision, one measured cost |
| [GPUPowerPolicy](#gpupowerpolicy) | gpp | cluster | an administrator: guard rails for power and clocks |
| [FrequencyPlan](#frequencyplan) | fplan | namespaced | `wattloop plan` or you: GPU clocks of a pipeline |

The least that a job says; everything else has a default:

```yaml
apiVersion: {API_VERSION}
kind: RecurringTrainingJob
metadata:
  name: digits
spec:
  trigger:
    cron: {{schedule: "0 3 * * *", timeZone: Europe/Paris}}
  objective:
    target: {{metric: accuracy, threshold: "0.97"}}
  batchSize:
    default: 64
    candidates: [16, 32, 64, 128, 256]
  template:
    job:
      template:
        spec:
          restartPolicy: Never
          containers:
          - name: train
            image: registry.example/digits:1
            args: ["--batch-size=$(WATTLOOP_BATCH_SIZE)"]
```

## Who checks what
- The API server refuses what the schema or one of the rules below does not allow, at `kubectl apply`.
- `wattloop validate FILE` says the same without a cluster, with line and column, and what would be right. It looks
  further where the server cannot: schedules that never come (30 February), time zones that do not exist, a key
  written twice, null where a text belongs. And it says of a right job what this version does not carry out.
- The operator says in the condition `Ready` of the job what only the cluster shows: a template that the server
  refuses (found by a dry run), a schedule that means nothing.

Numbers with a fraction are decimals in quotes (`"0.76"`): a float does not survive every client unchanged. Names of
RecurringTrainingJobs have at most 35 characters and no dot, since those of runs and pods are made from them. Fields of
a union (`trigger`, `policy`, `template`, a plan's source) exclude each other. `policy` is not filled in by the server
when it is left out, so that naming another policy later replaces it instead of standing beside it.

`kubectl explain rtj.spec.policy` shows the same texts. Columns of `kubectl get` are listed with each kind; those
marked * need `--output wide`.
"""


def rendered() -> str:
    """The text of the page."""
    return "\n".join([HEAD, *(line for model in KINDS for line in _kind(model))])


def _kind(model: type[Kind]) -> Iterator[str]:
    schema = structural_schema(model)
    resource = model.resource
    yield f"## {resource.kind}\n"
    yield f"{schema['description']}\n"
    columns = ", ".join(f"{column.name}{'*' if column.wide else ''}" for column in resource.columns)
    yield f"`kubectl get {resource.short_name}` shows: {columns}.\n"
    rules = list(_rules(schema, resource.short_name))
    if rules:
        yield "Rules across fields:\n"
        yield from rules
        yield ""
    for part in ("spec", "status"):
        yield f"### {resource.kind}.{part}\n"
        yield "| field | type | default | what it says |"
        yield "|---|---|---|---|"
        yield from _fields(schema["properties"][part], "")
        yield ""


def _fields(schema: Schema, path: str) -> Iterator[str]:
    """A row for every field below this schema, parents before their parts; items of lists stand below `[]`."""
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
    if schema["type"] == "integer":
        return "whole number" + _bounds(schema.get("minimum"), schema.get("maximum"))
    return _text(schema) if schema["type"] == "string" else TYPES[schema["type"]]


TYPES = {"boolean": "true or false", "object": "object"}


def _text(schema: Schema) -> str:
    if schema.get("format") == "date-time":
        return "time"
    decimals = {DECIMAL_PATTERN: "decimal", DECIMAL_PATTERN.replace("-?", ""): "decimal, 0 or more"}
    return decimals.get(schema.get("pattern", ""), f"text, at most {schema['maxLength']} characters")


def _bounds(least: int | None, most: int | None) -> str:
    if least is not None and most is not None:
        return f" ({least} to {most})"
    if least is not None:
        return f" (at least {least})"
    return "" if most is None else f" (at most {most})"


def _default(schema: Schema) -> str:
    if "default" not in schema:
        return ""
    default = schema["default"]
    return f"`{default if isinstance(default, str) else json.dumps(default)}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page, or with --check only compare it; returns the exit code."""
    return generated.main(
        arguments,
        what="the page of the API's fields",
        folder="docs",
        pattern="api.md",
        files={"api.md": rendered()},
    )


if __name__ == "__main__":
    sys.exit(main())
