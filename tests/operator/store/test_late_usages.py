"""Late usages on both databases: the latest of an attempt counts."""

from wattloop_operator.store import LateUsage, Store

LATE_USAGE = LateUsage("job", 3, 1, 1200.0, 12.0)


def test_a_later_usage_of_an_attempt_replaces_the_earlier_one(store: Store) -> None:
    store.late_usages.record(LATE_USAGE)
    store.late_usages.record(LateUsage("job", 3, 1, 1300.0, 13.0))
    store.late_usages.record(LateUsage("job", 2, 0, 1.0, 2.0))
    store.late_usages.record(LateUsage("other", 3, 1, 7.0, 7.0))
    assert store.late_usages.of_job("job") == (LateUsage("job", 2, 0, 1.0, 2.0), LateUsage("job", 3, 1, 1300.0, 13.0))
