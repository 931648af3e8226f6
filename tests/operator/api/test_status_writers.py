"""Every status field of the API is written by the code that this table names for it."""

import ast
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Any

import pytest

from wattloop_operator.api.schemas import KINDS, structural_schema

CONDITION = "type status reason message lastTransitionTime"
USAGE = "gpuEnergyJoules durationSeconds devices gpuProduct attribution coveragePercent energySource uncertaintyJoules"
# The fields that each function writes, by the path of the object that has them.
FIELDS: dict[str, dict[str, str]] = {
    "reconcile.job.status:job_status": {
        "rtj.status": "observedGeneration conditions active lastScheduleTime state failure runRequest learnSince "
        "learning published totals savings recentRecurrences",
        "rtj.status.totals": "recurrences reached failed missed deleted lost",
    },
    "reconcile.job.recurrences:learn_since_actions": {"rtj.status.learnSince": "text recurrence"},
    "reconcile.job.status:_run_request": {"rtj.status.runRequest": "value ended result failed"},
    "reconcile.job.status:_published": {"rtj.status.published": "path recurrence time"},
    "reconcile.job.policy_status:policy_status": {
        "rtj.status": "best arms next",
        "rtj.status.best": "batchSize parameters",
        "rtj.status.next": "time",
    },
    "reconcile.learning.decision:next_recurrence": {
        "rtj.status.next": "batchSize parameters powerLimitWatts kind reason costJoules lowCostJoules highCostJoules "
        "savingPercent lowSavingPercent highSavingPercent unknown"
    },
    "reconcile.job.policy_status:_arm_statuses": {
        "rtj.status.arms[]": "batchSize parameters observations missed meanCostJoules lowCostJoules highCostJoules "
        "crashes pruned note"
    },
    "reconcile.job.status:_used": {"rtj.status.totals": "gpuEnergyJoules durationSeconds money carbonGrams"},
    "reconcile.job.policy_status:_saving": {"rtj.status.savings[]": "name value low high unit text"},
    "reconcile.job.status:_recent": {
        "rtj.status.recentRecurrences[]": "name index batchSize result gpuEnergyJoules durationSeconds energy metric "
        "costSavingPercent"
    },
    "reconcile.conditions:condition": {
        "rtj.status.conditions[]": CONDITION,
        "trec.status.conditions[]": CONDITION,
        "fplan.status.conditions[]": CONDITION,
    },
    "reconcile.energy.attempt_usage:usage_status": {"trec.status": "usage costJoules money energy time metric"},
    "reconcile.energy.attempt_usage:_agents_usage": {"trec.status.usage": USAGE},
    "reconcile.energy.attempt_usage:usage_at_end": {"trec.status.usage": "maxPowerLimitWatts"},
    "reconcile.attempt.lifecycle:_status_without_outcome": {"trec.status": "devices"},
    "reconcile.attempt.lifecycle:write_outcome": {
        "trec.status": "conditions startTime completionTime result epochs failurePlace message progress",
    },
    "reconcile.attempt.lifecycle:_workload_fields": {
        "trec.status": "workloadRef pods imageDigest",
        "trec.status.workloadRef": "apiVersion kind uid",
        "trec.status.pods[]": "uid node",
    },
    "reconcile.attempt.progress_deadline:summary_of": {
        "trec.status.progress": "epoch metric curve finalMetric powerWatts powerLimitWatts energyJoules timeSeconds "
        "costPercent lastReportTime"
    },
    "reconcile.energy.gpu_node_status:gpu_node_status": {
        "gnode.status": "lastReportTime gpuCount freeGpus powerWatts freePowerWatts gpus"
    },
    "reconcile.energy.gpu_node_status:_gpu": {
        "gnode.status.gpus[]": "uuid product powerWatts limitWatts maxLimitWatts pods holders"
    },
    "reconcile.energy.gpu_node_status:_holders": {"gnode.status.gpus[].holders[]": "namespace pod uid"},
    "reconcile.pipeline.plan_status:plan_status": {"fplan.status": "conditions recurrence"},
    "reconcile.pipeline.plan_status:_percentages": {
        "fplan.status": "savingPercent slowdownPercent savingErrorPercent slowdownErrorPercent",
        "trec.status.frequencyPlan": "savingPercent slowdownPercent savingErrorPercent slowdownErrorPercent",
    },
    "reconcile.pipeline.plan_status:_with_chosen": {
        "fplan.status": "plannedSeconds plannedJoules reason realisedSeconds realisedJoules plannedSavingPercent "
        "plannedSlowdownPercent"
    },
    "cluster.frequency_plans:FrequencyPlanWriter._write": {"trec.status": "frequencyPlan"},
    "reconcile.pipeline.plan_status:applied_plan": {"trec.status.frequencyPlan": "name mode reason problem"},
    "cluster.gpu_power_policies:gpu_power_policy_status": {
        "gpp.status": "observedGeneration conditions nodes",
        "gpp.status.conditions[]": CONDITION,
    },
}
WRITERS = {
    f"{path}.{field}": writer
    for writer, objects in FIELDS.items()
    for path, fields in objects.items()
    for field in fields.split()
}


