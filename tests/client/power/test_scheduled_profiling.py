"""Ranks measure power limits by a schedule: the same limit in the same steps, whatever one of them misses."""

from dataclasses import dataclass, field

import pytest

from wattloop.power.windows import Totals
from wattloop.run.limit_choice import ScheduledProfiling
from wattloop.wire.message_fields import MessageError
from wattloop.wire.training_messages import LimitMeasurement, LimitSchedule

LIMITS = (300.0, 250.0, 200.0)
ALLOWED = (200.0, 300.0)
SCHEDULE = LimitSchedule(after_epoch=1, steps=3, limits_watts=(300, 250, 200))


@dataclass
class Rank:
    """A rank on a GPU that draws its limit; a step takes a second.

    Attributes:
        faults: What happens at a reading, by the number of the step: "missed" or "interrupted".
        held: The limit in each step.
    """

    profiling: ScheduledProfiling
    faults: dict[int, str] = field(default_factory=dict)
    held: list[float] = field(default_factory=list)
    joules: float = 0.0

    def steps(self, count: int) -> None:
        for _ in range(count):
            self.held.append(self.profiling.limit_watts)
            self.joules += self.profiling.limit_watts
            if not self.profiling.step_done(64.0):
                continue
            fault = self.faults.get(len(self.held))
            if fault == "missed":
                self.profiling.reading_missed()
            elif fault == "interrupted":
                self.profiling.restart_window()
            else:
                self.profiling.add_totals(Totals(self.joules, float(len(self.held))))


def test_rank_0_proposes_as_many_steps_as_a_window_needs() -> None:
    rank = Rank(ScheduledProfiling(LIMITS, times_steps=True))
    rank.steps(3)
    assert rank.profiling.proposal(1) is None
    rank.steps(8)
    assert rank.profiling.proposal(2) == LimitSchedule(2, 5, (300, 250, 200))
    assert rank.held == [300.0] * 11
    # Another rank proposes none.
    other = Rank(ScheduledProfiling(LIMITS, times_steps=False))
    other.steps(11)
    assert other.profiling.proposal(2) is None


@pytest.mark.parametrize(
    ("limits", "proposed"), [((300.5, 250.5, 200.5), (300, 250)), ((300.5, 250.5, 200.0), (300, 250, 200))]
)
def test_a_proposal_has_whole_watts_that_may_be_held(limits: tuple[float, ...], proposed: tuple[int, ...]) -> None:
    rank = Rank(ScheduledProfiling(limits, times_steps=True))
    rank.steps(11)
    assert rank.profiling.proposal(1).limits_watts == proposed


@pytest.mark.parametrize(
    ("faults", "measured"),
    [
        ({}, [300.0, 250.0, 200.0]),
        # At the begin of a window, and at its end.
        ({5: "missed"}, [300.0, 200.0]),
        ({5: "interrupted"}, [300.0, 200.0]),
        ({8: "missed"}, [300.0, 200.0]),
        ({8: "interrupted"}, [300.0, 200.0]),
        ({1: "missed", 12: "interrupted"}, [250.0]),
    ],
)
def test_a_limit_that_a_rank_misses_does_not_move_the_others(faults: dict[int, str], measured: list[float]) -> None:
    rank = Rank(ScheduledProfiling(LIMITS, times_steps=False), faults)
    assert rank.profiling.follow(SCHEDULE, ALLOWED)
    rank.steps(14)
    # A step to settle and three of the window; then the highest limit until all ranks have measured.
    assert rank.held == [300.0] * 4 + [250.0] * 4 + [200.0] * 4 + [300.0] * 2
    assert rank.profiling.measurements(192.0) == tuple(
        LimitMeasurement(watts, 3 * watts, 3.0, 1.0) for watts in measured
    )


def test_a_rank_that_may_not_hold_the_limits_does_not_follow() -> None:
    rank = Rank(ScheduledProfiling(LIMITS, times_steps=False))
    assert not rank.profiling.follow(SCHEDULE, (250.0, 300.0))
    rank.steps(5)
    assert rank.held == [300.0] * 5


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"after_epoch": 0}, "after_epoch: found 0, expected a whole number from 1"),
        ({"steps": 0}, "steps: found 0, expected a whole number from 1"),
        ({"limits_watts": [300, 300]}, "limits_watts: found '300' twice, expected one entry per limit"),
        ({"limits_watts": [0]}, "found 0, expected a whole number from 1"),
        ({"limits_watts": list(range(1, 18))}, "limits_watts"),
    ],
)
def test_a_schedule_is_checked(change: dict[str, object], text: str) -> None:
    with pytest.raises(MessageError, match=text):
        LimitSchedule.from_json({**SCHEDULE.to_json(), **change})
