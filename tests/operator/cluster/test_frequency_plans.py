"""FrequencyPlans are written for each job, whatever the API server returns for another one's."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.control_plane.job_manifest import job_manifest
from support.pipelines.simulated_ranks import NEW_STATE, SimulatedOperator, ranks_of, run_until_planned
from support.recurrence_objects import recurrence_object
from wattloop_operator.cluster.api import ClusterApi
from wattloop_operator.cluster.api_transport import Request, StatusError, UnreadableResponseError
from wattloop_operator.cluster.frequency_plans import FrequencyPlanWriter
from wattloop_operator.cluster.informer.object_cache import ObjectCache
from wattloop_operator.reconcile.pipeline.pipeline_state import PipelineKey, PipelineState
from wattloop_operator.store import Store, open_store

Body = dict[str, Any]
# The first of them is looked at first.
JOBS = ("first", "second", "third")


class StoredObjects:
    """The transport of an API server that stores what is created, and how it returns one job's FrequencyPlan."""

    def __init__(self, spoil: Callable[[Request, Body], Body]) -> None:
        self.objects: dict[str, Body] = {}
        self.statuses: dict[str, Body] = {}
        self.spoil = spoil

    def __call__(self, request: Request) -> Body:
        """Answer a request."""
        if request.method == "PATCH":
            path = request.path.removesuffix("/status")
            self.statuses[path] = request.body["status"]
            return self._read(request, path) if path in self.objects else dict(request.body)
        if request.method == "POST":
            path = f"{request.path}/{request.body['metadata']['name']}"
            identity = {"uid": path, "resourceVersion": "1", "creationTimestamp": "2026-03-01T12:00:00Z"}
            self.objects[path] = {**request.body, "metadata": {**request.body["metadata"], **identity}}
            return self.objects[path]
        if request.path in self.objects:
            return self._read(request, request.path)
        if request.path.endswith("/frequencyplans"):
            return {"items": list(self.objects.values()), "metadata": {"resourceVersion": "1"}}
        raise StatusError(request, 404, "NotFound", "no such object")

    def written(self) -> set[str]:
        """The jobs whose FrequencyPlans have a status."""
        return {owner(self.objects[path]) for path in self.statuses.keys() & self.objects.keys()}

    def _read(self, request: Request, path: str) -> Body:
        found = {**self.objects[path], "status": self.statuses.get(path, {})}
        return self.spoil(request, found) if owner(found) == "first" else found


def owner(plan: Body) -> str:
    """The name of the job that owns a plan."""
    return str(plan["metadata"]["ownerReferences"][0]["name"])


def too_deep(request: Request, found: Body) -> Body:
    raise UnreadableResponseError(request, "it is nested too deep")


def another_form(request: Request, found: Body) -> Body:
    return {**found, "spec": {"archive": ["of another version"]}}


def no_object(request: Request, found: Body) -> Body:
    return {"kind": "Status"}


def planned_state(number: int) -> PipelineState:
    """The pipeline of a job's first attempt, whose ranks run a plan."""
    running = SimulatedOperator(NEW_STATE)
    run_until_planned(running, ranks_of(2))
    state = running.state
    uid = f"job-{number}"
    profile = replace(state.profile, key=replace(state.profile.key, job_uid=uid))
    return replace(state, key=PipelineKey(uid, 0, 0), namespace="team", name=f"run-{number}", profile=profile)


def changed_to(state: PipelineState) -> Callable[[PipelineState], PipelineState]:
    """A change of whatever is stored to a state."""
    return lambda _: state


def writer_of(store: Store, api: StoredObjects) -> FrequencyPlanWriter:
    """A writer of the operator's, for a job of each name whose first recurrence runs a plan."""
    cache = ObjectCache()
    now = SimulatedOperator(NEW_STATE).now
    for number, name in enumerate(JOBS):
        job = job_manifest(name)
        job["metadata"] |= {"namespace": "team", "uid": f"job-{number}", "resourceVersion": str(number + 1)}
        cache.put_job(job)
        reference = {"name": name, "uid": f"job-{number}"}
        cache.put_recurrence(recurrence_object(f"run-{number}", f"run-{number}", str(number + 1), jobRef=reference))
        state = planned_state(number)
        # The first change joins the profile of the key; a frontier is only known after it.
        for _ in range(2):
            store.pipelines.change(state, None, changed_to(state), lambda found: found, now)
    return FrequencyPlanWriter(ClusterApi(api), cache, store.pipelines, lambda: now)


@pytest.mark.parametrize("spoil", [too_deep, another_form, no_object])
def test_one_unreadable_plan_does_not_stop_the_writing_of_all_others(
    tmp_path: Path, spoil: Callable[[Request, Body], Body], caplog: pytest.LogCaptureFixture
) -> None:
    api = StoredObjects(lambda _, found: found)
    with open_store(f"sqlite:///{tmp_path}/wattloop.db") as store:
        writer_of(store, api).write()
        assert api.written() == set(JOBS)
        # After a restart, another program has spoiled the plan of the first job.
        api.statuses.clear()
        api.spoil = spoil
        writer = writer_of(store, api)
        writer.write()
        writer.write()
    assert api.written() == {"second", "third"}
    (record,) = [each for each in caplog.records if "FrequencyPlan" in each.getMessage()]
    assert "team/run-0: its FrequencyPlan is not up to date" in record.getMessage()
