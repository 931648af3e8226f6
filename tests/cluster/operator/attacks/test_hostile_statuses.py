"""Statuses that a namespace's owner writes by hand, beside a victim's job."""

from __future__ import annotations

import contextlib
import copy
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kubernetes import client
from kubernetes.dynamic import DynamicClient

from support.control_plane.operator_process import OperatorProcess
from support.control_plane.pod_runner import PodRunner
from support.control_plane.victims import assert_works, await_reached
from wattloop_operator.api.model import GROUP, VERSION
from wattloop_operator.domain.names import JobKey

PLURALS = ("recurringtrainingjobs", "trainingrecurrences")
NUMBERS: tuple[Any, ...] = (0, -1, 10**15, 2**53, 1e308, -0.0)
TEXTS: tuple[Any, ...] = (
    "",
    "0",
    "-5",
    "1e308",
    "NaN",
    "9" * 300,
    "\u202e\u0007[/a]",
    "1970-01-01T00:00:00Z",
    "Reached",
)


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each container of a status with each of its keys."""
    for key, part in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield value, key
        yield from places(part)


def spoiled(status: dict[str, Any], numbers: random.Random) -> dict[str, Any]:
    """The status with another value at one place, which the schema often admits."""
    changed = copy.deepcopy(status)
    container, key = numbers.choice(list(places(changed)))
    value = container[key]
    if isinstance(container, dict) and numbers.random() < 0.3:
        del container[key]
    elif isinstance(value, list):
        container[key] = value * numbers.choice([0, 2, 50])
    elif isinstance(value, bool):
        container[key] = not value
    elif not isinstance(value, dict):
        container[key] = numbers.choice(TEXTS if isinstance(value, str) else NUMBERS)
    return changed


@pytest.mark.timeout(600)
def test_statuses_that_an_owner_writes_by_hand_delay_no_other_job(
    admin: client.ApiClient,
    operators: Callable[..., Callable[[], OperatorProcess]],
    make_job: Callable[..., JobKey],
    namespace: str,
    pod_runner: PodRunner,
    cluster: DynamicClient,
) -> None:
    operator = operators()()
    await_reached(cluster, make_job(), 1)
    objects, numbers = client.CustomObjectsApi(admin), random.Random(21)
    written = 0
    for _ in range(120):
        for plural in PLURALS:
            for found in objects.list_namespaced_custom_object(GROUP, VERSION, namespace, plural)["items"]:
                body = found | {"status": spoiled(found["status"], numbers)}
                with contextlib.suppress(client.ApiException):  # what the schema refuses
                    name = found["metadata"]["name"]
                    objects.replace_namespaced_custom_object_status(GROUP, VERSION, namespace, plural, name, body)
                    written += 1
    assert written > 60
    await_reached(cluster, make_job(), 1)
    assert_works(operator)
