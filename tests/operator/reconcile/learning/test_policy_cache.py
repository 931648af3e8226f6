"""Which policies a process keeps between decisions."""

import pytest

from wattloop_operator.domain.policy_cache import OTHER_CELLS, PolicyCache
from wattloop_planner.bandit.fixed import FixedPolicy
from wattloop_planner.bandit.policy import NoFeasibleArmError, Policy

ARMS = 10


def taken(cache: PolicyCache, key: str, arms: int = ARMS) -> Policy:
    with cache.policy(key, FixedPolicy, arms) as policy:
        return policy


def test_a_policy_is_kept_by_its_key() -> None:
    cache = PolicyCache()
    first = taken(cache, "one")
    assert taken(cache, "one") is first
    assert taken(cache, "other") is not first


def test_a_policy_in_use_is_given_to_nobody_else() -> None:
    cache = PolicyCache()
    with cache.policy("one", FixedPolicy, ARMS) as first, cache.policy("one", FixedPolicy, ARMS) as second:
        assert first is not second


def test_a_policy_that_failed_is_dropped() -> None:
    cache = PolicyCache()
    with pytest.raises(NoFeasibleArmError), cache.policy("one", FixedPolicy, ARMS) as failed:
        raise NoFeasibleArmError("no arm")
    assert taken(cache, "one") is not failed


def test_the_policy_used_least_recently_makes_room() -> None:
    cache = PolicyCache(2 * (ARMS**2 + OTHER_CELLS))
    first, second = taken(cache, "first"), taken(cache, "second")
    assert taken(cache, "first") is first
    taken(cache, "third")
    assert taken(cache, "first") is first
    assert taken(cache, "second") is not second


def test_a_policy_larger_than_the_cache_is_not_kept() -> None:
    cache = PolicyCache(ARMS**2)
    assert taken(cache, "one") is not taken(cache, "one")
