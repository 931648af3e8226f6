"""At which of its requests an operator is killed: at one of each class, or, in the exhaustive set, at every one."""

from collections.abc import Callable, Sequence

import pytest

FatalRequests = Callable[[Sequence[str]], list[int]]


def one_of_each_class(calls: Sequence[str]) -> list[int]:
    """The number of the first request of each class, from 1: of each method on each kind of object or its status.

    >>> one = "/apis/batch/v1/namespaces/team/jobs"
    >>> one_of_each_class([f"POST {one}", f"GET {one}/a", f"GET {one}/b", f"PATCH {one}/a/status"])
    [1, 2, 4]
    """
    first: dict[tuple[str, ...], int] = {}
    for number, call in enumerate(calls, start=1):
        method, _, path = call.partition(" ")
        resource, *rest = path.partition("?")[0].rpartition("/namespaces/")[2].split("/")[1:] or [path]
        first.setdefault((method, resource, *rest[1:]), number)
    return list(first.values())


def every_request(calls: Sequence[str]) -> list[int]:
    """The numbers of all requests, from 1."""
    return list(range(1, len(calls) + 1))


FATAL_REQUESTS = [
    pytest.param(one_of_each_class, id="one-of-each-class"),
    pytest.param(every_request, id="every-one", marks=pytest.mark.exhaustive),
]
