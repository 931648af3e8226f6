"""The agents' side under schemathesis, from its own OpenAPI: no server error, and nothing that is not documented."""

from __future__ import annotations

import json
import urllib.request
from collections import Counter
from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS

from support.reporting.json_web_token import json_web_token
from support.reporting.node_api import NODE, NodeApi, running_node_api
from wattloop_operator.reporting.openapi import rendered

# What a JSON schema cannot say, and a report must hold.
BETWEEN_FIELDS = (".time_seconds: found", "twice, expected one entry", f"expected {NODE} as in the path")


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeApi]:
    with running_node_api(tmp_path_factory.mktemp("nodes")) as running:
        yield running


@pytest.mark.parametrize("mode", list(GenerationMode))
def test_any_request_gets_a_documented_response(mode: GenerationMode, api: NodeApi) -> None:
    with urllib.request.urlopen(f"{api.url}/openapi.json", timeout=60) as response:
        document = json.loads(response.read())
    path = document["paths"]["/v1/nodes/{node}/energy"]["post"]
    path["parameters"][0]["schema"] = {"enum": [NODE]}
    report = path["requestBody"]["content"]["application/json"]["schema"]
    if mode is GenerationMode.POSITIVE:
        report["properties"]["node"]["enum"] = [NODE]
    operation = schemathesis.openapi.from_dict(document)["/v1/nodes/{node}/energy"]["POST"]
    codes: Counter[int] = Counter()

    @settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(operation.as_strategy(generation_mode=mode))
    def fuzz(case: schemathesis.Case) -> None:
        response = case.call(base_url=api.url, headers={"Authorization": f"Bearer {json_web_token('agent')}"})
        codes[response.status_code] += 1
        between = mode is GenerationMode.POSITIVE and response.status_code == 422
        if between:
            assert any(words in response.json()["detail"] for words in BETWEEN_FIELDS), response.text
        excluded = CHECKS.get_by_names(["positive_data_acceptance"]) if between else []
        case.validate_response(response, excluded_checks=excluded)

    fuzz()
    assert codes[200] if mode is GenerationMode.POSITIVE else codes[422], codes


def test_the_generated_description_is_the_one_that_the_api_serves(api: NodeApi) -> None:
    with urllib.request.urlopen(f"{api.url}/openapi.json", timeout=60) as response:
        assert json.loads(rendered()["reporting-api.json"]) == json.loads(response.read())
