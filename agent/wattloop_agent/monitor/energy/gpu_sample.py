"""One look at a GPU: what its energy is reckoned from."""

from __future__ import annotations

from typing import NamedTuple


class GpuSample(NamedTuple):
    """One look at a GPU. A tuple, since there are many and each look makes one a GPU.

    Attributes:
        uuid: The GPU.
        product: Its model.
        begin_seconds: The system's monotonic clock just before it was looked at.
        end_seconds: Just after.
        clock_seconds: The clock that its energy is integrated on: the same, or the simulator's.
        counter_millijoules: Its counter; None: it has none, was not asked for it, or did not answer.
        power_watts: What it draws; None: it does not say.
        problem: Why something is not known that it otherwise tells; empty: all is.
    """

    uuid: str
    product: str
    begin_seconds: float
    end_seconds: float
    clock_seconds: float
    counter_millijoules: int | None
    power_watts: float | None
    problem: str = ""
