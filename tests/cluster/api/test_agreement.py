"""`wattloop validate` and the API server agree on seeded random mutations of valid manifests."""

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from support.document_places import places
from wattloop_operator.api.checks.documents import read_documents
from wattloop_operator.api.manifests import check_text
from wattloop_operator.api.model import GROUP, VERSION, Scope
from wattloop_operator.api.schemas import KINDS

MANIFESTS = Path(__file__).parents[2] / "manifests" / "valid"
MUTANTS = 120
ODD_VALUES: list[Any] = [
    {},
    [],
    "",
    "x",
    "X y",
    "0.5",
    "-1",
    "1e5",
    "Auto",
    "a\n",
    0,
    -1,
    1,
    2.5,
    3.0,
    10**9,
    2**53,
    True,
    ["a", "a"],
    [64, 64],
    {"a": "b"},
    {"manual": {}},
    "Zeus",
    "0 0 1 * *",
    "@never",
    "2026-03-01T00:00:00Z",
    "n" * 300,
]

CHECKED_ONLY_BY_VALIDATE = (
    "(bad ",  # a cron schedule that never occurs
    "time zone database",
    "Time: found a list",  # the server accepts a list for a string with a format
    " spec.parameters",  # the chart's policy sees values that may be numbers or texts
    " spec.trainingContainers: found '",  # the chart's policy knows the names of the containers
    " spec.template.spec.",  # the schema preserves a pod template; the operator names its wrong types in a condition
)


def mutant(original: dict[str, Any], random_numbers: random.Random) -> dict[str, Any]:
    """The document with one to three changes below its spec."""
    changed = copy.deepcopy(original)
    for _ in range(random_numbers.randint(1, 3)):
        container, key = random_numbers.choice(list(places(changed["spec"])) or [(changed, "spec")])
        change = random_numbers.choice(["value", "value", "value", "delete", "rename", "repeat"])
        if change == "value" or container is changed:
            container[key] = copy.deepcopy(random_numbers.choice(ODD_VALUES))
        elif change == "repeat" and isinstance(container, list):
            container.append(copy.deepcopy(container[key]))
        elif change == "rename" and isinstance(container, dict):
            container[random_numbers.choice([key.upper(), f"{key}s", "watts", "default"])] = container.pop(key)
        else:
            del container[key]
    return changed


@pytest.mark.usefixtures("crds")
@pytest.mark.parametrize("name", ["everything", "minimal", "training-recurrence", "gpu-power-policy", "frequency-plan"])
def test_validate_and_the_server_agree(admin: client.ApiClient, namespace: str, name: str) -> None:
    path = MANIFESTS / f"{name}.yaml"
    original = next(read_documents(str(path), path.read_text(encoding="utf-8"))).value
    random_numbers = random.Random(name)
    disagreements = []
    verdicts = set()
    for _ in range(MUTANTS):
        document = mutant(original, random_numbers)
        problems = [str(problem) for problem in check_text("m", json.dumps(document)).problems]
        error = _server_error(admin, namespace, document)
        verdicts.add(bool(error))
        further = [problem for problem in problems if any(text in problem for text in CHECKED_ONLY_BY_VALIDATE)]
        if bool(error) != bool(problems) and problems != further:
            disagreements.append((document["spec"], problems, error))
    assert not disagreements[:3]
    assert verdicts == {True, False}, "the mutations were all accepted or all rejected"


def _server_error(admin: client.ApiClient, namespace: str, document: dict[str, Any]) -> str:
    """The server's error for the document; empty if it accepts the document."""
    api = client.CustomObjectsApi(admin)
    resource = next(model.resource for model in KINDS if model.resource.kind == document["kind"])
    options = {"dry_run": "All", "field_validation": "Strict"}
    try:
        if resource.scope is Scope.CLUSTER:
            api.create_cluster_custom_object(GROUP, VERSION, resource.plural, document, **options)
        else:
            api.create_namespaced_custom_object(GROUP, VERSION, namespace, resource.plural, document, **options)
    except client.ApiException as error:
        if error.status not in (400, 422):
            raise
        return str(json.loads(error.body)["message"])
    return ""