def status_fields(schema: dict[str, Any], path: str) -> Iterator[str]:
    """The paths of all fields below a schema; `[]` denotes the items of a list."""
    for name, part in schema.get("properties", {}).items():
        yield f"{path}.{name}"
        yield from status_fields(part.get("items", part), f"{path}.{name}{'[]' if 'items' in part else ''}")


def names_in(writer: str) -> set[str]:
    """The keyword arguments and strings in the source of a function of `wattloop_operator`."""
    module, _, function = writer.partition(":")
    found: Any = importlib.import_module(f"wattloop_operator.{module}")
    for name in function.split("."):
        found = getattr(found, name)
    nodes = list(ast.walk(ast.parse(textwrap.dedent(inspect.getsource(found)))))
    arguments = {node.arg for node in nodes if isinstance(node, ast.keyword) and node.arg is not None}
    return arguments | {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def fields_not_written(fields: list[str], names: set[str]) -> list[str]:
    """Those of the fields whose names are not among the names in a function's source.

    The ends of an interval may be written by the name of its value.
    """
    snake = {field: re.sub(r"(?=[A-Z])", "_", field.rpartition(".")[2]).lower() for field in fields}
    return [field for field, name in snake.items() if not {name, re.sub("^(low|high)_", "", name)} & names]


# Read at import, so that a function that is renamed or moved already fails the collection of tests.
NAMES = {writer: names_in(writer) for writer in FIELDS}


def test_every_status_field_has_a_writer() -> None:
    schemas = {model.resource.short_name: structural_schema(model)["properties"].get("status", {}) for model in KINDS}
    fields = {field for name, schema in schemas.items() for field in status_fields(schema, f"{name}.status")}
    written = WRITERS.keys()
    assert fields - written == set(), "fields without a writer: write them, or remove them from the schema"
    assert written - fields == set(), "fields that the schema does not have: remove them from the table"


@pytest.mark.parametrize("writer", FIELDS)
def test_a_writer_names_its_fields(writer: str) -> None:
    fields = [field for field, name in WRITERS.items() if name == writer]
    assert fields_not_written(fields, NAMES[writer]) == []


def test_a_field_that_its_writer_does_not_name_is_found() -> None:
    fields = ["trec.status.workloadRef.apiVersion", "trec.status.workloadRef.namespace"]
    assert fields_not_written(fields, NAMES["reconcile.attempt.lifecycle:_workload_fields"]) == fields[1:]


def test_a_writer_that_does_not_exist_is_found() -> None:
    with pytest.raises(AttributeError, match="_no_such_function"):
        names_in("reconcile.job.status:_no_such_function")
