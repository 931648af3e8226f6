"""The store keeps the newest version of every object, in any order of arrival."""

from hypothesis import given
from hypothesis import strategies as st

from wattloop_operator.cluster.informer.object_store import CachedObject, ObjectStore

KEY = ("team", "a")


def cached(version: int, uid: str = "u", group: str = "job") -> CachedObject[int]:
    return CachedObject(KEY, uid, version, ("team", group), version)


@given(st.permutations(range(1, 8)))
def test_a_late_version_changes_nothing(order: list[int]) -> None:
    object_store: ObjectStore[int] = ObjectStore()
    stored = [version for version in order if object_store.put(cached(version))]
    found = object_store.get(KEY)
    assert found.value == 7
    assert stored == sorted(stored)


def test_a_repeated_version_is_not_new() -> None:
    object_store: ObjectStore[int] = ObjectStore()
    assert object_store.put(cached(1))
    assert not object_store.put(cached(1))


def test_an_earlier_event_does_not_restore_an_object_that_this_operator_deleted() -> None:
    object_store: ObjectStore[int] = ObjectStore()
    object_store.put(cached(1))
    assert object_store.remove(KEY, "u", before_event=True)
    assert not object_store.put(cached(2))
    assert len(object_store) == 0
    assert object_store.put(cached(3, uid="another"))


def test_a_new_object_of_the_same_name_is_not_removed_with_the_old_one() -> None:
    object_store: ObjectStore[int] = ObjectStore()
    object_store.put(cached(1))
    object_store.put(cached(5, uid="another"))
    assert not object_store.remove(KEY, "u")
    assert object_store.get(KEY) is not None


def test_an_object_is_only_in_its_current_group() -> None:
    object_store: ObjectStore[int] = ObjectStore()
    object_store.put(cached(1, group="first"))
    object_store.put(cached(2, group="second"))
    assert object_store.of_group(("team", "first")) == []
    assert [each.version for each in object_store.of_group(("team", "second"))] == [2]
