"""A resync repairs each object on its own."""

from dataclasses import replace
from typing import Any

import pytest

from support.control_plane.job_manifest import job_manifest
from wattloop_operator.cluster.api import RECURRING_TRAINING_JOBS, ClusterApi
from wattloop_operator.cluster.api_transport import Request
from wattloop_operator.cluster.informer.informer import Resync
from wattloop_operator.cluster.informer.object_cache import ObjectCache
from wattloop_operator.cluster.informer.stored_parts import Body
from wattloop_operator.cluster.informer.watched_kinds import watched_kinds
from wattloop_operator.domain.names import JobKey


@pytest.mark.parametrize("failing", ["wanted", "has_room", "job_of", "put"])
def test_an_object_that_fails_ends_no_repair_of_others(failing: str) -> None:
    jobs = [job_manifest(name) for name in ("a-hostile", "victim")]
    for each in jobs:
        each["metadata"] |= {"namespace": "team", "uid": each["metadata"]["name"], "resourceVersion": "5"}

    def server(request: Request) -> dict[str, Any]:
        named = [each for each in jobs if request.path.endswith(f"/{each['metadata']['name']}")]
        return named[0] if named else {"items": jobs, "metadata": {"resourceVersion": "5"}}

    kind = next(each for each in watched_kinds(ObjectCache()) if each.resource == RECURRING_TRAINING_JOBS)

    def step(body: Body) -> Any:
        if body["metadata"]["name"] == "a-hostile":
            raise AttributeError("unforeseen")
        return before(body)

    before, changed = getattr(kind, failing), replace(kind)
    # Frozen, and `has_room` is no field.
    object.__setattr__(changed, failing, step)
    resync = Resync(ClusterApi(server), changed, lambda _: True)
    assert resync.run() == {JobKey("team", "victim")}
