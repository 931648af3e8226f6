"""Lists of the largest objects are read within a bounded memory."""

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kubernetes.client import ApiClient, Configuration
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from support.test_sets.parameters import exhaustive_after
from wattloop.commands.settings import Address
from wattloop.errors import OperationError
from wattloop_operator.cluster.api import JOBS, PAGE_OBJECTS, PODS, ClusterApi
from wattloop_operator.cluster.api_transport import MAX_RESPONSE_BYTES, HttpTransport
from wattloop_operator.cluster.informer.stored_parts import Body, job_part, metadata_part, pod_part, read_list
from wattloop_operator.http.http_service import HttpService

LISTED = 10
# The largest that etcd stores has 1.5 MiB.
LARGE = 1_300_000
METADATA = '{"name":"x","namespace":"team","uid":"u","resourceVersion":"7","labels":{"wattloop.dev/recurrence":"r",'


def large_item(value: str, field: str = "spec") -> str:
    """An object with a value repeated in a list, to 1.3 MB."""
    repeated = ",".join([value] * (LARGE // (len(value) + 1)))
    return f'{{"metadata":{METADATA}"a":"b"}}}},"{field}":{{"x":[{repeated}]}}}}'


def listed(*items: str) -> bytes:
    return f'{{"kind":"XList","metadata":{{}},"items":[{",".join(items)}]}}'.encode()


def received(page: bytes, part: Callable[[Body], Body]) -> list[Body]:
    found: list[Body] = []
    assert read_list(page, part, found.append)["items"] == []
    return found


def peak_of(call: Callable[[], Any]) -> int:
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("value", exhaustive_after(['""', '"\\""', '{"name":"a"}']))
def test_a_page_of_the_largest_objects_takes_few_times_its_bytes(value: str) -> None:
    page = listed(*[large_item(value)] * LISTED)
    assert peak_of(lambda: received(page, pod_part)) < 5 * len(page)


@pytest.mark.parametrize(("part", "kind"), [(job_part, "jobs"), (pod_part, "pods")])
def test_of_a_job_or_a_pod_of_a_megabyte_a_kilobyte_is_kept(part: Callable[[Body], Body], kind: str) -> None:
    labels = ",".join(f'"label-{number}":"value"' for number in range(20_000))
    owners = ",".join(['{"uid":"u"}'] * 10_000)
    large = f'{{"metadata":{METADATA}{labels}}},"ownerReferences":[{owners}]}},"spec":{{"x":"{kind * 50_000}"}}}}'
    for item in (large, f"{large[:-1]},{large[1:]}", large_item('""')):
        (found,) = received(listed(item), part)
        assert len(str(found)) < 1000
        assert found["metadata"]["labels"] == {"wattloop.dev/recurrence": "r"}


def test_an_object_whose_json_is_longer_than_what_is_stored_ends_no_list() -> None:
    # Stored in 0.7 MB, since the API server stores pods as protocol buffers.
    gates = ",".join(['{"conditionType":"a"}'] * 140_000)
    long = f'{{"metadata":{METADATA}"a":"b"}}}},"spec":{{"readinessGates":[{gates}]}}}}'
    (found,) = received(listed(long), pod_part)
    assert found["metadata"]["name"] == "x"
    nameless = f'{{"metadata":{{"finalizers":["{"x" * 9_000_000}"]}}}}'
    assert [each["metadata"]["name"] for each in received(listed(nameless, long), pod_part)] == ["x"]


class PagingServer:
    """An API server with many objects of one size."""

    def __init__(self, count: int, item: bytes) -> None:
        self.limits: list[int] = []
        self._count = count
        self._item = item

    async def page(self, request: Request) -> StreamingResponse:
        """The next objects."""
        limit, first = int(request.query_params["limit"]), int(request.query_params.get("continue", 0))
        self.limits.append(limit)
        last = min(self._count, first + limit)
        following = f',"continue":"{last}"' if last < self._count else ""

        def parts() -> Iterator[bytes]:
            yield f'{{"metadata":{{"resourceVersion":"9"{following}}},"items":['.encode()
            for number in range(first, last):
                yield b"," * (number > first)
                yield self._item
            yield b"]}"

        return StreamingResponse(parts())


@contextmanager
def served(server: PagingServer) -> Iterator[ClusterApi]:
    app = Starlette(routes=[Route(JOBS.path(), server.page), Route(PODS.path(), server.page)])
    service = HttpService("API server", app, Address("127.0.0.1", 0))
    service.start()
    try:
        with ApiClient(Configuration(host=service.url)) as client:
            yield ClusterApi(HttpTransport(client))
    finally:
        service.stop()


def test_a_list_of_more_bytes_than_a_response_may_have_is_read_in_smaller_pages() -> None:
    count = 60
    server = PagingServer(count, large_item('""').encode())
    with served(server) as api:
        found: list[Any] = []
        peak = peak_of(lambda: found.extend(api.list(JOBS, metadata_only=True, part=metadata_part)[0]))
    assert [each["metadata"]["name"] for each in found] == ["x"] * count
    assert peak < 4 * MAX_RESPONSE_BYTES
    assert min(server.limits) * LARGE < MAX_RESPONSE_BYTES


def test_usual_objects_are_listed_in_full_pages() -> None:
    server = PagingServer(3 * PAGE_OBJECTS, f'{{"metadata":{METADATA}"a":"b"}}}}}}'.encode())
    with served(server) as api:
        assert len(api.list(PODS)[0]) == 3 * PAGE_OBJECTS
    assert server.limits == [PAGE_OBJECTS] * 3


def test_an_object_larger_than_any_response_is_an_error_and_not_read() -> None:
    server = PagingServer(2, b'"' + b"x" * (MAX_RESPONSE_BYTES + 1) + b'"')
    with served(server) as api, pytest.raises(OperationError, match="more than 16777216 bytes"):
        api.list(PODS)
