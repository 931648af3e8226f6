"""The live view of `wattloop run` in a terminal.

Attempts that have ended are printed line by line and scroll away like other output, so that none is hidden. Below
them, a region that is drawn again shows what runs now.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from wattloop.printable import printable
from wattloop_operator.api.attempt_state import Result
from wattloop_operator.domain.progress import Progress
from wattloop_operator.domain.quantities import NONE, Units, metric_text
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.history.energy_origin import energy_note
from wattloop_operator.history.job_history import JobHistory
from wattloop_operator.history.rows import rows_of
from wattloop_operator.local.attempt_line import (
    clipped,
    configuration_text,
    ended_attempts,
    header,
    line_text,
    reason_code,
)
from wattloop_operator.local.run_clock import now
from wattloop_operator.reconcile.energy.counted_intervals import duration_seconds
from wattloop_operator.reconcile.learning.job_observations import sorted_values
from wattloop_planner.bandit.configuration import Configuration

# The titles are repeated, so that they are in sight.
LINES_BETWEEN_TITLES = 20
MAX_BAR_CHARACTERS = 40
# More running attempts than this are only counted.
MAX_RUNNING = 3
MAX_FACT_LINES = 2
MAX_REASON_LINES = 4


@dataclass(frozen=True)
class Reading:
    """Energy and time of an attempt's GPUs at a report."""

    energy_joules: float
    time_seconds: float


