"""The CustomResourceDefinitions: up to date, and written by Kubernetes' conventions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from wattloop_operator.api import crd, reference
from wattloop_operator.api.schemas import KINDS, structural_schema

REPOSITORY = Path(__file__).parents[3]
REFUSED = REPOSITORY / "tests" / "manifests" / "refused"
Node = tuple[str, dict[str, Any]]


def nodes(schema: dict[str, Any], path: str) -> Iterator[Node]:
    """Every schema below this one, itself included, with its path."""
    yield path, schema
    for name, part in schema.get("properties", {}).items():
        yield from nodes(part, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from nodes(schema[key], f"{path}[]")


ALL: list[Node] = [
    node
    for model in KINDS
    for node in nodes(structural_schema(model), model.resource.short_name)
    if not re.match(r"\w+\.(apiVersion|kind|metadata)$", node[0])
]


def test_the_files_are_what_the_models_say() -> None:
    assert crd.main(["--check", str(REPOSITORY / "crds")]) == 0
    assert reference.main(["--check", str(REPOSITORY / "docs")]) == 0


def test_the_page_of_the_api_tells_of_every_field() -> None:
    rows = set(re.findall(r"^\| `([\w.\[\]]+)` \|", reference.rendered(), re.MULTILINE))
    fields = {re.sub(r"^\w+\.(spec|status)\.", "", path) for path, _ in ALL if path.count(".") > 1}
    assert fields - {f"{row}[]" for row in rows} <= rows


def test_a_file_that_is_missing_changed_or_too_many_is_out_of_date(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert crd.main([str(tmp_path)]) == 0
    first, second, *_ = sorted(tmp_path.glob("*.yaml"))
    first.write_text("")
    second.unlink()
    (tmp_path / "strange.yaml").write_text("")
    assert crd.main(["--check", str(tmp_path)]) == 1
    said = capsys.readouterr().err.splitlines()
    stale = sorted((first, second, tmp_path / "strange.yaml"))
    assert said == [f"{path}: out of date; run make generate" for path in stale]


def test_every_field_is_described() -> None:
    fields = [path for path, schema in ALL if not path.endswith("[]") and not schema.get("description")]
    assert not fields


def test_every_text_is_bounded() -> None:
    texts = [(path, schema) for path, schema in ALL if schema.get("type") == "string"]
    assert texts
    assert not [path for path, schema in texts if "enum" not in schema and "maxLength" not in schema]


def test_every_list_is_typed_and_bounded() -> None:
    lists = [(path, schema) for path, schema in ALL if schema.get("type") == "array"]
    assert lists
    assert not [path for path, schema in lists if "x-kubernetes-list-type" not in schema or "maxItems" not in schema]


def test_every_map_is_bounded() -> None:
    maps = [(path, schema) for path, schema in ALL if "additionalProperties" in schema]
    assert maps
    assert not [path for path, schema in maps if "maxProperties" not in schema]


def test_there_are_no_floats() -> None:
    assert {schema["type"] for _, schema in ALL} == {"object", "array", "string", "integer", "boolean"}


def test_choices_are_in_camel_case_or_name_a_field() -> None:
    choices = {choice for path, schema in ALL for choice in schema.get("enum", []) if not path.endswith("policy")}
    assert "Maximize" in choices
    assert not [choice for choice in choices if not re.fullmatch(r"([A-Z][a-z]+)+", choice)]


def test_a_status_has_no_defaults() -> None:
    assert not [path for path, schema in ALL if ".status" in path and "default" in schema]


def test_every_rule_has_a_manifest_that_it_refuses() -> None:
    expected = "\n".join(path.read_text(encoding="utf-8") for path in REFUSED.glob("*.yaml"))
    rules = [rule for _, schema in ALL for rule in schema.get("x-kubernetes-validations", [])]
    assert rules
    about_creation = [rule["message"] for rule in rules if "oldSelf" not in rule["rule"]]
    assert not [message for message in about_creation if re.split("[;:,(]", message)[0] not in expected]
