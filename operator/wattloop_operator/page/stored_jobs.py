"""The jobs of one database: that of `wattloop run`, or that of a cluster's operator."""

import hashlib
import secrets
import shlex
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar

from cachetools import LRUCache

from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.domain.names import JobKey
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.domain.tariff import Tariffs, tariff_of
from wattloop_operator.history.gpu_holders import RECURRENCE, gpus_unknown, held_gpus
from wattloop_operator.history.history_sources import JobSelector, stored_history
from wattloop_operator.history.job_history import JobHistory
from wattloop_operator.history.job_overview import JobLine, job_keys, overviews
from wattloop_operator.history.month_usage import MonthUsage, month_usages
from wattloop_operator.page.job_source import JobSource, SourcedGpus, SourcedJob
from wattloop_operator.reconcile.attempt.progress_deadline import with_summary
from wattloop_operator.store.store import Store

# A job with the most observations takes 40 MB.
MAX_JOBS_KEPT = 8
# A list of a month has a line for each job.
MAX_LISTS_KEPT = 8
FIRST_STEP = "wattloop run examples/digits/job.yaml --simulated-gpus 1 --output wattloop-output/digits"
GPU_NODES_UNKNOWN = "GPUs without an attempt are not in a database: wattloop monitor shows those of a machine."

Value = TypeVar("Value")


class StoredJobs(JobSource):
    """The jobs of a database. Thread-safe.

    Args:
        store: The open store.
        address: The database as the user named it, for command lines; None: its name without a password.
        tariffs: The tariffs; None: those that are remembered with the jobs of local runs.
    """

    def __init__(self, store: Store, address: str | None = None, tariffs: Tariffs | None = None) -> None:
        self.name = store.name
        self.first_step = FIRST_STEP
        self._store = store
        self._tariffs = tariffs
        self._address = store.name if address is None else address
        # Browsers keep plots by the version, and another database may be served at the same address next.
        self._nonce = secrets.token_hex(4)
        self._lock = threading.Lock()
        self._lists: LRUCache[tuple[Any, ...], tuple[str, Any]] = LRUCache(MAX_LISTS_KEPT)
        self._histories: LRUCache[JobKey, tuple[str, JobHistory]] = LRUCache(MAX_JOBS_KEPT)

    @property
    def unreadable_rows(self) -> tuple[str, ...]:
        """See `JobSource`."""
        return self._store.unreadable_rows

    def version(self) -> str:
        """See `JobSource`."""
        return f"{self._nonce}-{self._store.version()}"

    def keys(self) -> tuple[JobKey, ...]:
        """See `JobSource`."""
        return self._once_per_version(job_keys, self._store)

    def overviews(self, keys: Sequence[JobKey]) -> tuple[JobLine, ...]:
        """See `JobSource`."""
        return self._once_per_version(overviews, self._store, tuple(keys))

    def job(self, key: JobKey) -> SourcedJob | None:
        """See `JobSource`."""
        job = self._store.objects.get_as(RecurringTrainingJob, key.namespace, key.name)
        # Of a job that is not stored, the history is that of the uid that ran last: any of them may be it next.
        uids = [] if job is None else [job.metadata.uid]
        if job is None:
            jobs = self._store.observations.jobs()
            uids = [each.job_uid for each in jobs if (each.namespace, each.job_name) == (key.namespace, key.name)]
        if not uids:
            return None
        records_version = "/".join(f"{uid} {self._store.version_of_job(uid)}" for uid in uids)
        history = self._history(key, job, records_version)
        snapshot = None if job is None else self._snapshot(job, history)
        # The records, and the settings by which they are evaluated.
        parts = f"{self._nonce} {records_version} {replace(history, records=(), profiles=())}"
        return SourcedJob(key, history, snapshot, hashlib.sha256(parts.encode()).hexdigest()[:24])

    def gpus(self) -> SourcedGpus:
        """See `JobSource`."""
        unknown, held = (
            self._once_per_version(gpus_unknown, self._store),
            self._once_per_version(held_gpus, self._store),
        )
        return SourcedGpus(held, unknown, nodes_unknown=GPU_NODES_UNKNOWN)

    def month_partial(self) -> str:
        """See `JobSource`."""
        return f"Rows of the database are left out: {unreadable[0]}" if (unreadable := self.unreadable_rows) else ""

    def month(self, begin: datetime) -> tuple[MonthUsage, ...]:
        """See `JobSource`."""
        return self._once_per_version(month_usages, self._store, begin, self._tariffs)

    def latest_end(self) -> datetime | None:
        """See `JobSource`."""
        return self._once_per_version(self._store.observations.latest_end)

    def command(self, words: Sequence[str], key: JobKey | None = None) -> str:
        """See `JobSource`."""
        named = () if key is None else (key.name, "--namespace", key.namespace)
        return shlex.join(("wattloop", words[0], *named, "--database", self._address, *words[1:]))

    def conditions_command(self, key: JobKey) -> str:  # noqa: ARG002
        """See `JobSource`."""
        return self.command(("history", "--jobs"))

    def _once_per_version(self, read: Callable[..., Value], *arguments: Any) -> Value:
        """What a function reads; it is read again only after a change."""
        version, key = self._store.version(), (read, *arguments)
        with self._lock:
            known = self._lists.get(key)
        if known is None or known[0] != version:
            known = version, read(*arguments)
            with self._lock:
                self._lists[key] = known
        value: Value = known[1]
        return value

    def _history(self, key: JobKey, job: RecurringTrainingJob | None, version: str) -> JobHistory:
        """The history, whose records are read again only after a change; its settings are those of the job now."""
        tariff = tariff_of(key.namespace, job, self._tariffs)
        with self._lock:
            known = self._histories.get(key)
        if known is not None and known[0] == version:
            kept = known[1]
            if job is None:
                return kept
            fresh = JobHistory.of_job(job, kept.records, kept.profiles, tariff)
            return kept if fresh == kept else fresh
        if job is None:
            history = stored_history(self._store, JobSelector(key.name, key.namespace))
        else:
            uid = job.metadata.uid
            records, profiles = self._store.observations.of_job(uid), self._store.profiles.of_job(uid)
            history = JobHistory.of_job(job, records, profiles, tariff)
        with self._lock:
            self._histories[key] = version, history
        return history

    def _snapshot(self, job: RecurringTrainingJob, history: JobHistory) -> Snapshot:
        stored = self._store.objects.list(RECURRENCE, job.metadata.namespace, prefix=f"{job.metadata.name}-")
        recurrences = self._store.objects.read_as(TrainingRecurrence, stored)
        own = [each for each in recurrences if each.spec.job_ref.uid == job.metadata.uid]
        return Snapshot(
            job=job,
            recurrences=tuple(map(with_summary, self._store.attempt_progress.attempts(own))),
            records=history.records,
            profiles=history.profiles,
        )
