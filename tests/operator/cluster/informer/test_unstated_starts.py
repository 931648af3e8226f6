"""A start is remembered until the status of its recurrence names the workload, and no longer than the recurrence."""

from typing import Any

from support.recurrence_objects import recurrence_object
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.cluster.informer.object_cache import ObjectCache

WORKLOAD = {"apiVersion": "batch/v1", "kind": "Job", "uid": "job"}


def run(version: int, **status: Any) -> dict[str, Any]:
    return recurrence_object("run-0", "run-0", str(version), status)


RUN = TrainingRecurrence.from_wire(run(1))


def test_a_start_is_unstated_until_the_status_names_the_workload() -> None:
    cache = ObjectCache()
    cache.put_recurrence(run(1))
    cache.add_start(RUN)
    cache.put_recurrence(run(2, message="it starts"))
    assert cache.is_start_unstated(RUN)
    cache.put_recurrence(run(3, workloadRef=WORKLOAD))
    assert not cache.is_start_unstated(RUN)


def test_no_start_of_a_deleted_recurrence_is_remembered() -> None:
    cache = ObjectCache()
    cache.put_recurrence(run(1))
    cache.add_start(RUN)
    cache.remove_recurrence(run(1))
    assert not cache.is_start_unstated(RUN)
    cache.add_start(RUN)
    assert not cache.is_start_unstated(RUN), "its deletion was reported while its workload started"
