"""Objects of the local mode on both databases: optimistic concurrency as in an API server."""

import json
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wattloop.errors import InputError
from wattloop_operator.api.attempt_state import ProgressSummary
from wattloop_operator.api.checks.documents import read_documents
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.store import ObjectConflictError, ObjectExistsError, ObjectMissingError, Store

KIND = "TrainingRecurrence"
MANIFEST = Path(__file__).parents[2] / "manifests" / "valid" / "training-recurrence.yaml"


def recurrence(**replaced: object) -> dict[str, Any]:
    body: dict[str, Any] = next(read_documents(str(MANIFEST), MANIFEST.read_text(encoding="utf-8"))).value
    return body | replaced


def test_only_objects_of_the_kind_and_of_the_namespaces_and_names_are_read(store: Store) -> None:
    for kind, namespace, name in (
        (KIND, "a", "x"),
        (KIND, "a", "y"),
        (KIND, "b", "x"),
        (KIND, "b", "y"),
        ("J", "a", "x"),
    ):
        store.objects.create(kind, namespace, name, {})
    found = store.objects.named(KIND, [("a", "x"), ("b", "y"), ("c", "z"), *(("n", str(i)) for i in range(600))])
    assert [(each.kind, each.namespace, each.name) for each in found] == [(KIND, "a", "x"), (KIND, "b", "y")]


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(
    max_examples=settings().max_examples // 4,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(body=st.dictionaries(st.text(max_size=5), json_values, max_size=3))
def test_any_json_is_read_unchanged(store: Store, body: dict[str, object]) -> None:
    if (old := store.objects.get(KIND, "team", "any")) is not None:
        store.objects.delete(KIND, "team", "any", expected_version=old.resource_version)
    store.objects.create(KIND, "team", "any", body)
    stored = store.objects.get(KIND, "team", "any")
    assert stored.body == json.loads(json.dumps(body))


def test_of_concurrent_creators_of_one_name_one_succeeds(store: Store) -> None:
    def create(number: int) -> bool:
        try:
            store.objects.create(KIND, "team", "digits-0", {"number": number})
        except ObjectExistsError:
            return False
        return True

    with ThreadPoolExecutor(6) as threads:
        created = list(threads.map(create, range(12)))
    assert sum(created) == 1
    stored = store.objects.get(KIND, "team", "digits-0")
    assert stored.body == {"number": created.index(True)}
    with pytest.raises(ObjectExistsError, match="TrainingRecurrence team/digits-0 exists already"):
        store.objects.create(KIND, "team", "digits-0", {})


def test_the_same_name_in_another_namespace_or_kind_is_another_object(store: Store) -> None:
    store.objects.create(KIND, "team", "digits", {})
    store.objects.create(KIND, "other", "digits", {})
    store.objects.create("RecurringTrainingJob", "team", "digits", {})
    assert [one.namespace for one in store.objects.list(KIND)] == ["other", "team"]
    assert [one.namespace for one in store.objects.list(KIND, "team")] == ["team"]
    assert store.objects.list("FrequencyPlan") == ()


def test_a_stale_write_is_rejected(store: Store) -> None:
    read = store.objects.create(KIND, "team", "digits-0", {"status": "old"})
    current = store.objects.replace(KIND, "team", "digits-0", {"status": "new"}, expected_version=read.resource_version)
    with pytest.raises(
        ObjectConflictError,
        match=rf"team/digits-0 has version {current.resource_version}, expected {read.resource_version}",
    ):
        store.objects.replace(KIND, "team", "digits-0", {"status": "lost"}, expected_version=read.resource_version)
    with pytest.raises(ObjectConflictError):
        store.objects.delete(KIND, "team", "digits-0", expected_version=read.resource_version)
    assert store.objects.get(KIND, "team", "digits-0") == current


def test_an_object_that_is_created_again_gets_a_new_version(store: Store) -> None:
    first = store.objects.create(KIND, "team", "digits-0", {})
    store.objects.delete(KIND, "team", "digits-0")
    second = store.objects.create(KIND, "team", "digits-0", {})
    assert second.resource_version > first.resource_version
    with pytest.raises(ObjectConflictError):
        store.objects.replace(KIND, "team", "digits-0", {}, expected_version=first.resource_version)


def test_a_missing_object_is_reported(store: Store) -> None:
    assert store.objects.get(KIND, "team", "digits-0") is None
    for change in (
        lambda: store.objects.replace(KIND, "team", "digits-0", {}, expected_version=1),
        lambda: store.objects.delete(KIND, "team", "digits-0"),
    ):
        with pytest.raises(ObjectMissingError, match="TrainingRecurrence team/digits-0 does not exist"):
            change()


def test_changing_a_body_does_not_change_the_store(store: Store) -> None:
    body = {"spec": {"batchSize": 32}}
    created = store.objects.create(KIND, "team", "digits-0", body)
    body["spec"]["batchSize"] = created.body["spec"]["batchSize"] = 64
    stored = store.objects.get(KIND, "team", "digits-0")
    assert stored.body == {"spec": {"batchSize": 32}}


@pytest.mark.parametrize("body", [{"cost": float("nan")}, {"cost": {1, 2}}])
def test_a_body_that_is_not_json_is_rejected(store: Store, body: dict[str, object]) -> None:
    with pytest.raises(InputError, match="team/digits-0: found a body that is not JSON"):
        store.objects.create(KIND, "team", "digits-0", body)
    assert store.objects.list(KIND) == ()


def test_a_field_that_this_version_does_not_know_is_left_out_of_a_stored_object(store: Store) -> None:
    """A database outlives the version that wrote it: fields are removed from an unreleased API."""
    status = {"devices": 2, "goneField": 1, "progress": {"epoch": "7", "goneField": {"deep": 1}}}
    stored = store.objects.create(KIND, "team", "gone", recurrence(status=status))
    read = stored.read_as(TrainingRecurrence)
    assert (read.status.devices, read.status.progress) == (2, ProgressSummary(epoch=Decimal(7)))
    assert read.metadata.resource_version == str(stored.resource_version)


def test_an_object_without_a_field_that_this_version_needs_is_refused_by_its_name(store: Store) -> None:
    body = recurrence()
    del body["spec"]["batchSize"]
    stored = store.objects.create(KIND, "team", "old", body)
    with pytest.raises(InputError, match=r"TrainingRecurrence team/old: found an object .*spec\.batchSize: .*required"):
        stored.read_as(TrainingRecurrence)
