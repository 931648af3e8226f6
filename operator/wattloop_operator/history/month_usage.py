"""What the jobs of a database used in a calendar month: energy, GPU time, money and carbon, by team and job.

A team is a namespace. An attempt belongs to the month, in UTC, in which it ended. Its energy is that of
`wattloop history`; price and carbon intensity are those that its namespace has now.

FOCUS 1.2 is the FinOps Open Cost and Usage Specification. What Wattloop does not know, such as the account and the
issuer of an invoice, is empty there. So are the costs of a job that gives no price: the specification wants some, but
a made-up 0 would be summed up.

What reads a database raises `OperationError` if it fails, and `InputError` if a stored object is invalid.
"""

import itertools
import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import IO

from pydantic import Field
from rich.table import Table
from rich.text import Text

from wattloop.files.csv_table import write_csv_table
from wattloop.printable import printable
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.domain.quantities import JOULES_PER_KILOWATT_HOUR, NONE, UNKNOWN, Units, money_text, number_text
from wattloop_operator.domain.tariff import Tariff, Tariffs, tariff_of
from wattloop_operator.history.energy_origin import ANNOTATION, energy_note, origin_of_attempt
from wattloop_operator.history.job_overview import JOB
from wattloop_operator.history.lines import Line
from wattloop_operator.reconcile.energy.attempt_usage import carbon_grams, money
from wattloop_operator.store import AttemptUsage, Store

FOCUS_UNIT = "kWh"
# Columns that the specification does not have begin with x_.
FOCUS_COLUMNS = (
    "BilledCost", "BillingAccountId", "BillingAccountName", "BillingCurrency", "BillingPeriodEnd", "BillingPeriodStart",
    "ChargeCategory", "ChargeClass", "ChargeDescription", "ChargeFrequency", "ChargePeriodEnd", "ChargePeriodStart",
    "ConsumedQuantity", "ConsumedUnit", "ContractedCost", "EffectiveCost", "InvoiceIssuerName", "ListCost",
    "PricingQuantity", "PricingUnit", "ProviderName", "PublisherName", "ResourceId", "ResourceName", "ResourceType",
    "ServiceCategory", "ServiceName", "SubAccountId", "SubAccountName", "Tags", "x_GpuSeconds", "x_CarbonGrams",
    "x_CoveragePercent", "x_EnergyNote",
)  # fmt: skip


class MonthUsage(Line):
    """A job in a month."""

    namespace: str = Field(description="Namespace of the job: the team.")
    job: str = Field(description="Name of the job.")
    queue: str = Field(description="The queue of its workloads; empty if it has none, or if that is not known.")
    attempts: int = Field(description="Number of attempts that ended in the month.")
    measured_attempts: int = Field(description="Number of them whose energy was measured.")
    energy_joules: float | None = Field(description="Their energy; null if none was measured.")
    gpu_seconds: float | None = Field(
        description="Time of the attempts whose time is known, times their GPUs; null if none is known."
    )
    money_amount: float | None = Field(description="Price of the energy; null if the tariff has no price.")
    currency: str = Field(description="Currency of it; empty if the tariff has no price.")
    carbon_grams: float | None = Field(description="Emissions, CO2 equivalent; null if the tariff has no intensity.")
    energy_note: str = Field(description="What a reader of its energies must know; empty if there is nothing.")

    @property
    def coverage_percent(self) -> float:
        """Attempts whose energy was measured, in percent of all."""
        return 100 * self.measured_attempts / self.attempts


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

    Without tariffs, those count that are remembered with the jobs of local runs.
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
    """The sums of one job's attempts, one at least; the job is None if it is not known."""
    origin = None if job is None else job.metadata.annotations.get(ANNOTATION)
    measured = [each.energy_joules for each in usages if each.energy_joules > 0]
    energy = sum(measured)
    # A record has 0 for a time or a number of GPUs that is not known.
    gpu_seconds = [product for each in usages if (product := each.time_seconds * each.gpu_count) > 0]
    paid = money(energy, tariff) if measured else None
    return MonthUsage(
        namespace=namespace,
        job=name,
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


def write_focus(stream: IO[str], usages: Iterable[MonthUsage], begin: datetime) -> None:
    """Write the usage of the month that begins then, with the columns of FOCUS: a row is the energy of a job."""
    period = {
        f"{name}Period{end}": f"{moment:%Y-%m-%dT%H:%M:%SZ}"
        for name in ("Billing", "Charge")
        for end, moment in (("Start", begin), ("End", next_month(begin)))
    }
    write_csv_table(stream, FOCUS_COLUMNS, (period | _charge(each) for each in usages))


def _charge(usage: MonthUsage) -> dict[str, object]:
    """The columns of a job besides the period; None is written as an empty cell."""
    quantity = None if usage.energy_joules is None else usage.energy_joules / JOULES_PER_KILOWATT_HOUR
    of = f"{usage.measured_attempts} of {usage.attempts} attempts"
    return {
        # The price has no discounts, and nothing is paid in advance.
        **dict.fromkeys(("BilledCost", "ContractedCost", "EffectiveCost", "ListCost"), usage.money_amount),
        "BillingCurrency": usage.currency,
        "ChargeCategory": "Usage",
        "ChargeDescription": f"GPU energy of {of}, which ended in the month and were measured",
        "ChargeFrequency": "Usage-Based",
        **dict.fromkeys(("ConsumedQuantity", "PricingQuantity"), quantity),
        **dict.fromkeys(("ConsumedUnit", "PricingUnit"), None if quantity is None else FOCUS_UNIT),
        "ResourceId": f"{usage.namespace}/{usage.job}",
        "ResourceName": usage.job,
        "ResourceType": "RecurringTrainingJob",
        "ServiceCategory": "AI and Machine Learning",
        "ServiceName": "GPU energy",
        **dict.fromkeys(("SubAccountId", "SubAccountName"), usage.namespace),
        "Tags": json.dumps({"queue": usage.queue} if usage.queue else {}),
        "x_GpuSeconds": usage.gpu_seconds,
        "x_CarbonGrams": usage.carbon_grams,
        "x_CoveragePercent": usage.coverage_percent,
        "x_EnergyNote": usage.energy_note,
    }
