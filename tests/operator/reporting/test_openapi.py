"""Schemathesis tests the reporting API against the OpenAPI description that it serves."""

import json
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS

from support.reporting.json_web_token import json_web_token
from support.reporting.node_api import NODE, NodeApi, running_node_api
from support.reporting.reporting_api import Api, running_api
from support.test_sets.parameters import exhaustive_after
from wattloop_operator.api.reporting_source import Reporting, ReportingSource
from wattloop_operator.reporting.app import openapi_text
from wattloop_operator.reporting.report_limits import LOCAL_RATES, ReportLimits

# Constraints between fields, which the JSON schema does not express.
BETWEEN_FIELDS = (
    "energy is never negative",
    "expected at least the start's",
    "twice, expected one entry",
    "allowed_watts.highest: found",
    f"expected {NODE} as in the path",
    "expected a date of the calendar",
    "expected a positive time",
)


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    # Thousands of requests come without a token.
    with running_api(tmp_path_factory.mktemp("api"), ReportLimits(time.monotonic, LOCAL_RATES)) as running:
        yield running


@pytest.fixture(scope="module")
def node_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeApi]:
    with running_node_api(tmp_path_factory.mktemp("nodes")) as running:
        yield running


@pytest.fixture(scope="module")
def recurrence(api: Api) -> tuple[str, str]:
    return api.recurrence()


def served_description(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{url}/openapi.json", timeout=60) as response:
        document: dict[str, Any] = json.loads(response.read())
    return document


def check_responses(operation: Any, mode: GenerationMode, url: str, token: str, examples: int) -> None:
    """Send generated requests; each response must be documented, and valid requests must succeed."""
    codes: Counter[int] = Counter()

    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(operation.as_strategy(generation_mode=mode))
    def fuzz(case: schemathesis.Case) -> None:
        response = case.call(base_url=url, headers={"Authorization": f"Bearer {token}"})
        codes[response.status_code] += 1
        between = mode is GenerationMode.POSITIVE and response.status_code == 422
        if between:
            assert any(text in response.json()["detail"] for text in BETWEEN_FIELDS), response.text
        excluded = CHECKS.get_by_names(["positive_data_acceptance"]) if between else []
        case.validate_response(response, excluded_checks=excluded)

    fuzz()
    assert codes[200] if mode is GenerationMode.POSITIVE else codes[422], codes


@pytest.mark.parametrize("mode", list(GenerationMode))
@pytest.mark.parametrize(
    ("label", "examples"),
    exhaustive_after(
        [
            ("POST progress", 8),
            ("POST progress", 50),
            ("GET decision", 50),
            ("POST trainer-status", 50),
            ("POST pipeline/ranks/{rank}/report", 50),
            ("POST pipeline/straggler", 50),
        ]
    ),
)
def test_any_request_for_a_recurrence_gets_a_documented_response(
    label: str, examples: int, mode: GenerationMode, api: Api, recurrence: tuple[str, str]
) -> None:
    name, token = recurrence
    if label == "POST trainer-status":
        name, token = api.recurrence(reporting=Reporting(source=ReportingSource.KUBEFLOW_TRAINER))
    document = served_description(api.url)
    # The names are limited to the recurrence of the token.
    for operations in document["paths"].values():
        for operation in operations.values():
            for parameter in operation["parameters"]:
                parameter["schema"] = {"enum": [{"namespace": "team", "name": name, "rank": 0}[parameter["name"]]]}
    method, last = label.split()
    described = schemathesis.openapi.from_dict(document)
    operation = described[f"/v1/namespaces/{{namespace}}/recurrences/{{name}}/{last}"][method]
    check_responses(operation, mode, api.url, token, examples)


@pytest.mark.parametrize(
    ("mode", "examples"),
    exhaustive_after([(GenerationMode.POSITIVE, 8), (GenerationMode.POSITIVE, 50), (GenerationMode.NEGATIVE, 50)]),
)
def test_any_request_for_a_node_gets_a_documented_response(
    mode: GenerationMode, examples: int, node_api: NodeApi
) -> None:
    document = served_description(node_api.url)
    path = document["paths"]["/v1/nodes/{node}/energy"]["post"]
    path["parameters"][0]["schema"] = {"enum": [NODE]}
    if mode is GenerationMode.POSITIVE:
        path["requestBody"]["content"]["application/json"]["schema"]["properties"]["node"]["enum"] = [NODE]
    operation = schemathesis.openapi.from_dict(document)["/v1/nodes/{node}/energy"]["POST"]
    check_responses(operation, mode, node_api.url, json_web_token("agent"), examples)


def test_the_generated_description_is_the_one_that_the_api_serves(node_api: NodeApi) -> None:
    assert json.loads(openapi_text()) == served_description(node_api.url)
