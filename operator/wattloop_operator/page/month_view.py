"""Builds the view of a month: what each team and each of its jobs used."""

import itertools
import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from wattloop_operator.history.month_usage import MonthUsage, month_begin, month_text, next_month, units_of_month
from wattloop_operator.page.job_source import JobSource
from wattloop_operator.page.job_view import page_of
from wattloop_operator.page.views import AmountOfMoney, MonthLine, MonthView, TeamLine

JOBS_OF_PAGE = 100
# A month is written with four digits of its year.
FIRST_YEAR = 1000


def month_view(source: JobSource, month: str | None = None, page: int = 1) -> MonthView:
    """The view of a month, such as 2026-03, with one page of its jobs; by default, of that of the latest end.

    Raises:
        ValueError: It is not a month.
    """
    version, missing = source.version(), source.missing()
    begin = month_begin(month or month_text(source.latest_end() or datetime.now(UTC)))
    usages, following = source.month(begin), next_month(begin)
    name = month_text(begin)
    page, pages, shown = page_of(usages, JOBS_OF_PAGE, page)
    units = units_of_month(usages)
    return MonthView(
        version=version,
        month=name,
        previous=month_text(begin - timedelta(days=1)) if begin.year > FIRST_YEAR else None,
        following=month_text(following) if following <= datetime.now(UTC) else None,
        command=source.command(("history", "--month", name)),
        missing=list(missing),
        partial=source.month_partial(),
        notes=sorted({f"{each.namespace}/{each.job}: {each.energy_note}" for each in usages if each.energy_note}),
        energy_unit=units.energy.name,
        time_unit=units.time.name,
        teams=[_team(team, list(group)) for team, group in itertools.groupby(usages, key=lambda each: each.namespace)],
        total=len(usages),
        page=page,
        pages=pages,
        jobs=[_line(each) for each in shown],
    )


def _team(team: str, usages: Sequence[MonthUsage]) -> TeamLine:
    currencies = sorted({each.currency for each in usages if each.currency})
    attempts = sum(each.attempts for each in usages)
    measured = sum(each.measured_attempts for each in usages)
    return TeamLine(
        namespace=team,
        jobs=len(usages),
        attempts=attempts,
        coverage_percent=100 * measured / attempts,
        energy_joules=_sum(each.energy_joules for each in usages),
        gpu_seconds=_sum(each.gpu_seconds for each in usages),
        money=[
            AmountOfMoney(
                amount=math.fsum(each.money_amount or 0.0 for each in usages if each.currency == currency),
                currency=currency,
            )
            for currency in currencies
        ],
        unpriced_jobs=sum(each.energy_joules is not None and each.money_amount is None for each in usages),
        carbon_grams=_sum(each.carbon_grams for each in usages),
        jobs_without_carbon=sum(each.energy_joules is not None and each.carbon_grams is None for each in usages),
    )


def _sum(values: Iterable[float | None]) -> float | None:
    known = [each for each in values if each is not None]
    return math.fsum(known) if known else None


def _line(usage: MonthUsage) -> MonthLine:
    amount, paid = usage.money_amount, None
    if amount is not None:
        paid = AmountOfMoney(amount=amount, currency=usage.currency)
    return MonthLine(**dict(usage), name=usage.job, coverage_percent=usage.coverage_percent, money=paid)
