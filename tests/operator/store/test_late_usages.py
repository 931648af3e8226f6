"""Amendments on both databases: of one attempt the latest stands, beside what was learned from it."""

from __future__ import annotations

import pytest

from wattloop.errors import InputError
from wattloop_operator.store import LateUsage, Store

AMENDMENT = LateUsage("job", 3, 1, 1200.0, 12.0)


def test_of_one_attempt_the_latest_stands(store: Store) -> None:
    store.late_usages.record(AMENDMENT)
    store.late_usages.record(LateUsage("job", 3, 1, 1300.0, 13.0))
    store.late_usages.record(LateUsage("job", 2, 0, 1.0, 2.0))
    store.late_usages.record(LateUsage("other", 3, 1, 7.0, 7.0))
    assert store.late_usages.of_job("job") == (
        LateUsage("job", 2, 0, 1.0, 2.0),
        LateUsage("job", 3, 1, 1300.0, 13.0),
    )


@pytest.mark.parametrize("joules", [-1.0, float("nan")])
def test_an_energy_that_cannot_be_is_refused(joules: float) -> None:
    with pytest.raises(InputError, match=r"late usage of job job, recurrence 3, attempt 1"):
        LateUsage("job", 3, 1, joules, 12.0)
