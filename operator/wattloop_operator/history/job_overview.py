"""One line for each job of a database: what it does now, how its last recurrence ended, and what it saves.

A job that the local mode stores has a status, which the run wrote; its figures are shown as they are there. Of a
cluster's job a database has only observations, so its state, its next start and its savings are not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from rich.table import Table
from rich.text import Text

from wattloop.errors import InputError
from wattloop.printable import printable
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob, RecurringTrainingJobSpec
from wattloop_operator.api.recurring_training_job_status import RecurringTrainingJobStatus, SavingName
from wattloop_operator.domain.names import JobKey
from wattloop_operator.domain.quantities import NONE, Units, optional_float, saving_text
from wattloop_operator.domain.records import ObservationRecord
from wattloop_operator.history.rows import outcome_text
from wattloop_operator.store import Store
from wattloop_planner.estimate import Estimate

JOB = "RecurringTrainingJob"
NO_JOB = "this database has only the observations of the job, as that of a cluster's operator"


@dataclass(frozen=True)
class JobOverview:
    """One job.

    Attributes:
        namespace: Its namespace.
        job: Its name.
        state: Its state in one word, as it was written last; None if it is not known.
        failure: Why its runs fail, as one word; empty if they do not.
        why: What it waits for, or why nothing starts, as a sentence.
        next_start: When its next recurrence starts; None if that is not known.
        recurrence: Index of its latest recurrence that ended; None if none has.
        batch_size: The batch size of its last attempt.
        outcome: The result of that attempt.
        energy_joules: Its energy over all attempts; None if it is not known.
        time_seconds: Its time over all attempts; None if it is not known.
        latest_cost_saving_percent: What the latest recurrences cost less than the default; None until known.
        low_latest_cost_saving_percent: Lower end of its interval of 90 %.
        high_latest_cost_saving_percent: Upper end of it.
        saved_energy_joules: Energy saved so far, learning included; None until known.
        low_saved_energy_joules: Lower end of its interval of 90 %.
        high_saved_energy_joules: Upper end of it.
        saved_time_seconds: Time saved so far, learning included; None until known.
        low_saved_time_seconds: Lower end of its interval of 90 %.
        high_saved_time_seconds: Upper end of it.
    """

    namespace: str
    job: str
    state: str | None = None
    failure: str = ""
    why: str = ""
    next_start: datetime | None = None
    recurrence: int | None = None
    batch_size: int | None = None
    outcome: str | None = None
    energy_joules: float | None = None
    time_seconds: float | None = None
    latest_cost_saving_percent: float | None = None
    low_latest_cost_saving_percent: float | None = None
    high_latest_cost_saving_percent: float | None = None
    saved_energy_joules: float | None = None
    low_saved_energy_joules: float | None = None
    high_saved_energy_joules: float | None = None
    saved_time_seconds: float | None = None
    low_saved_time_seconds: float | None = None
    high_saved_time_seconds: float | None = None

    @property
    def latest_cost_saving(self) -> Estimate | None:
        """What the latest recurrences cost less, in percent."""
        return Estimate.if_known(
            self.latest_cost_saving_percent, self.low_latest_cost_saving_percent, self.high_latest_cost_saving_percent
        )

    @property
    def saved_energy(self) -> Estimate | None:
        """Energy saved so far in joules."""
        return Estimate.if_known(self.saved_energy_joules, self.low_saved_energy_joules, self.high_saved_energy_joules)

    @property
    def saved_time(self) -> Estimate | None:
        """Time saved so far in seconds."""
        return Estimate.if_known(self.saved_time_seconds, self.low_saved_time_seconds, self.high_saved_time_seconds)

    def to_json(self) -> dict[str, Any]:
        """The job as a JSON object with the names of the attributes."""
        next_start = None if self.next_start is None else self.next_start.isoformat()
        return {**asdict(self), "next_start": next_start}


def job_keys(store: Store) -> tuple[JobKey, ...]:
    """The jobs of a database that are stored or have observations, by namespace and name.

    Raises:
        OperationError: The database failed.
    """
    observed = {(each.namespace, each.job_name) for each in store.observations.jobs()}
    return tuple(JobKey(*each) for each in sorted(observed | set(store.objects.names(JOB))))


def overviews(store: Store, keys: Iterable[JobKey]) -> tuple[JobOverview, ...]:
    """The overviews of some jobs of a database.

    Raises:
        InputError: A stored job is invalid.
        OperationError: The database failed.
    """
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


def units_of_jobs(jobs: Sequence[JobOverview]) -> Units:
    """The units of a table of jobs: those of the recurrences that used most and took longest, as on a job's page."""
    return Units.of([each.energy_joules for each in jobs], [each.time_seconds for each in jobs])


