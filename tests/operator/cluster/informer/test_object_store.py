"""The newest state of every object, whatever the order in which it is told."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from wattloop_operator.cluster.informer.object_store import CachedObject, ObjectStore

KEY = ("team", "a")


def held(version: int, uid: str = "u", group: str = "job") -> CachedObject[int]:
    return CachedObject(KEY, uid, version, ("team", group), version)


@given(st.permutations(range(1, 8)))
def test_what_comes_late_changes_nothing(order: list[int]) -> None:
    object_store: ObjectStore[int] = ObjectStore()
    news = [version for version in order if object_store.put(held(version))]
    found = object_store.get(KEY)
    assert found is not None
    assert found.value == 7
    assert news == sorted(news)


def test_an_echo_is_no_news() -> None:
    object_store: ObjectStore[int] = ObjectStore()
    assert object_store.put(held(1))
    assert not object_store.put(held(1))


def test_what_this_operator_deleted_is_not_brought_back_by_an_event_from_before() -> None:
    object_store: ObjectStore[int] = ObjectStore()
    object_store.put(held(1))
    assert object_store.remove(KEY, "u", by_us=True)
    assert not object_store.put(held(2))
    assert len(object_store) == 0
    assert object_store.put(held(3, uid="another"))


def test_an_object_made_anew_under_the_name_is_not_removed_with_the_old_one() -> None:
    object_store: ObjectStore[int] = ObjectStore()
    object_store.put(held(1))
    object_store.put(held(5, uid="another"))
    assert not object_store.remove(KEY, "u")
    assert object_store.get(KEY) is not None


def test_an_object_is_found_by_its_group_alone_and_changes_it() -> None:
    object_store: ObjectStore[int] = ObjectStore()
    object_store.put(held(1, group="first"))
    object_store.put(held(2, group="second"))
    assert object_store.of_group(("team", "first")) == []
    assert [each.version for each in object_store.of_group(("team", "second"))] == [2]
