"""Whole local runs during which the wall clock is set an hour back or a day ahead, beside one with a steady clock."""

import datetime as standard
import importlib
import itertools
import sys
from collections.abc import Callable
from typing import Any

import pytest

from support.local_runs.local_runs import LocalJob
from support.test_sets.parameters import exhaustive_after
from wattloop_operator.local import processes
from wattloop_operator.local.processes import TrainingProcess
from wattloop_operator.reporting.service import ReportService

# A command imports these when it needs them.
for module in ("local.local_run", "local.local_backend", "history.rows", "store.schema"):
    importlib.import_module(f"wattloop_operator.{module}")
HOUR, DAY = 3600.0, 86_400.0


class SetClock:
    """The wall clock of this process: real time, and how far it was set."""

    def __init__(self) -> None:
        self.ahead_seconds = 0.0
        self.sets = 0

    def set(self, seconds: float) -> None:
        """Set it once."""
        if not self.sets:
            self.ahead_seconds = seconds
            self.sets += 1

    def now(self, zone: standard.tzinfo | None = None) -> standard.datetime:
        return standard.datetime.now(zone) + standard.timedelta(seconds=self.ahead_seconds)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SetClock:
    """Each module of the product that asks for the time asks this clock."""
    made = SetClock()

    class AnyTime(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, standard.datetime)

    class Shifted(standard.datetime, metaclass=AnyTime):
        @classmethod
        def now(cls, tz: standard.tzinfo | None = None) -> Any:
            return made.now(tz)

    for name, module in list(sys.modules.items()):
        if name.startswith("wattloop_operator.") and getattr(module, "datetime", None) is standard.datetime:
            monkeypatch.setattr(module, "datetime", Shifted)
    return made


Moment = Callable[[pytest.MonkeyPatch, Callable[[], None]], None]


def after(owner: Any, name: str, calls: int = 1) -> Moment:
    """The moment after a function has returned so many times."""

    def arrange(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
        original, count = getattr(owner, name), itertools.count(1)

        def called(*arguments: Any, **named: Any) -> Any:
            result = original(*arguments, **named)
            if next(count) == calls:
                act()
            return result

        monkeypatch.setattr(owner, name, called)

    return arrange


MOMENTS: dict[str, Moment] = {
    "at an epoch": after(ReportService, "receive", 4),
    "at the start": after(TrainingProcess, "__init__"),
    "at the end": after(processes, "wait_for_group"),
}
FIGURES = ("recurrence", "attempt", "outcome", "epochs", "metric")
# By the simulated GPU's clock, and up to when its counter was read first.
MEASURED = ("time_seconds", "energy_joules", "cost_joules")


@pytest.mark.parametrize("seconds", [-HOUR, DAY], ids=["an hour back", "a day ahead"])
@pytest.mark.parametrize("moment", exhaustive_after(MOMENTS, usual=3))
@pytest.mark.timeout(120)
def test_a_clock_that_is_set_in_a_run_changes_no_figure_of_it(
    moment: str, seconds: float, local_job: LocalJob, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    local_job.job(activeDeadlineSeconds=600)
    steady = local_job.folder / "steady"
    assert local_job.run("--recurrences", "2", output=steady) == 0
    MOMENTS[moment](monkeypatch, lambda: clock.set(seconds))
    assert local_job.run("--recurrences", "2") == 0
    assert clock.sets == 1
    rows, expected = local_job.rows(), local_job.rows(steady)
    assert [[row[name] for name in FIGURES] for row in rows] == [[row[name] for name in FIGURES] for row in expected]
    for row, other in zip(rows, expected, strict=True):
        measured, steadily = ([float(each[name]) for name in MEASURED] for each in (row, other))
        print(f"run {row['recurrence']}: {measured}, with a steady clock {steadily}")
        assert measured == pytest.approx(steadily, rel=0.01)
