"""The kinds of the API, and their CustomResourceDefinitions with structural OpenAPI v3 schemas.

Kubernetes accepts no references, no unions with null and no `additionalProperties: false`. The conversion of a model's
JSON schema therefore replaces references by their targets and drops the null of optional fields, since absence has the
same meaning. The API server itself rejects unknown fields.
"""

from typing import Any

from wattloop_operator.api.frequency_plan import FrequencyPlan
from wattloop_operator.api.gpu_node import GPUNode
from wattloop_operator.api.gpu_power_policy import GPUPowerPolicy
from wattloop_operator.api.model import CATEGORY, GROUP, VERSION, PrinterColumn
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.training_recurrence import TrainingRecurrence

Kind = RecurringTrainingJob | TrainingRecurrence | GPUPowerPolicy | FrequencyPlan | GPUNode
KINDS: tuple[type[Kind], ...] = (RecurringTrainingJob, TrainingRecurrence, GPUPowerPolicy, FrequencyPlan, GPUNode)
Schema = dict[str, Any]

# The API server owns the schema of these fields.
API_VERSION_DESCRIPTION = "The API version of this representation of the object."
KIND_DESCRIPTION = "The kind of the object."

# Keys in the order in which a reader needs them; keys in neither tuple come between the two, sorted by name.
FIRST_KEYS = ("description", "type", "format", "enum", "default")
LAST_KEYS = ("required", "items", "properties", "additionalProperties", "x-kubernetes-validations")

# Converted below, or without meaning in Kubernetes.
DROPPED_KEYS = frozenset(
    {"$defs", "title", "const", "default", "additionalProperties", "propertyNames", "x-wattloop-unpublished-default"}
)


def structural_schema(model: type[Kind]) -> Schema:
    """Return the schema of a kind, with the defaults of its spec and without defaults in its status."""
    document = model.model_json_schema(by_alias=True, mode="validation")
    schema = _converted(document, document.get("$defs", {}))
    properties = schema["properties"]
    properties["apiVersion"] = {"type": "string", "description": API_VERSION_DESCRIPTION}
    properties["kind"] = {"type": "string", "description": KIND_DESCRIPTION}
    properties["metadata"] = {"type": "object"}
    if "status" in properties:
        properties["status"] = _without_defaults(properties["status"])
    for rule in schema.get("x-kubernetes-validations", []):
        if rule.get("fieldPath", "").startswith(".metadata"):
            # The API server owns the schema of metadata and accepts no field path into it.
            del rule["fieldPath"]
    return schema


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


def _printer_column(column: PrinterColumn) -> dict[str, Any]:
    entry = {"name": column.name, "type": column.type, "jsonPath": column.path, "description": column.description}
    return entry | ({"priority": 1} if column.wide else {})


def _converted(node: Schema, definitions: dict[str, Schema]) -> Schema:
    node = _resolved(node, definitions)
    schema = {key: value for key, value in node.items() if key not in DROPPED_KEYS}
    if schema.get("type") == "integer":
        schema["format"] = "int64"
    if "properties" in schema:
        schema["properties"] = {name: _converted(part, definitions) for name, part in schema["properties"].items()}
    if "items" in schema:
        schema["items"] = _converted(schema["items"], definitions)
    additional = node.get("additionalProperties")
    if isinstance(additional, dict):
        schema["additionalProperties"] = _converted(additional, definitions)
    elif additional is True:
        schema["x-kubernetes-preserve-unknown-fields"] = True
    # A default that is not empty, with all its fields: the API server checks rules on it as written.
    default = _without_null(node.get("default"))
    if default not in (None, "", [], {}) and "x-wattloop-unpublished-default" not in node:
        schema["default"] = default
    return {key: schema[key] for key in sorted(schema, key=_order)}


def _order(key: str) -> tuple[int, int, str]:
    if key in FIRST_KEYS:
        return (0, FIRST_KEYS.index(key), key)
    return (2, LAST_KEYS.index(key), key) if key in LAST_KEYS else (1, 0, key)


def _resolved(node: Schema, definitions: dict[str, Schema]) -> Schema:
    """The node without its reference and without the null of an optional field; the node's own keys take precedence."""
    node = dict(node)
    while "$ref" in node or "anyOf" in node:
        if "$ref" in node:
            target = definitions[node.pop("$ref").removeprefix("#/$defs/")]
        else:
            (target,) = (choice for choice in node.pop("anyOf") if choice != {"type": "null"})
        node = {**target, **node}
    return node


def _without_null(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {key: _without_null(part) for key, part in value.items() if part is not None}


def _without_defaults(schema: Schema) -> Schema:
    """Remove all defaults: a status holds observations, and a default would state one that was never made."""
    cleaned = {key: value for key, value in schema.items() if key != "default"}
    for key in ("items", "additionalProperties"):
        if key in cleaned:
            cleaned[key] = _without_defaults(cleaned[key])
    if "properties" in cleaned:
        cleaned["properties"] = {name: _without_defaults(part) for name, part in cleaned["properties"].items()}
    return cleaned
