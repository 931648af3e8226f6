"""What the jobs of a database used in a calendar month: energy, GPU time, money and carbon, by team and job.

A team is a namespace. An attempt belongs to the month, in UTC, in which it ended. Its energy is that of
`wattloop history`; price and carbon intensity are those that its namespace has now.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from rich.table import Table
from rich.text import Text

from wattloop.printable import printable
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.domain.quantities import NONE, UNKNOWN, Units, money_text, number_text
from wattloop_operator.domain.tariff import Tariff, Tariffs, tariff_of
from wattloop_operator.history.energy_origin import ANNOTATION, energy_note, origin_of_attempt
from wattloop_operator.history.job_overview import JOB
from wattloop_operator.reconcile.energy.attempt_usage import carbon_grams, money
from wattloop_operator.store import AttemptUsage, Store


@dataclass(frozen=True)
class MonthUsage:
    """A job in a month.

    Attributes:
        namespace: Its namespace: the team.
        job: Its name.
        queue: The queue of its workloads; empty if it has none, or if that is not known.
        attempts: Number of attempts that ended in the month.
        measured_attempts: Number of them whose energy was measured.
        energy_joules: Their energy; None if none was measured.
        gpu_seconds: Time of the attempts whose time is known, times their GPUs; None if none is known.
        money_amount: Price of the energy; None if the tariff has no price.
        currency: Currency of it; empty if the tariff has no price.
        carbon_grams: Emissions of the energy, CO2 equivalent; None if the tariff has no carbon intensity.
        energy_note: What a reader of its energies must know; empty if there is nothing.
    """

    namespace: str
    job: str
    queue: str
    attempts: int
    measured_attempts: int
    energy_joules: float | None
    gpu_seconds: float | None
    money_amount: float | None
    currency: str
    carbon_grams: float | None
    energy_note: str

    @property
    def coverage_percent(self) -> float:
        """Attempts whose energy was measured, in percent of all."""
        return 100 * self.measured_attempts / self.attempts

    def to_json(self) -> dict[str, Any]:
        """The job as a JSON object with the names of the attributes."""
        return asdict(self)


def month_text(moment: datetime) -> str:
    """The month of a moment, such as 2026-03."""
    return f"{moment.astimezone(UTC):%Y-%m}"


def month_begin(text: str) -> datetime:
    """The begin of a month such as 2026-03.

    Raises:
        ValueError: It is not a month.
    """
    try:
        return datetime.strptime(text, "%Y-%m").replace(tzinfo=UTC)
    except ValueError:
        raise ValueError(f"found {text[:20]!r}, expected a month such as 2026-03") from None


def next_month(begin: datetime) -> datetime:
    """The begin of the month after one; at the end of the calendar, the last moment.

    Example:
        >>> next_month(datetime(2026, 12, 1, tzinfo=UTC)).isoformat()
        '2027-01-01T00:00:00+00:00'
    """
    try:
        return (begin + timedelta(days=31)).replace(day=1)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


def month_usages(store: Store, begin: datetime, tariffs: Tariffs | None = None) -> tuple[MonthUsage, ...]:
    """The jobs with attempts that ended in the month that begins then, by namespace and name.

    Args:
        store: The open store.
        begin: The begin of the month.
        tariffs: The tariffs; None: those that are remembered with the jobs of local runs.

    Raises:
        InputError: A stored job is invalid.
        OperationError: The database failed.
    """
    usages = store.observations.usages(begin, next_month(begin))
    named = store.objects.named(JOB, sorted({(each.namespace, each.job_name) for each in usages}))
    stored = store.objects.read_as(RecurringTrainingJob, named)
    jobs = {(each.metadata.namespace, each.metadata.name): each for each in stored}
    by_job = itertools.groupby(usages, key=lambda each: (each.namespace, each.job_name))
    found = []
    for key, group in by_job:
        job = jobs.get(key)
        found.append(usage_of_job(*key, job, list(group), tariff_of(key[0], job, tariffs)))
    return tuple(found)


def usage_of_job(
    namespace: str, name: str, job: RecurringTrainingJob | None, usages: Sequence[AttemptUsage], tariff: Tariff
) -> MonthUsage:
    """The sums of one job's attempts.

    Args:
        namespace: Its namespace.
        name: Its name.
        job: The job; None if it is not known.
        usages: The usages of its attempts, one at least.
        tariff: The tariff of its namespace.
    """
    origin = None if job is None else job.metadata.annotations.get(ANNOTATION)
    measured = [each.energy_joules for each in usages if each.energy_joules > 0]
    energy = sum(measured)
    # A record has 0 for a time or a number of GPUs that is not known.
    gpu_seconds = [product for each in usages if (product := each.time_seconds * each.gpu_count) > 0]
    paid = money(energy, tariff) if measured else None
    return MonthUsage(
        namespace,
        name,
        queue="" if job is None else job.spec.template.queue,
        attempts=len(usages),
        measured_attempts=len(measured),
        energy_joules=energy if measured else None,
        gpu_seconds=sum(gpu_seconds) if gpu_seconds else None,
        money_amount=None if paid is None else paid.amount,
        currency="" if paid is None else paid.currency,
        carbon_grams=carbon_grams(energy, tariff) if measured else None,
        energy_note=energy_note([origin_of_attempt(each, origin) for each in usages]),
    )


def units_of_month(usages: Sequence[MonthUsage]) -> Units:
    """The units of a month: those of the job that used most."""
    return Units.of([each.energy_joules for each in usages], [each.gpu_seconds for each in usages])


def month_table(usages: Sequence[MonthUsage]) -> Table:
    """The jobs as a table for the terminal."""
    table, units = Table(box=None, pad_edge=False), units_of_month(usages)
    for name in ("job", "queue"):
        table.add_column(name, overflow="fold")
    for name in (
        "attempts",
        "measured",
        f"energy ({units.energy.name})",
        f"GPU time ({units.time.name})",
        "price",
        "carbon (g)",
    ):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("note", overflow="fold", ratio=1)
    for each in usages:
        cells = (
            f"{each.namespace}/{each.job}",
            each.queue or NONE,
            str(each.attempts),
            f"{number_text(each.coverage_percent)} %",
            units.energy.number(each.energy_joules, UNKNOWN),
            units.time.number(each.gpu_seconds, UNKNOWN),
            NONE if each.money_amount is None else money_text(each.money_amount, each.currency),
            number_text(each.carbon_grams),
            each.energy_note,
        )
        table.add_row(*(Text(printable(cell)) for cell in cells))
    return table
