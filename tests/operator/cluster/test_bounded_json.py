"""What is read of the API server's JSON, and in which form it passes through kopf."""

import json
from typing import Any

import pytest

from wattloop_operator.cluster.bounded_json import MAX_OBJECT_BYTES, UnreadableError, parse, parse_response
from wattloop_operator.cluster.informer.stored_parts import Body, own_part, read_event, read_list, unreadable_problem

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
    event_type, found = read_event(f'{{"type":"MODIFIED","object":{hostile}}}'.encode(), own_part)
    assert event_type == "MODIFIED"
    assert found["metadata"] == METADATA
    assert unreadable_problem(found)


def test_of_an_event_the_part_that_is_kept_is_read() -> None:
    event_type, found = read_event(f'{{"type":"ADDED","object":{PLAIN}}}'.encode(), own_part)
    assert event_type == "ADDED"
    assert found == own_part(json.loads(PLAIN))
    assert not unreadable_problem(found)


def test_a_bookmark_stays_as_it_is() -> None:
    bookmark = {"metadata": {"resourceVersion": "9"}}
    event = json.dumps({"type": "BOOKMARK", "object": bookmark}).encode()
    assert read_event(event, own_part) == ("BOOKMARK", bookmark)


@pytest.mark.parametrize("line", [b"[]", b'{"type":"ADDED","object":[]}', b'{"type":"ADDED"}', b'{"type":"ADDED"'])
def test_what_is_no_event_is_an_error_that_says_so(line: bytes) -> None:
    with pytest.raises(UnreadableError, match="it is no"):
        read_event(line, own_part)


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
