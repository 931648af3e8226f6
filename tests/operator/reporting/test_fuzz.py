"""The API under schemathesis, from its own OpenAPI: no server error, and nothing that is not documented."""

from __future__ import annotations

from collections import Counter

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS
from schemathesis.schemas import BaseSchema

from support.reporting.reporting_api import Api
from wattloop_operator.reporting.openapi import main

# What a JSON schema cannot say, and a report must hold.
BETWEEN_FIELDS = ("energy is never negative", "expected at least the start's", "twice, expected one entry")


@pytest.fixture(scope="module")
def own(api: Api) -> tuple[str, str]:
    return api.recurrence()


@pytest.fixture(scope="module")
def described(api: Api, own: tuple[str, str]) -> BaseSchema:
    """The API as it describes itself, the names narrowed to the one recurrence that the token is for."""
    document = api.ask(f"{api.url}/openapi.json", None).body
    for operations in document["paths"].values():
        for operation in operations.values():
            for parameter in operation["parameters"]:
                parameter["schema"] = {"enum": ["team" if parameter["name"] == "namespace" else own[0]]}
    return schemathesis.openapi.from_dict(document)


@pytest.mark.parametrize("mode", list(GenerationMode))
@pytest.mark.parametrize("label", ["POST progress", "GET decision"])
def test_any_request_gets_a_documented_response(
    label: str, mode: GenerationMode, described: BaseSchema, api: Api, own: tuple[str, str]
) -> None:
    method, last = label.split()
    operation = described[f"/v1/namespaces/{{namespace}}/recurrences/{{name}}/{last}"][method]
    codes: Counter[int] = Counter()

    @settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(operation.as_strategy(generation_mode=mode))
    def fuzz(case: schemathesis.Case) -> None:
        response = case.call(base_url=api.url, headers={"Authorization": f"Bearer {own[1]}"})
        codes[response.status_code] += 1
        between = mode is GenerationMode.POSITIVE and response.status_code == 422
        if between:
            assert any(words in response.json()["detail"] for words in BETWEEN_FIELDS), response.text
        excluded = CHECKS.get_by_names(["positive_data_acceptance"]) if between else []
        case.validate_response(response, excluded_checks=excluded)

    fuzz()
    assert codes[200] if mode is GenerationMode.POSITIVE else codes[422], codes


def test_the_description_in_docs_is_up_to_date() -> None:
    assert main(["--check"]) == 0, "run make generate"
