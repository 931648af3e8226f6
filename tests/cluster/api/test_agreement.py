"""`wattloop validate` and the API server agree on manifests that nobody thought of: seeded random mutations."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from wattloop_operator.api.checks.documents import read_documents
from wattloop_operator.api.manifests import check_text
from wattloop_operator.api.resource import GROUP, VERSION, Scope
from wattloop_operator.api.schemas import KINDS

MANIFESTS = Path(__file__).parents[2] / "manifests" / "accepted"
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
    {"zeus": {}},
    "0 0 1 * *",
    "@never",
    "2026-03-01T00:00:00Z",
    "n" * 300,
]

KNOWN_ONLY_TO_VALIDATE = (
    "(bad ",  # a cron schedule that never comes
    "time zone database",
    "Time: found a list",  # the server takes a list for a text that has a format
)


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) below a value."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in entries:
        yield value, key
        yield from places(part)


def mutant(original: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """The document with one to three changes below its spec."""
    changed = copy.deepcopy(original)
    for _ in range(chance.randint(1, 3)):
        container, key = chance.choice(list(places(changed["spec"])) or [(changed, "spec")])
        change = chance.choice(["value", "value", "value", "delete", "rename", "repeat"])
        if change == "value" or container is changed:
            container[key] = copy.deepcopy(chance.choice(ODD_VALUES))
        elif change == "repeat" and isinstance(container, list):
            container.append(copy.deepcopy(container[key]))
        elif change == "rename" and isinstance(container, dict):
            container[chance.choice([key.upper(), f"{key}s", "watts", "default"])] = container.pop(key)
        else:
            del container[key]
    return changed


@pytest.mark.usefixtures("crds")
@pytest.mark.parametrize("name", ["everything", "minimal", "training-recurrence", "gpu-power-policy", "frequency-plan"])
def test_validate_and_the_server_agree(admin: client.ApiClient, namespace: str, name: str) -> None:
    path = MANIFESTS / f"{name}.yaml"
    original = next(read_documents(str(path), path.read_text(encoding="utf-8"))).value
    chance = random.Random(name)
    disagreements = []
    verdicts = set()
    for _ in range(MUTANTS):
        document = mutant(original, chance)
        said = [str(problem) for problem in check_text("m", json.dumps(document)).problems]
        answer = _refusal(admin, namespace, document)
        verdicts.add(bool(answer))
        further = [problem for problem in said if any(words in problem for words in KNOWN_ONLY_TO_VALIDATE)]
        if bool(answer) != bool(said) and said != further:
            disagreements.append((document["spec"], said, answer))
    assert not disagreements[:3]
    assert verdicts == {True, False}, "the mutations were all accepted or all refused"


def _refusal(admin: client.ApiClient, namespace: str, document: dict[str, Any]) -> str:
    """Why the server does not take the document; empty: it does."""
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
