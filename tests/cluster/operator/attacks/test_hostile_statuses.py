"""Statuses that a namespace's owner writes by hand, beside a victim's job."""

import contextlib
import copy
import random
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from kubernetes import client
from kubernetes.dynamic import DynamicClient

from support.control_plane.commands import ClusterCommand
from support.control_plane.fixtures import MakeJob, Operators
from support.control_plane.in_process_operator import InProcessOperator
from support.control_plane.pod_runner import PodRunner
from support.control_plane.stored_pipeline import StoredPipeline
from support.control_plane.victims import assert_works, await_reached
from support.document_places import places
from support.pipelines.simulated_ranks import NEW_STATE, SimulatedOperator, ranks_of, run_until_planned
from support.test_sets.parameters import exhaustive_after
from wattloop_operator.api.model import GROUP, VERSION
from wattloop_operator.domain.names import JOB_LABEL
from wattloop_operator.store import Store

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


@pytest.mark.parametrize("rounds", exhaustive_after([15, 60]))
@pytest.mark.timeout(600)
def test_statuses_that_an_owner_writes_by_hand_delay_no_other_job(
    rounds: int,
    admin: client.ApiClient,
    operators: Operators,
    make_job: MakeJob,
    namespace: str,
    pod_runner: PodRunner,
    cluster: DynamicClient,
) -> None:
    operator = operators()()
    await_reached(cluster, make_job(), 1)
    objects, numbers = client.CustomObjectsApi(admin), random.Random(21)
    written = 0
    for _ in range(rounds):
        for plural in PLURALS:
            for found in objects.list_namespaced_custom_object(GROUP, VERSION, namespace, plural)["items"]:
                body = found | {"status": spoiled(found["status"], numbers)}
                with contextlib.suppress(client.ApiException):  # what the schema refuses
                    name = found["metadata"]["name"]
                    objects.replace_namespaced_custom_object_status(GROUP, VERSION, namespace, plural, name, body)
                    written += 1
    assert written > rounds / 2
    await_reached(cluster, make_job("victim"), 1)
    assert_works(operator)


@pytest.mark.parametrize("rounds", exhaustive_after([12, 40]))
@pytest.mark.timeout(600)
def test_statuses_of_frequency_plans_that_an_owner_writes_by_hand_delay_no_other_pipeline(
    rounds: int,
    admin: client.ApiClient,
    operator: InProcessOperator,
    store: Store,
    make_job: MakeJob,
    namespace: str,
    kubectl: ClusterCommand,
    caplog: pytest.LogCaptureFixture,
) -> None:
    running = SimulatedOperator(NEW_STATE)
    run_until_planned(running, ranks_of(2))
    assert running.state.profile is not None
    hostile, victim = (
        StoredPipeline(operator, store, make_job(name, power={"mode": "None"})) for name in ("hostile", "victim")
    )
    for each in (hostile, victim):
        key = replace(running.state.profile.key, job_uid=each.pipeline.job_uid)
        each.now = running.now
        each.store_state(replace(running.state, profile=replace(running.state.profile, key=key)))
        # The cache has the recurrences of both, as that of a running operator.
        operator.cache.put_recurrence(kubectl.json("get", "trec", each.recurrence.metadata.name, namespace=namespace))
    victim.writer.write()
    objects, numbers = client.CustomObjectsApi(admin), random.Random(21)
    written = 0
    for _ in range(rounds):
        plans = {each["metadata"]["labels"][JOB_LABEL]: each for each in listed(objects, namespace)}
        whole = plans["hostile"]
        body = whole | {"status": spoiled(whole["status"], numbers)}
        with contextlib.suppress(client.ApiException):  # what the schema refuses
            name = whole["metadata"]["name"]
            objects.replace_namespaced_custom_object_status(GROUP, VERSION, namespace, "frequencyplans", name, body)
            written += 1
        victim.now += timedelta(seconds=60)
        victim.start_writer()
        victim.writer.write()
    assert written > rounds / 4
    final = {each["metadata"]["labels"][JOB_LABEL]: each["status"] for each in listed(objects, namespace)}
    assert final["victim"]["recurrence"] == victim.recurrence.metadata.name
    types = {plan: {each["type"] for each in status["conditions"]} for plan, status in final.items()}
    # Conditions of other types stay their author's.
    assert types["victim"] <= types["hostile"]
    assert not [each for each in caplog.messages if victim.recurrence.metadata.name in each]


def listed(objects: client.CustomObjectsApi, namespace: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = objects.list_namespaced_custom_object(GROUP, VERSION, namespace, "frequencyplans")[
        "items"
    ]
    return found
