"""Builds the list of jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from wattloop_operator.history.job_overview import JobOverview, units_of_jobs
from wattloop_operator.page.job_source import JobSource
from wattloop_operator.page.views import Interval, JobLine, JobsView

JOBS_OF_PAGE = 50

Item = TypeVar("Item")


def jobs_view(source: JobSource, search: str = "", page: int = 1) -> JobsView:
    """One page of the jobs whose namespace and name contain a text.

    Args:
        source: The jobs.
        search: The text; empty for all.
        page: Number of the page, from 1; one beyond the last is the last.

    Raises:
        WattloopError: The jobs cannot be read.
    """
    # What is missing first: more may be known by the time that the keys are read.
    version, missing, keys = source.version(), source.missing(), source.keys()
    found = [key for key in keys if search.casefold() in str(key).casefold()]
    page, pages, shown = page_of(found, JOBS_OF_PAGE, page)
    overviews = source.overviews(shown)
    units = units_of_jobs(overviews)
    return JobsView(
        database=source.name,
        version=version,
        command=source.command(("history", "--jobs")),
        viewer=source.viewer,
        missing=list(missing),
        no_jobs_reason="" if keys else source.no_jobs_reason(),
        first_step=source.first_step,
        search=search,
        total=len(found),
        page=page,
        pages=pages,
        energy_unit=units.energy.name,
        time_unit=units.time.name,
        jobs=[job_line(each) for each in overviews],
    )


def page_of(items: Sequence[Item], size: int, page: int) -> tuple[int, int, Sequence[Item]]:
    """The page that is shown instead of one beyond the last, the number of pages, and the items of the page.

    Nothing is one empty page.

    Example:
        >>> page_of("abcde", 2, 9), page_of("", 2, 1)
        ((3, 3, 'e'), (1, 1, ''))
    """
    pages = max(-(-len(items) // size), 1)
    page = min(page, pages)
    return page, pages, items[(page - 1) * size : page * size]


def job_line(overview: JobOverview) -> JobLine:
    """A job in the form of the page."""
    return JobLine(
        namespace=overview.namespace,
        name=overview.job,
        state=overview.state,
        failure=overview.failure,
        why=overview.why,
        next_start=overview.next_start,
        recurrence=overview.recurrence,
        batch_size=overview.batch_size,
        outcome=overview.outcome,
        energy_joules=overview.energy_joules,
        time_seconds=overview.time_seconds,
        latest_cost_saving_percent=Interval.of(overview.latest_cost_saving),
        saved_energy_joules=Interval.of(overview.saved_energy),
        saved_time_seconds=Interval.of(overview.saved_time),
    )
