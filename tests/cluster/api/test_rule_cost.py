"""How near the rules of the CustomResourceDefinitions are to the API server's limit of their estimated cost."""

import json
from pathlib import Path

import pytest
import yaml
from kubernetes import client

# A GPUNode has no specification and no rule.
DEFINITIONS = [
    path
    for path in sorted((Path(__file__).parents[3] / "crds").glob("*.yaml"))
    if "x-kubernetes-validations" in path.read_text(encoding="utf-8")
]
HEADROOM = 8


@pytest.mark.parametrize("path", DEFINITIONS, ids=lambda path: path.stem)
def test_the_api_server_accepts_eight_times_the_cost_of_the_rules(path: Path, admin: client.ApiClient) -> None:
    definition = yaml.safe_load(path.read_text(encoding="utf-8"))
    # The definitions themselves may be there, and the server does not check the rules of a name that exists.
    definition["spec"]["group"] = "cost.example"
    definition["metadata"] = {"name": f"{definition['spec']['names']['plural']}.cost.example"}
    for version in definition["spec"]["versions"]:
        properties = version["schema"]["openAPIV3Schema"]["properties"]
        repeated = {"type": "object", "maxProperties": HEADROOM, "additionalProperties": properties["spec"]}
        properties["spec"] = {"type": "object", "properties": {"repeated": repeated}}
        # They name fields of the specification.
        version["schema"]["openAPIV3Schema"].pop("x-kubernetes-validations", None)
        version.pop("additionalPrinterColumns", None)
    answer = admin.rest_client.pool_manager.request(
        "POST",
        f"{admin.configuration.host}/apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All",
        body=json.dumps(definition).encode(),
        headers={"Content-Type": "application/json"},
    )
    assert answer.status == 201, answer.data[:2000]
