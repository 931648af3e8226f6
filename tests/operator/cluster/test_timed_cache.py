"""What is remembered for a while."""

from __future__ import annotations

from wattloop_operator.cluster.timed_cache import TimedCache


def test_of_too_many_the_oldest_is_forgotten_and_what_was_kept_anew_is_not_old() -> None:
    remembered: TimedCache[str, int] = TimedCache(lambda: 0.0, seconds=1.0, most=2)
    for key, value in (("a", 1), ("b", 2), ("a", 3), ("c", 4)):
        remembered.keep(key, value)
    assert [remembered.get(key) for key in "abc"] == [3, None, 4]


def test_a_value_is_good_until_its_time_is_over_and_again_once_kept_anew() -> None:
    now = 0.0
    remembered: TimedCache[str, str] = TimedCache(lambda: now, seconds=10.0, most=2)
    remembered.keep("a", "")
    now = 9.9
    assert remembered.get("a") == ""
    now = 10.0
    assert remembered.get("a") is None
    remembered.keep("a", "anew")
    assert remembered.get("a") == "anew"
