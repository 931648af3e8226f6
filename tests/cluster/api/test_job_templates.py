"""`wattloop validate` and the API server agree on the Jobs of templates, and on seeded random mutations of them."""

import copy
import json
import random
from typing import Any

import pytest
from kubernetes import client

from support.control_plane.commands import ClusterCommand
from support.control_plane.type_table import type_table
from support.document_places import places
from support.job_templates import template_cases
from support.test_sets.parameters import exhaustive_after
from wattloop_operator.api.workload_checks.job_types import TABLE
from wattloop_operator.api.workload_checks.jobs import wrong_workload

FEW_MUTANTS, MUTANTS = 80, 2_000
ODD_VALUES: list[Any] = [
    {},
    [],
    "",
    "x",
    "X y",
    "0.5",
    "-1",
    0,
    -1,
    1,
    2.5,
    70_000,
    2**40,
    True,
    ["a", "a"],
    {"a": "b"},
]


def test_the_table_of_types_is_that_of_the_api_server(kubectl: ClusterCommand) -> None:
    assert type_table(json.loads(kubectl("get", "--raw", "/openapi/v3/apis/batch/v1"))) == TABLE.lstrip()


def test_validate_and_the_api_server_agree_on_each_case(admin: client.ApiClient, namespace: str) -> None:
    wrong = []
    for case in template_cases():
        error = server_error(admin, namespace, case.job)
        if bool(error) != bool(case.says):
            wrong.append((case.title, case.says, error))
    assert not wrong


@pytest.mark.parametrize("count", exhaustive_after([FEW_MUTANTS, MUTANTS]))
def test_validate_and_the_api_server_agree_on_mutations(admin: client.ApiClient, namespace: str, count: int) -> None:
    jobs = [case.job for case in template_cases() if not case.says]
    random_numbers = random.Random("job templates")
    disagreements, verdicts = [], set()
    for _ in range(count):
        job = mutant(random_numbers.choice(jobs), random_numbers)
        findings, error = wrong_workload({"spec": job}), server_error(admin, namespace, job)
        verdicts.add(bool(error))
        if bool(error) != bool(findings):
            disagreements.append((job, findings, error))
    assert not disagreements[:3]
    assert verdicts == {True, False}


def mutant(original: dict[str, Any], random_numbers: random.Random) -> dict[str, Any]:
    """The Job with one change at a random place."""
    changed = copy.deepcopy(original)
    container, key = random_numbers.choice(list(places(changed)))
    change = random_numbers.choice(["value", "value", "value", "delete", "rename", "repeat"])
    if change == "repeat" and isinstance(container, list):
        container.append(copy.deepcopy(container[key]))
    elif change == "rename" and isinstance(container, dict):
        container[random_numbers.choice([key.upper(), f"{key}s", "value", "default"])] = container.pop(key)
    elif change == "delete":
        del container[key]
    else:
        container[key] = copy.deepcopy(random_numbers.choice(ODD_VALUES))
    return changed


def server_error(admin: client.ApiClient, namespace: str, job: dict[str, Any]) -> str:
    """The API server's error for a Job as Wattloop starts it; empty if it accepts the Job."""
    spec = copy.deepcopy(job)
    template = spec.get("template")
    if isinstance(template, dict) and isinstance(template.get("spec"), dict):
        template["spec"].setdefault("restartPolicy", "Never")
    body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"generateName": "digits-"}, "spec": spec}
    try:
        client.CustomObjectsApi(admin).create_namespaced_custom_object(
            "batch", "v1", namespace, "jobs", body, dry_run="All", field_validation="Strict"
        )
    except client.ApiException as error:
        if error.status not in (400, 422):
            raise
        return str(json.loads(error.body or "{}")["message"])
    return ""
