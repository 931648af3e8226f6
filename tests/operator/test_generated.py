"""The CustomResourceDefinitions are up to date and follow Kubernetes' conventions."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from wattloop_operator import generated
from wattloop_operator.api.schemas import KINDS, structural_schema

REPOSITORY = Path(__file__).parents[2]
INVALID = REPOSITORY / "tests" / "manifests" / "invalid"
Node = tuple[str, dict[str, Any]]


def nodes(schema: dict[str, Any], path: str) -> Iterator[Node]:
    """This schema and all schemas below it, with their paths."""
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


def test_the_generated_files_are_up_to_date() -> None:
    assert generated.main(["--check", str(REPOSITORY)]) == 0


def test_the_reference_lists_every_field() -> None:
    page = (REPOSITORY / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
    rows = set(re.findall(r"^\| `([\w.\[\]]+)` \|", page, re.MULTILINE))
    fields = {re.sub(r"^\w+\.(spec|status)\.", "", path) for path, _ in ALL if path.count(".") > 1}
    assert {re.sub(r"(\[\])+$", "", each) for each in fields} <= rows


def test_a_missing_changed_or_superfluous_file_is_out_of_date(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert generated.main([str(tmp_path)]) == 0
    first, second, *_ = sorted(tmp_path.glob("crds/*.yaml"))
    first.write_text("")
    second.unlink()
    (tmp_path / "crds" / "superfluous.yaml").write_text("")
    assert generated.main(["--check", str(tmp_path)]) == 1
    messages = capsys.readouterr().err.splitlines()
    stale = sorted((first, second, tmp_path / "crds" / "superfluous.yaml"))
    assert messages == [f"{path}: out of date; run make generate" for path in stale]


def test_every_field_has_a_description() -> None:
    fields = [path for path, schema in ALL if not path.endswith("[]") and not schema.get("description")]
    assert not fields


def test_every_string_has_a_maximum_length() -> None:
    strings = [(path, schema) for path, schema in ALL if schema.get("type") == "string"]
    assert strings
    assert not [path for path, schema in strings if "enum" not in schema and "maxLength" not in schema]


def test_every_list_has_a_list_type_and_a_maximum_length() -> None:
    lists = [(path, schema) for path, schema in ALL if schema.get("type") == "array"]
    assert lists
    assert not [path for path, schema in lists if "x-kubernetes-list-type" not in schema or "maxItems" not in schema]


def test_every_map_has_a_maximum_size() -> None:
    maps = [(path, schema) for path, schema in ALL if "additionalProperties" in schema]
    assert maps
    assert not [path for path, schema in maps if "maxProperties" not in schema]


def test_no_field_but_a_deadline_that_is_written_as_a_number_is_a_float() -> None:
    assert [path for path, schema in ALL if schema.get("type") == "number"] == [
        "rtj.spec.power.frequencyPlan.deadlineSeconds"
    ]
    # A field that takes a number or its text has no type.
    assert all(schema.get("x-kubernetes-preserve-unknown-fields") for _, schema in ALL if "type" not in schema)


def test_enum_values_are_in_camel_case() -> None:
    values = {value for path, schema in ALL for value in schema.get("enum", [])}
    assert "Maximize" in values
    assert not [value for value in values if not re.fullmatch(r"([A-Z][a-z]+)+", value)]


def test_no_status_field_has_a_default() -> None:
    assert not [path for path, schema in ALL if ".status" in path and "default" in schema]


def test_every_rule_rejects_a_manifest() -> None:
    expected = "\n".join(path.read_text(encoding="utf-8") for path in INVALID.glob("*.yaml"))
    rules = [rule for _, schema in ALL for rule in schema.get("x-kubernetes-validations", [])]
    assert rules
    messages = [rule["message"] for rule in rules if "oldSelf" not in rule["rule"]]
    assert not [message for message in messages if re.split("[;:,(]", message)[0] not in expected]


def test_what_an_optional_field_of_a_spec_means_without_a_value_is_explained() -> None:
    """By a default, or in the description. A member of a union needs neither."""
    unexplained = [
        f"{path}.{name}"
        for path, schema in ALL
        if ".spec" in path
        for name, part in schema.get("properties", {}).items()
        if name not in schema.get("required", [])
        and "default" not in part
        and not re.search(r"Absent|Empty|default", part.get("description", ""))
        and not any(
            rule["message"].startswith("exactly one of") and name in re.findall(r"\w+", rule["message"])
            for rule in schema.get("x-kubernetes-validations", [])
        )
    ]
    assert unexplained == []
