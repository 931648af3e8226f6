"""The live view of `wattloop run` in a terminal.

Attempts that have ended are printed in one line each, of at most the width of the terminal, and scroll away like other
output, so that none is hidden. Below them, a region that is drawn again shows what runs now.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from rich.cells import cell_len
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from wattloop.printable import printable
from wattloop_operator.api.attempt_state import Result
from wattloop_operator.api.batch_size import DecisionKind
from wattloop_operator.domain.progress import Progress
from wattloop_operator.domain.quantities import NONE, Units, metric_text
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.history.energy_origin import energy_note
from wattloop_operator.history.job_history import JobHistory
from wattloop_operator.history.rows import RecurrenceRow, rows_of
from wattloop_operator.local.run_clock import now
from wattloop_operator.reconcile.energy.counted_intervals import duration_seconds
from wattloop_operator.reconcile.learning.job_observations import sorted_values
from wattloop_planner.bandit.configuration import Configuration

# Width of the table if it is not shown in a terminal.
PLAIN_WIDTH = 80
# Codes of decisions whose kind is not a short word by itself.
CODES = {DecisionKind.COMPARISON.value: "compare"}
RETRY = "retry"
# The policy decides so while no configuration is expected to reach the target.
SEARCH = "search"
# Outcomes that are too long for the column.
OUTCOMES = {
    "deadline-exceeded": "deadline",
    "missing-metric": "no metric",
    "name-conflict": "conflict",
    "start-failed": "no start",
    "script-error": "script",
}


@dataclass(frozen=True)
class AttemptLine:
    """An attempt that has ended.

    Attributes:
        row: Its row in the history.
        metric: The last value of the target's metric; None if there is none.
        why: Short code of the reason of its configuration; the history has the whole reason.
    """

    row: RecurrenceRow
    metric: float | None
    why: str

    @property
    def key(self) -> tuple[int, int]:
        """Recurrence and attempt."""
        return self.row.recurrence, self.row.attempt


@dataclass(frozen=True)
class Column:
    """A column of the table.

    Attributes:
        title: Its title, in which {0} are the units.
        width: Its width in a table of `PLAIN_WIDTH`.
        is_number: Whether it is aligned to the right.
        cell: Text of an attempt, by the units of the table.
        importance: Less important columns are left out first.
    """

    title: str
    width: int
    is_number: bool
    cell: Callable[[AttemptLine, Units], str]
    importance: int


def ended_attempts(history: JobHistory) -> tuple[AttemptLine, ...]:
    """The attempts that have ended, by rising (recurrence, attempt)."""
    default = history.default_batch_size
    return tuple(
        AttemptLine(row, record.metric, reason_code(record.decision_kind, record.attempt, record.batch_size == default))
        for row, record in zip(rows_of(history), history.records, strict=True)
    )


def reason_code(decision_kind: str, attempt: int, is_default: bool) -> str:
    """Why a configuration was chosen, as one short word.

    Args:
        decision_kind: The kind of the decision.
        attempt: Index of the attempt within its recurrence.
        is_default: Whether it has the default batch size.

    Example:
        >>> reason_code("Trial", 0, False), reason_code("Default", 0, False), reason_code("Trial", 2, False)
        ('trial', 'search', 'retry')
    """
    if attempt > 0:
        return RETRY
    if decision_kind == DecisionKind.DEFAULT.value and not is_default:
        return SEARCH
    return CODES.get(decision_kind, decision_kind.lower())


def configuration_text(configuration: Configuration, power_limit_watts: float | None) -> str:
    """A configuration and its power limit in a short form.

    Example:
        >>> configuration_text(Configuration(64, (("learning_rate", "0.2"),)), 300.0)
        '64,0.2@300'
    """
    values = ",".join((str(configuration.batch_size), *(value for _, value in configuration.parameters)))
    return values if power_limit_watts is None else f"{values}@{power_limit_watts:.0f}"


# What is compared with the default configuration changes with later runs, so no line that stays has it.
COLUMNS = (
    Column("run", 4, True, lambda line, _: str(line.row.recurrence), 10),
    Column(
        "batch@W", 8, False, lambda line, _: configuration_text(line.row.configuration, line.row.power_limit_watts), 10
    ),
    Column("epochs", 6, True, lambda line, _: f"{line.row.epochs:.3g}", 2),
    Column("metric", 7, True, lambda line, _: metric_text(line.metric) or NONE, 6),
    Column("energy ({0.energy.name})", 12, True, lambda line, units: units.energy.number(line.row.energy_joules), 4),
    Column("time ({0.time.name})", 10, True, lambda line, units: units.time.number(line.row.time_seconds), 3),
    Column("result", 9, False, lambda line, _: OUTCOMES.get(line.row.outcome, line.row.outcome), 9),
    Column("why", 9, False, lambda line, _: line.why, 8),
)


def header(width: int, units: Units) -> str:
    """The titles of the columns."""
    return _joined([(column, column.title.format(units)) for column in _shown(width)], width)


def line_text(line: AttemptLine, width: int, units: Units) -> str:
    """The line of an attempt: at most this many characters, without control characters."""
    return _joined([(column, column.cell(line, units)) for column in _shown(width)], width)


def clipped(text: str, width: int) -> str:
    r"""Printable text of at most this many characters; an ellipsis marks what is left out.

    Example:
        >>> clipped("incumbent", 9), clipped("incumbent", 5), clipped("a\x1b[2Jb", 9)
        ('incumbent', 'incu…', 'a?[2Jb')
    """
    # Characters of two columns, such as Chinese ones in the value of a parameter, would break the table.
    shown = "".join(each if each.isprintable() and cell_len(each) == 1 else "?" for each in text)
    return shown if len(shown) <= width else shown[: max(width - 1, 0)] + "…"[: max(width, 0)]


def _shown(width: int) -> tuple[Column, ...]:
    columns = list(COLUMNS)
    while sum(column.width for column in columns) + len(columns) - 1 > width:
        optional = [column for column in columns if column.importance < 10]
        if not optional:
            break
        columns.remove(min(optional, key=lambda column: column.importance))
    return tuple(columns)


def _joined(cells: list[tuple[Column, str]], width: int) -> str:
    free = max(width - sum(column.width for column, _ in cells) - len(cells) + 1, 0)
    texts = []
    for column, cell in cells:
        # A wider terminal has more room for the values of parameters.
        size = column.width + (free if column.title == "batch@W" else 0)
        text = clipped(cell, size)
        texts.append(text.rjust(size) if column.is_number else text.ljust(size))
    return clipped(" ".join(texts).rstrip(), width)


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


@dataclass(eq=False)
class LiveView:
    """Shows a run in a terminal.

    Attributes:
        live: The region that is drawn again.
        recurrences: How many recurrences the run ends with; None if there is no limit.
        now: Returns the time, with a time zone.
    """

    live: Live
    console: Console
    recurrences: int | None
    now: Callable[[], datetime] = now

    def __post_init__(self) -> None:
        self._printed: set[tuple[int, int]] = set()
        self._units: Units | None = None
        # The latest two readings of each running attempt.
        self._readings: dict[str, tuple[Reading, Reading]] = {}

    def show(self, snapshot: Snapshot) -> None:
        """Print the attempts that have ended since the last call, and draw the rest again."""
        history = JobHistory.of_snapshot(snapshot)
        self._print_ended(history)
        running = sorted(
            (each for each in snapshot.recurrences if each.status.result is None), key=lambda each: each.order
        )
        lines = [text for each in running[:MAX_RUNNING] for text in self._running_lines(each, history)]
        if len(running) > MAX_RUNNING:
            lines.append(Text(f"and {len(running) - MAX_RUNNING} more"))
        note = energy_note([row.energy_origin for row in rows_of(history)])
        lines += [Text(line, style="yellow") for line in _wrapped(note, self.console.width, MAX_FACT_LINES)]
        lines.append(Text(self._bar(history, {each.spec.index for each in running})))
        self.live.update(Group(*lines), refresh=True)

    def _print_ended(self, history: JobHistory) -> None:
        width = self.console.width
        for each in ended_attempts(history):
            if each.key in self._printed:
                continue
            # A run that needs a larger unit begins another table.
            if len(self._printed) % LINES_BETWEEN_TITLES == 0 or self._units != history.units:
                self._units = history.units
                self.console.print(Text(header(width, history.units), style="bold"))
            self._printed.add(each.key)
            self.console.print(Text(line_text(each, width, history.units), style="" if each.row.reached else "dim"))

    def _running_lines(self, recurrence: TrainingAttempt, history: JobHistory) -> list[Text]:
        width = self.console.width
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
        elapsed = self.now() - started
        end = started + elapsed * (expected / epoch)
        return f"about {_clock_time(end, elapsed)} (epoch {expected:.3g})"

    def _bar(self, history: JobHistory, running: set[int]) -> str:
        done = len({record.recurrence for record in history.records if record.result == Result.REACHED.value})
        ended = len({record.recurrence for record in history.records} - running)
        if self.recurrences is None:
            return clipped(f"{ended} runs ended, {done} reached", self.console.width)
        total = max(self.recurrences, 1)
        counted = f"{min(ended, total)} of {total} runs, {done} reached"
        room = min(self.console.width - len(counted) - 4, MAX_BAR_CHARACTERS)
        if room < 5:
            return clipped(counted, self.console.width)
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
