"""One line for each job of a database: what it does now, how its last recurrence ended, and what it saves.

A job that the local mode stores has a status, which the run wrote; its figures are shown as they are there. Of a
cluster's job a database has only observations, so its state, its next start and its savings are not known.

What reads a database raises `OperationError` if it fails, and `InputError` if a stored object is invalid.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar

from pydantic import Field
from rich.table import Table
from rich.text import Text

from wattloop.printable import printable
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob, RecurringTrainingJobSpec
from wattloop_operator.api.recurring_training_job_status import RecurringTrainingJobStatus, SavingName
from wattloop_operator.domain.names import JobKey
from wattloop_operator.domain.quantities import NONE, Units, optional_float, saving_text
from wattloop_operator.domain.records import ObservationRecord
from wattloop_operator.history.lines import Interval, Line
from wattloop_operator.history.rows import outcome_text
from wattloop_operator.store import Store

JOB = "RecurringTrainingJob"
NO_JOB = "this database has only the observations of the job, as that of a cluster's operator"


class JobLine(Line):
    """A job in the list of jobs."""

    column_names: ClassVar[Mapping[str, str]] = {"name": "job"}

    namespace: str = Field(description="Namespace of the job.")
    name: str = Field(description="Name of the job.")
    state: str | None = Field(description="State in one word, as it was written last; null if it is not known.")
    failure: str = Field(description="Why its runs fail, as one word; empty if they do not.")
    why: str = Field(description="What it waits for, or why nothing starts.")
    next_start: datetime | None = Field(description="When its next recurrence starts; null if that is not known.")
    recurrence: int | None = Field(description="Index of its latest recurrence that ended; null if none has.")
    batch_size: int | None = Field(description="The batch size of its last attempt.")
    outcome: str | None = Field(description="The result of that attempt.")
    energy_joules: float | None = Field(description="The energy of that recurrence; null if it is not known.")
    time_seconds: float | None = Field(description="The time of that recurrence; null if it is not known.")
    latest_cost_saving_percent: Interval | None = Field(
        description="What the latest recurrences cost less than the default configuration; null until it is known."
    )
    saved_energy_joules: Interval | None = Field(
        description="Energy saved so far, learning included; null until it is known."
    )
    saved_time_seconds: Interval | None = Field(
        description="Time saved so far, learning included; null until it is known."
    )


def job_keys(store: Store) -> tuple[JobKey, ...]:
    """The jobs of a database that are stored or have observations, by namespace and name."""
    observed = {(each.namespace, each.job_name) for each in store.observations.jobs()}
    return tuple(JobKey(*each) for each in sorted(observed | set(store.objects.names(JOB))))


def overviews(store: Store, keys: Iterable[JobKey]) -> tuple[JobLine, ...]:
    """The overviews of some jobs of a database."""
    wanted = {(key.namespace, key.name): key for key in keys}
    found = {
        (each.metadata.namespace, each.metadata.name): overview_of(each)
        for each in store.objects.read_as(RecurringTrainingJob, store.objects.named(JOB, wanted))
    }
    uids: dict[tuple[str, str], list[str]] = {}
    if len(found) < len(wanted):
        for each in store.observations.jobs():
            uids.setdefault((each.namespace, each.job_name), []).append(each.job_uid)
    for name in uids.keys() & (wanted.keys() - found.keys()):
        # A job that was deleted and made again has several.
        records = filter(None, map(store.observations.last_of_job, uids[name]))
        newest = max(records, key=lambda record: (record.finished_at, record.job_uid), default=None)
        found[name] = _of_record(wanted[name], newest)
    return tuple(found[name] for name in wanted if name in found)


def units_of_jobs(jobs: Sequence[JobLine]) -> Units:
    """The units of a table of jobs: those of the recurrences that used most and took longest, as on a job's page."""
    return Units.of([each.energy_joules for each in jobs], [each.time_seconds for each in jobs])


def overview_table(jobs: Sequence[JobLine]) -> Table:
    """The jobs as a table for the terminal."""
    table, units = Table(box=None, pad_edge=False), units_of_jobs(jobs)
    for name in ("job", "state", "last result"):
        table.add_column(name, overflow="fold")
    for name in (f"energy ({units.energy.name})", "cost now", "energy saved", "time saved"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("why", overflow="fold", ratio=1)
    for each in jobs:
        last = NONE if each.outcome is None else f"{each.recurrence}: {each.outcome}"
        cells = (f"{each.namespace}/{each.name}", " ".join(filter(None, (each.state or NONE, each.failure))), last)
        figures = (
            units.energy.number(each.energy_joules),
            saving_text(each.latest_cost_saving_percent),
            units.energy.interval_text(each.saved_energy_joules),
            units.time.interval_text(each.saved_time_seconds),
        )
        table.add_row(*(Text(printable(cell)) for cell in (*cells, *figures, each.why)))
    return table


def overview_of(job: RecurringTrainingJob) -> JobLine:
    """The overview of a job, from its status."""
    status = job.status
    last = next((each for each in status.recent_recurrences if each.result is not None), None)
    ready = next((each for each in status.conditions if each.type == "Ready"), None)
    return JobLine(
        namespace=job.metadata.namespace,
        name=job.metadata.name,
        state=None if status.state is None else status.state.value,
        failure=status.failure,
        why=(ready.message if ready is not None else "") or start_text(job.spec),
        next_start=status.next_start,
        recurrence=None if last is None else last.index,
        batch_size=None if last is None else last.batch_size,
        outcome=None if last is None or last.result is None else outcome_text(last.result.value),
        energy_joules=None if last is None else optional_float(last.gpu_energy_joules),
        time_seconds=None if last is None else optional_float(last.duration_seconds),
        latest_cost_saving_percent=_saving(status, SavingName.LATEST_COST),
        saved_energy_joules=_saving(status, SavingName.ENERGY),
        saved_time_seconds=_saving(status, SavingName.TIME),
    )


def unread_overview(key: JobKey, why: str, **known: Any) -> JobLine:
    """The overview of a job that cannot be read, or of which only the last observation is known."""
    named = {"namespace": key.namespace, "name": key.name, "failure": "", "why": why}
    values: dict[str, Any] = {**dict.fromkeys(JobLine.model_fields), **named, **known}
    return JobLine(**values)


def _saving(status: RecurringTrainingJobStatus, name: SavingName) -> Interval | None:
    found = next((each for each in status.savings if each.name is name), None)
    return None if found is None else Interval.if_known(found.value, found.low, found.high)


def _of_record(key: JobKey, last: ObservationRecord | None) -> JobLine:
    if last is None:
        return unread_overview(key, NO_JOB)
    outcome = outcome_text(last.result)
    return unread_overview(key, NO_JOB, recurrence=last.recurrence, batch_size=last.batch_size, outcome=outcome)


def start_text(spec: RecurringTrainingJobSpec) -> str:
    """When the recurrences of a job start."""
    if spec.schedule is not None:
        return f"starts by spec.schedule {spec.schedule} ({spec.time_zone})"
    return "starts when the run before has ended" if spec.continuous else "starts by spec.runRequest"
