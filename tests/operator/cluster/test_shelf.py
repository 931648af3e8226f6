"""The newest state of every object, whatever the order in which it is told."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from wattloop_operator.cluster.shelf import Held, Shelf

KEY = ("team", "a")


def held(version: int, uid: str = "u", group: str = "job") -> Held[int]:
    return Held(KEY, uid, version, ("team", group), version)


@given(st.permutations(range(1, 8)))
def test_what_comes_late_changes_nothing(order: list[int]) -> None:
    shelf: Shelf[int] = Shelf()
    news = [version for version in order if shelf.put(held(version))]
    found = shelf.get(KEY)
    assert found is not None
    assert found.value == 7
    assert news == sorted(news)


def test_an_echo_is_no_news() -> None:
    shelf: Shelf[int] = Shelf()
    assert shelf.put(held(1))
    assert not shelf.put(held(1))


def test_what_this_operator_deleted_is_not_brought_back_by_an_event_from_before() -> None:
    shelf: Shelf[int] = Shelf()
    shelf.put(held(1))
    assert shelf.remove(KEY, "u", by_us=True)
    assert not shelf.put(held(2))
    assert len(shelf) == 0
    assert shelf.put(held(3, uid="another"))


def test_an_object_made_anew_under_the_name_is_not_removed_with_the_old_one() -> None:
    shelf: Shelf[int] = Shelf()
    shelf.put(held(1))
    shelf.put(held(5, uid="another"))
    assert not shelf.remove(KEY, "u")
    assert shelf.get(KEY) is not None


def test_an_object_is_found_by_its_group_alone_and_changes_it() -> None:
    shelf: Shelf[int] = Shelf()
    shelf.put(held(1, group="first"))
    shelf.put(held(2, group="second"))
    assert shelf.of_group(("team", "first")) == []
    assert [each.version for each in shelf.of_group(("team", "second"))] == [2]
