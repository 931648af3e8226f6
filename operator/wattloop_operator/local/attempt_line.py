"""One line for each attempt that has ended: the table of `wattloop run`, which never wraps.

A line has at most the width of the terminal. On a narrow one, less important columns are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rich.cells import cell_len

from wattloop_operator.api.batch_size_policy import DecisionKind
from wattloop_operator.domain.quantities import NONE, Units, metric_text
from wattloop_operator.history.job_history import JobHistory
from wattloop_operator.history.rows import RecurrenceRow, rows_of
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


def _outcome(line: AttemptLine) -> str:
    return OUTCOMES.get(line.row.outcome, line.row.outcome)


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
    Column("result", 9, False, lambda line, _: _outcome(line), 9),
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
