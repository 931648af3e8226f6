"""What the recurrences that a cluster keeps as objects used in a month."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from wattloop.errors import InputError
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.training_recurrence import Attribution, Usage
from wattloop_operator.cluster.api import Body
from wattloop_operator.domain.tariff import Tariff, Tariffs
from wattloop_operator.history.history_sources import read_object
from wattloop_operator.history.month_usage import MonthUsage, next_month, usage_of_job
from wattloop_operator.page.cluster_objects import ClusterObjects, NamespaceObjects
from wattloop_operator.store import AttemptUsage


def kept_usages(objects: ClusterObjects, begin: datetime, tariffs: Tariffs) -> tuple[MonthUsage, ...]:
    """The jobs with kept attempts that ended in the month that begins then, by namespace and name."""
    end = next_month(begin)
    found: defaultdict[tuple[str, str], list[AttemptUsage]] = defaultdict(list)
    for job, recurrence in _ended(objects):
        if begin <= ended_at(recurrence) < end:
            key = job["metadata"]["namespace"], job["metadata"]["name"]
            found[key].append(_attempt_usage(*key, recurrence))
    return tuple(_usage(objects.namespaces[key[0]], *key, found[key], tariffs.of(key[0])) for key in sorted(found))


def _usage(
    objects: NamespaceObjects, namespace: str, name: str, usages: Sequence[AttemptUsage], tariff: Tariff
) -> MonthUsage:
    problem = objects.unreadable.get(name, "")
    job = None if problem else read_object(RecurringTrainingJob, objects.jobs[name], f"{namespace}/{name}")
    usage = usage_of_job(namespace, name, job, usages, tariff)
    # What the job says of its energies is not known either.
    return replace(usage, energy_note=problem) if problem else usage


def kept_ends(objects: ClusterObjects) -> tuple[datetime, datetime] | None:
    """When the first and the last of the kept attempts ended; None if none has."""
    ends = [ended_at(recurrence) for _, recurrence in _ended(objects)]
    return (min(ends), max(ends)) if ends else None


def _ended(objects: ClusterObjects) -> Iterator[tuple[Body, Body]]:
    """Each job with each of its recurrences that has ended."""
    for namespace in objects.namespaces.values():
        for job in namespace.jobs.values():
            for recurrence in namespace.recurrences.get(str(job["metadata"]["uid"]), ()):
                if (recurrence.get("status") or {}).get("result"):
                    yield job, recurrence


def ended_at(recurrence: Body) -> datetime:
    """When an attempt ended; if that is not known, when it was to begin.

    Raises:
        InputError: It is no time that has one in UTC.
    """
    text = recurrence["status"].get("completionTime") or recurrence["spec"]["scheduledTime"]
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        metadata = recurrence["metadata"]
        raise InputError(f"{metadata['namespace']}/{metadata['name']}", f"the time {text!r}", "RFC 3339") from error


def _attempt_usage(namespace: str, job: str, recurrence: Body) -> AttemptUsage:
    """The usage as the operator's database has it, late usage included; a model of all of an object takes too long."""
    status, subject = recurrence["status"], f"{namespace}/{recurrence['metadata']['name']}"
    usage = read_object(Usage, status["usage"], subject) if status.get("usage") else None
    return AttemptUsage(
        namespace,
        job,
        recurrence["metadata"]["name"],
        energy_joules=0.0 if usage is None else float(usage.gpu_energy_joules),
        time_seconds=0.0 if usage is None else float(usage.duration_seconds),
        gpu_product="",
        gpu_count=0 if usage is None else usage.devices,
        attribution=(Attribution.UNKNOWN if usage is None else usage.attribution).value,
        finished_at=ended_at(recurrence),
    )