class LiveView:
    """Shows a run in a terminal.

    Args:
        live: The region that is drawn again.
        console: The terminal.
        recurrences: How many recurrences the run ends with; None if there is no limit.
        now: Returns the time, with a time zone.
    """

    def __init__(
        self,
        live: Live,
        console: Console,
        recurrences: int | None,
        now: Callable[[], datetime] = now,
    ) -> None:
        self._live = live
        self._console = console
        self._recurrences = recurrences
        self._now = now
        self._printed: set[tuple[int, int]] = set()
        self._units: Units | None = None
        # The latest two readings of each running attempt.
        self._readings: dict[str, tuple[Reading, Reading]] = {}

    def show(self, snapshot: Snapshot) -> None:
        """Print the attempts that have ended since the last call, and draw the rest again."""
        history = JobHistory.of_snapshot(snapshot)
        self._print_ended(history)
        running = sorted(
            (each for each in snapshot.recurrences if each.status.result is None),
            key=lambda each: each.order,
        )
        lines = [text for each in running[:MAX_RUNNING] for text in self._running_lines(each, history)]
        if len(running) > MAX_RUNNING:
            lines.append(Text(f"and {len(running) - MAX_RUNNING} more"))
        note = energy_note([row.energy_origin for row in rows_of(history)])
        lines += [Text(line, style="yellow") for line in _wrapped(note, self._console.width, MAX_FACT_LINES)]
        lines.append(Text(self._bar(history, {each.spec.index for each in running})))
        self._live.update(Group(*lines), refresh=True)

    def _print_ended(self, history: JobHistory) -> None:
        width = self._console.width
        for each in ended_attempts(history):
            if each.key in self._printed:
                continue
            # A run that needs a larger unit begins another table.
            if len(self._printed) % LINES_BETWEEN_TITLES == 0 or self._units != history.units:
                self._units = history.units
                self._console.print(Text(header(width, history.units), style="bold"))
            self._printed.add(each.key)
            self._console.print(Text(line_text(each, width, history.units), style="" if each.row.reached else "dim"))

    def _running_lines(self, recurrence: TrainingAttempt, history: JobHistory) -> list[Text]:
        width = self._console.width
        spec, progress = recurrence.spec, recurrence.progress
        configuration = Configuration(spec.batch_size, sorted_values(spec.parameters))
        limit = progress.power_limit_watts or spec.power_limit_watts
        power = self._power_watts(recurrence.metadata.name, progress)
        metric = NONE if progress.metric is None else metric_text(float(progress.metric))
        facts = (
            f"run {spec.index}: {configuration_text(configuration, limit)}",
            f"epoch {NONE if progress.epoch is None else f'{progress.epoch:f}'}",
            f"{printable(spec.target.metric)} {metric}",
            f"power {NONE if power is None else f'{power:.4g} W'}",
            f"end {self._predicted_end(recurrence, progress, configuration, history)}",
        )
        is_default = spec.batch_size == history.default_batch_size
        why = f"{reason_code(spec.decision.kind.value, spec.attempt, is_default)}: {spec.decision.reason}"
        return [
            *(Text(line, style="cyan") for line in _packed(facts, width)),
            *(Text(f"  {line}", style="dim cyan") for line in _wrapped(why, width - 2, MAX_REASON_LINES)),
        ]

    def _power_watts(self, name: str, progress: Progress) -> float | None:
        """Power of all GPUs between the latest two reports; None if it is not known."""
        if not progress.gpus:
            return None
        energy = sum(gpu.used_millijoules for gpu in progress.gpus) / 1e3
        reading = Reading(energy, float(duration_seconds(progress.gpus)))
        before, latest = self._readings.get(name, (Reading(0.0, 0.0), Reading(0.0, 0.0)))
        if reading.time_seconds > latest.time_seconds:
            before, latest = latest, reading
            self._readings[name] = before, latest
        elapsed = latest.time_seconds - before.time_seconds
        return (latest.energy_joules - before.energy_joules) / elapsed if elapsed > 0 else None

    def _predicted_end(
        self, recurrence: TrainingAttempt, progress: Progress, configuration: Configuration, history: JobHistory
    ) -> str:
        """When the attempt will reach the target, by the epochs of earlier ones with its configuration."""
        expected = history.expected_epochs(configuration)
        started, epoch = recurrence.status.start_time, float(progress.epoch or 0)
        if expected is None or started is None or not 0 < epoch < expected:
            return NONE
        elapsed = self._now() - started
        end = started + elapsed * (expected / epoch)
        return f"about {_clock_time(end, elapsed)} (epoch {expected:.3g})"

    def _bar(self, history: JobHistory, running: set[int]) -> str:
        done = len({record.recurrence for record in history.records if record.result == Result.REACHED.value})
        ended = len({record.recurrence for record in history.records} - running)
        if self._recurrences is None:
            return clipped(f"{ended} runs ended, {done} reached", self._console.width)
        total = max(self._recurrences, 1)
        counted = f"{min(ended, total)} of {total} runs, {done} reached"
        room = min(self._console.width - len(counted) - 4, MAX_BAR_CHARACTERS)
        if room < 5:
            return clipped(counted, self._console.width)
        filled = room * min(ended, total) // total
        return f"[{'#' * filled}{'-' * (room - filled)}] {counted}"


def _packed(facts: Sequence[str], width: int) -> list[str]:
    """The facts as a list that is wrapped between them alone, in at most `MAX_FACT_LINES` lines."""
    lines: list[str] = []
    for fact in facts:
        if lines and (len(lines) == MAX_FACT_LINES or len(lines[-1]) + len(fact) + 2 <= width):
            lines[-1] += f", {fact}"
        else:
            lines.append(fact)
    return [clipped(line, width) for line in lines]


def _wrapped(text: str, width: int, max_lines: int) -> list[str]:
    """The text as printable lines; an ellipsis ends the last one if there would be more."""
    shown = clipped(text, max(width, 1) * max_lines)
    return textwrap.wrap(shown, max(width, 1), max_lines=max_lines, placeholder="…")


def _clock_time(end: datetime, elapsed: timedelta) -> str:
    local = end.astimezone()
    if elapsed > timedelta(days=1):
        return f"{local:%Y-%m-%d %H:%M}"
    return f"{local:%H:%M:%S}" if elapsed < timedelta(minutes=10) else f"{local:%H:%M}"