def overview_table(jobs: Sequence[JobOverview]) -> Table:
    """The jobs as a table for the terminal."""
    table, units = Table(box=None, pad_edge=False), units_of_jobs(jobs)
    for name in ("job", "state", "last result"):
        table.add_column(name, overflow="fold")
    for name in (f"energy ({units.energy.name})", "cost now", "energy saved", "time saved"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("why", overflow="fold", ratio=1)
    for each in jobs:
        last = NONE if each.outcome is None else f"{each.recurrence}: {each.outcome}"
        cells = (f"{each.namespace}/{each.job}", " ".join(filter(None, (each.state or NONE, each.failure))), last)
        figures = (
            units.energy.number(each.energy_joules),
            saving_text(each.latest_cost_saving),
            units.energy.interval_text(each.saved_energy),
            units.time.interval_text(each.saved_time),
        )
        table.add_row(*(Text(printable(cell)) for cell in (*cells, *figures, each.why)))
    return table


def overview_of(job: RecurringTrainingJob) -> JobOverview:
    """The overview of a job, from its status."""
    status = job.status
    last = next((each for each in status.recent_recurrences if each.result is not None), None)
    ready = next((each for each in status.conditions if each.type == "Ready"), None)
    return JobOverview(
        job.metadata.namespace,
        job.metadata.name,
        state=None if status.state is None else status.state.value,
        failure=status.failure,
        why=(ready.message if ready is not None else "") or start_text(job.spec),
        next_start=status.next_start,
        recurrence=None if last is None else last.index,
        batch_size=None if last is None else last.batch_size,
        outcome=None if last is None or last.result is None else outcome_text(last.result.value),
        energy_joules=None if last is None else optional_float(last.gpu_energy_joules),
        time_seconds=None if last is None else optional_float(last.duration_seconds),
        **_bounded("latest_cost_saving_percent", status, SavingName.LATEST_COST),
        **_bounded("saved_energy_joules", status, SavingName.ENERGY),
        **_bounded("saved_time_seconds", status, SavingName.TIME),
    )


def unread_overview(key: JobKey, problem: InputError) -> JobOverview:
    """The overview of a job that cannot be read."""
    return JobOverview(key.namespace, key.name, why=str(problem))


def _bounded(field: str, status: RecurringTrainingJobStatus, name: SavingName) -> dict[str, Any]:
    """A saving of a status with both ends of its interval, as fields of an overview."""
    found = next((each for each in status.savings if each.name is name), None)
    ends = (None,) * 3 if found is None else (found.low, found.value, found.high)
    return {f"{end}{field}": optional_float(each) for end, each in zip(("low_", "", "high_"), ends, strict=True)}


def _of_record(key: JobKey, last: ObservationRecord | None) -> JobOverview:
    if last is None:
        return JobOverview(key.namespace, key.name, why=NO_JOB)
    outcome = outcome_text(last.result)
    return JobOverview(
        key.namespace,
        key.name,
        why=NO_JOB,
        recurrence=last.recurrence,
        batch_size=last.batch_size,
        outcome=outcome,
    )


def start_text(spec: RecurringTrainingJobSpec) -> str:
    """When the recurrences of a job start."""
    if spec.schedule is not None:
        return f"starts by spec.schedule {spec.schedule} ({spec.time_zone})"
    return "starts when the run before has ended" if spec.continuous else "starts by spec.runRequest"
