"""What is read of the API server's JSON, and in which form it passes through kopf."""

from __future__ import annotations

import json
from typing import Any

import pytest

from wattloop_operator.cluster.bounded_json import MAX_OBJECT_BYTES, UnreadableError, parse, parse_response
from wattloop_operator.cluster.informer.stored_parts import (
    Body,
    own_part,
    packed_event,
    read_list,
    unpack,
    unreadable_problem,
)

METADATA = {
    "name": 'a "quoted\\" [',
    "namespace": "team",
    "uid": "u",
    "resourceVersion": "7",
    "labels": {"wattloop.dev/job": "b"},
}
# Of the upper levels of an event, each owner is null.
OWNERS = [{"kind": "ConfigMap", "name": "owner", "uid": "o"}]


def with_spec(spec: str, **metadata: Any) -> str:
    return f'{{"metadata":{json.dumps(METADATA | {"ownerReferences": OWNERS} | metadata)},"spec":{spec}}}'


DEEP = with_spec('{"a":' * 9000 + "1" + "}" * 9000)
LARGE = with_spec("[" + "[]," * 400_000 + "1]")
PLAIN = with_spec('{"text": "]}\\\\", "numbers": [1, 2.5, 12345678901234567890, null]}', annotations={"x": "y"})


@pytest.mark.parametrize("hostile", [DEEP, LARGE])
def test_an_unreadable_object_of_a_list_is_passed_over_alone(hostile: str) -> None:
    listed = f'{{"kind":"XList","items":[{PLAIN}, {hostile},{PLAIN}],"metadata":{{"continue":"next"}}}}'
    items: list[Body] = []
    body = read_list(listed.encode(), own_part, items.append)
    assert body == {"kind": "XList", "items": [], "metadata": {"continue": "next"}}
    first, unreadable, last = items
    assert last == first
    assert first["spec"] == json.loads(PLAIN)["spec"]
    assert unreadable["metadata"] == METADATA
    problem = unreadable_problem(unreadable)
    assert "nested more than 200 levels deep" in problem or "more than 1048576" in problem


@pytest.mark.parametrize("hostile", [DEEP, LARGE])
def test_an_event_of_an_unreadable_object_has_its_identity(hostile: str) -> None:
    event = json.loads(packed_event(f'{{"type":"MODIFIED","object":{hostile}}}'.encode()))
    assert event["type"] == "MODIFIED"
    assert event["object"]["metadata"] == METADATA
    with pytest.raises(UnreadableError):
        unpack(event["object"])


def test_an_object_that_was_unpacked_leaves_kopf_its_identity() -> None:
    event = packed_event(f'{{"type":"ADDED","object":{with_spec(json.dumps("x" * 100_000))}}}'.encode())
    packed = json.loads(event)["object"]
    assert len(unpack(packed)["spec"]) == 100_000
    assert len(str(packed)) < 200
    with pytest.raises(UnreadableError, match="it was read before"):
        unpack(packed)


def test_a_bookmark_stays_as_it_is() -> None:
    event = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}}
    assert json.loads(packed_event(json.dumps(event).encode())) == event


@pytest.mark.parametrize("status", [{"kind": "Status", "code": 410}, {"kind": "Status", "code": 500}, None, "text"])
def test_after_any_error_of_the_server_the_objects_are_listed_again(status: Any) -> None:
    event = json.loads(packed_event(json.dumps({"type": "ERROR", "object": status}).encode()))
    assert event == {"type": "ERROR", "object": {"code": 410}}


def test_a_list_of_metadata_keeps_an_object_with_deep_managed_fields() -> None:
    fields = '{"f:a":' * 3000 + "{}" + "}" * 3000
    deep = f'{{"metadata":{{"managedFields":[{{"fieldsV1":{fields}}}],"name":"deep","uid":"u"}}}}'
    (item,) = parse_response(f'{{"items":[{deep}],"metadata":{{}}}}'.encode())["items"]
    assert (item["metadata"]["name"], item["metadata"]["uid"]) == ("deep", "u")


def test_a_text_beyond_the_bound_or_without_json_is_unreadable() -> None:
    for text in (b'"' + b"x" * MAX_OBJECT_BYTES + b'"', b"<html>", b"", b'{"items":[', b'{"a":"'):
        with pytest.raises(UnreadableError):
            parse(text)
        with pytest.raises(UnreadableError):
            parse_response(text)
