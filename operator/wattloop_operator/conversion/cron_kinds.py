"""The kinds that start a workload by a schedule, and the manifest of a RecurringTrainingJob made of one."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from wattloop_operator.api.batch_size import sizes_around
from wattloop_operator.api.checks.documents import Document, DocumentError
from wattloop_operator.api.checks.manifest_problem import Path, format_path, format_value
from wattloop_operator.api.field_types import MAX_JOB_NAME_CHARACTERS
from wattloop_operator.api.model import API_VERSION
from wattloop_operator.api.objective import Objective
from wattloop_operator.conversion.training_arguments import (
    ArgumentValue,
    TrainingArguments,
    TrainingContainers,
    containers_in,
    find_arguments,
    replace_arguments,
    training_containers,
)


@dataclass(frozen=True)
class Note:
    """A difference between the source and the result.

    Attributes:
        path: Field of the source; empty if the note concerns all of it.
        text: What is different, and what to do.
    """

    path: Path
    text: str

    def __str__(self) -> str:
        """Format the note on one line."""
        return f"{format_path(self.path)}: {self.text}" if self.path else self.text


# What the source does not say. A job that still has them starts nothing.
METRIC, THRESHOLD, PLACEHOLDER_BATCH_SIZE = "accuracy", 0.9, 32
MAX_RETRIES = 20
DEFAULT_MAX_EPOCHS = int(Objective.model_fields["max_epochs"].default)
TEMPLATE = ("spec", "jobTemplate")
# Fields of metadata that the API server or kubectl sets, and that say nothing about the job.
SET_BY_SERVER = frozenset(
    {"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink", "deletionTimestamp"}
)
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
# Fields of a spec that have the same meaning in a RecurringTrainingJob, which may have another name for them.
SAME_FIELDS = {
    "concurrencyPolicy": "concurrencyPolicy",
    "startingDeadlineSeconds": "startingDeadlineSeconds",
    "successfulJobsHistoryLimit": "successfulRunsHistoryLimit",
    "failedJobsHistoryLimit": "failedRunsHistoryLimit",
}
CONVERTED_FIELDS = frozenset({"schedule", "timeZone", "jobTemplate", "suspend", *SAME_FIELDS})


@dataclass(frozen=True)
class CronKind:
    """A kind that starts a workload by a schedule.

    Attributes:
        group: Its API group.
        child_version: API version of the workload.
        bare: Whether `jobTemplate` is the workload's spec itself, without metadata.
    """

    group: str
    kind: str
    child_version: str
    child_kind: str
    bare: bool = False


KINDS = (
    CronKind("batch", "CronJob", "batch/v1", "Job"),
    CronKind("ray.io", "RayCronJob", "ray.io/v1", "RayJob", bare=True),
    CronKind("batch.volcano.sh", "CronJob", "batch.volcano.sh/v1alpha1", "Job"),
)


@dataclass
class Conversion:
    """A RecurringTrainingJob made of a cron kind.

    Attributes:
        source: Kind and name of the source.
        child: Field of the source that has the spec of the workload.
        notes: What could not be carried over.
        remarks: What to set, by field of the manifest.
    """

    source: str
    child: Path
    manifest: dict[str, Any] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    remarks: dict[Path, str] = field(default_factory=dict)

    def note(self, path: Path, text: str) -> None:
        """Add a note; see `Note`."""
        self.notes.append(Note(path, text))


def cron_kind(manifest: object) -> CronKind | None:
    """The cron kind of a manifest; None for another kind."""
    if not isinstance(manifest, dict):
        return None
    group, _, _ = str(manifest.get("apiVersion")).partition("/")
    return next((each for each in KINDS if (each.group, each.kind) == (group, manifest.get("kind"))), None)


def converted(kind: CronKind, document: Document) -> Conversion:
    """The RecurringTrainingJob of a document of this kind.

    Raises:
        DocumentError: A field that a RecurringTrainingJob needs is missing, or has another type.
    """
    source = copy.deepcopy(document.value)
    metadata, spec = _object(document, source, ("metadata",)), _object(document, source, ("spec",))
    schedule = spec.get("schedule")
    if not isinstance(schedule, str) or not schedule:
        found = format_value(schedule) if "schedule" in spec else "no schedule"
        raise DocumentError(document.problem(("spec", "schedule"), found, "a cron schedule such as '0 3 * * *'"))
    name = metadata.get("name") or metadata.get("generateName") or "without a name"
    result = Conversion(f"{kind.kind} {name}", TEMPLATE if kind.bare else (*TEMPLATE, "spec"))
    starts, notes = schedule_of(schedule, spec.get("timeZone"))
    result.notes += notes
    template, child = _template(kind, document, spec, result)
    for container in containers_in(child):
        # The API server's default, which keeps the output of a failed container out of its status.
        if container.get("terminationMessagePolicy") == "File":
            del container["terminationMessagePolicy"]
    _without_restarts(kind, child, result)
    training = training_containers(child)
    arguments = find_arguments(child, training.names)
    replace_arguments(child, arguments, training.names)
    _note_containers(training, result)
    also = ", as the source is" if spec.get("suspend") is True else ""
    result.remarks["spec", "suspend"] = f"SET: false, when all that is marked SET is right (suspended until then{also})"
    if kind.child_version == "batch/v1":
        result.remarks["spec", "reporting", "source"] = (
            "Push if the training uses the wattloop client; Logs needs operator.readPodLogs of the chart"
        )
    result.manifest = {
        "apiVersion": API_VERSION,
        "kind": "RecurringTrainingJob",
        "metadata": _metadata(metadata, result),
        "spec": {
            # A job without a target starts nothing.
            "suspend": True,
            **starts,
            "objective": _objective(arguments, result),
            "batchSize": _batch_size(arguments, result),
            **({"reporting": {"source": "Logs"}} if kind.child_version == "batch/v1" else {}),
            **_retries(child, result),
            **_same_fields(spec, result),
            **({} if training.names is None else {"trainingContainers": list(training.names)}),
            "template": template,
        },
    }
    return result


def _object(document: Document, parent: dict[str, Any], path: Path) -> dict[str, Any]:
    value = parent.get(str(path[-1]))
    if not isinstance(value, dict):
        found = f"no {path[-1]}" if value is None else format_value(value)
        raise DocumentError(document.problem(path, found, f"an object in {path[-1]}"))
    return value


def _template(
    kind: CronKind, document: Document, spec: dict[str, Any], result: Conversion
) -> tuple[dict[str, Any], dict[str, Any]]:
    template = _object(document, spec, TEMPLATE)
    child = template if kind.bare else _object(document, template, result.child)
    kept: dict[str, Any] = {}
    metadata = {} if kind.bare else template.get("metadata") or {}
    for name, value in metadata.items() if isinstance(metadata, dict) else ():
        if name in ("labels", "annotations"):
            kept[name] = value
        elif name not in SET_BY_SERVER:
            result.note((*TEMPLATE, "metadata", name), "not carried over: Wattloop names its workloads")
    other = {} if kind.group == "batch" else {"apiVersion": kind.child_version, "kind": kind.child_kind}
    return {**other, **({"metadata": kept} if kept else {}), "spec": child}, child


def _metadata(metadata: dict[str, Any], result: Conversion) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for name, value in metadata.items():
        if name in ("name", "generateName"):
            kept[name] = _job_name(str(value), name, result)
        elif name == "annotations" and isinstance(value, dict):
            kept[name] = {key: each for key, each in value.items() if key != LAST_APPLIED}
        elif name in ("namespace", "labels"):
            kept[name] = value
        elif name not in SET_BY_SERVER:
            result.note(("metadata", name), "not carried over: it belongs to the source")
    return {name: value for name, value in kept.items() if value not in (None, {}, "")}


def _job_name(name: str, key: str, result: Conversion) -> str:
    """The name, as a job may have it: names of its pods are derived from it."""
    length = MAX_JOB_NAME_CHARACTERS - (5 if key == "generateName" else 0)
    valid = name.replace(".", "-")[:length]
    valid = valid if key == "generateName" else valid.rstrip("-")
    if valid != name:
        text = f"shortened to {valid!r}: a job has at most {length} characters and no dot"
        result.note(("metadata", key), text)
    return valid


def _same_fields(spec: dict[str, Any], result: Conversion) -> dict[str, Any]:
    kept = {ours: spec[theirs] for theirs, ours in SAME_FIELDS.items() if spec.get(theirs) is not None}
    if kept.get("startingDeadlineSeconds") == 0:
        del kept["startingDeadlineSeconds"]
        text = "not carried over: 0 seconds let no run start; here there is no deadline"
        result.note(("spec", "startingDeadlineSeconds"), text)
    if kept.get("concurrencyPolicy") == "Allow":
        result.remarks["spec", "concurrencyPolicy"] = "CHECK: with Forbid each run learns from the one before it"
    if "concurrencyPolicy" not in kept:
        text = "not set, which means Allow; here it is Forbid, because a run learns from the one before it"
        result.note(("spec", "concurrencyPolicy"), text)
    for name, value in spec.items():
        if name not in CONVERTED_FIELDS and value is not None:
            result.note(("spec", name), "not carried over: a RecurringTrainingJob has no such setting")
    return kept


def _retries(child: dict[str, Any], result: Conversion) -> dict[str, Any]:
    """What Wattloop does itself, and so takes from the workload: retries, and the deletion of what has ended."""
    if child.pop("ttlSecondsAfterFinished", None) is not None:
        text = "not carried over: Wattloop reads how a workload ended, and deletes it then"
        result.note((*result.child, "ttlSecondsAfterFinished"), text)
    limit = child.pop("backoffLimit", None)
    if limit is None:
        return {}
    text = "is spec.retries now: Wattloop starts another workload, with its own decision, for each attempt"
    result.note((*result.child, "backoffLimit"), text)
    return {"retries": min(limit, MAX_RETRIES) if isinstance(limit, int) else limit}


def _without_restarts(kind: CronKind, child: dict[str, Any], result: Conversion) -> None:
    """Have a failed pod of a Job end an attempt, as by default."""
    place = ("template", "spec")
    pod = child.get(place[0])
    pod = pod.get(place[1]) if isinstance(pod, dict) else None
    if kind.child_version == "batch/v1" and isinstance(pod, dict) and pod.get("restartPolicy") == "OnFailure":
        pod["restartPolicy"] = "Never"
        text = "is Never now: the cost of an attempt would include what ran before a restart in its pod"
        result.note((*result.child, *place, "restartPolicy"), text)


def _note_containers(training: TrainingContainers, result: Conversion) -> None:
    """Say which container trains, if a pod has several."""
    if not training.others:
        return
    place, others = (*result.child, *training.path), ", ".join(training.others)
    if training.names is None:
        text = (
            f"which of {others} trains is not known, because none of them has GPUs, a batch size or epochs; "
            f"{training.others[0]}, the first, gets Wattloop's variables, and its log is read; set "
            "spec.trainingContainers"
        )
    else:
        text = (
            f"{', '.join(training.names)} has the GPUs or the batch size, so it trains and its log is read, and "
            f"{others} gets no variables of Wattloop (spec.trainingContainers)"
        )
        result.remarks["spec", "trainingContainers"] = "CHECK: the containers that train"
    result.note(place, text)


def _objective(arguments: TrainingArguments, result: Conversion) -> dict[str, Any]:
    target = ("spec", "objective", "target")
    result.remarks[*target, "metric"] = "SET: the metric that the training prints or reports"
    result.remarks[*target, "threshold"] = "SET: the value at which the model is good enough"
    result.note((), "the target is not known; set the metric and its threshold")
    objective: dict[str, Any] = {"target": {"metric": METRIC, "threshold": THRESHOLD}}
    if arguments.epochs.value is not None:
        objective["maxEpochs"] = arguments.epochs.value
    else:
        why, place = _why_unknown(arguments.epochs)
        text = (
            f"the number of epochs is not known, because {why}; set objective.maxEpochs (without it, a run ends after "
            f"{DEFAULT_MAX_EPOCHS}), and {place}"
        )
        result.note((), text)
    return objective


def _batch_size(arguments: TrainingArguments, result: Conversion) -> dict[str, Any]:
    setting = arguments.per_device if arguments.per_device.value is not None else arguments.batch_size
    default = setting.value or PLACEHOLDER_BATCH_SIZE
    batch_size: dict[str, Any] = {"default": default, "candidates": list(sizes_around(default))}
    if setting is arguments.per_device:
        batch_size["scope"] = "PerDevice"
    result.remarks["spec", "batchSize", "candidates"] = "CHECK: powers of two around the default"
    if setting.value is None:
        why, place = _why_unknown(arguments.batch_size, arguments.per_device)
        result.remarks["spec", "batchSize", "default"] = "SET: the batch size in use so far"
        text = f"the batch size is not known, because {why}; set it, and {place}"
        result.note((), text)
    return batch_size


def _why_unknown(*settings: ArgumentValue) -> tuple[str, str]:
    """Why a number was not found, and where to pass it to the training.

    Several names give different ones, the known name has something else, or no known name gives one.
    """
    pass_it = f"pass $({settings[0].variable}) to the training"
    places = sorted(place for setting in settings for place in setting.places)
    if places:
        is_one = len({container for container, _ in places}) == 1
        names = [name if is_one else f"{name} of {container}" for container, name in places]
        return f"{', '.join(names)} give several", pass_it
    unread = [(each, setting.variable) for setting in settings for each in setting.unread]
    if unread:
        names = list(dict.fromkeys(f"$({variable}) as {each.name}" for each, variable in unread))
        return ", and ".join(each.reason for each, _ in unread), f"pass {', '.join(names)} to the training"
    related = ", ".join(each for setting in settings for each in setting.related)
    also = f" by a known name ({related} was not taken for it)" if related else ""
    return f"no argument and no variable has it{also}", pass_it


SCHEDULE = ("spec", "schedule")
ZONE_PREFIX = re.compile(r"^(?:CRON_TZ|TZ)=(\S+)\s+")
EVERY = re.compile(r"^@every\s+(.+)$")
# A duration of Go, such as 1h30m.
DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h)")
UNIT_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
DAY_OF_MONTH, DAY_OF_WEEK = 2, 4
# The periods that a cron schedule has throughout, and their schedules, in ascending order.
CRON_OF_SECONDS = {
    60: "* * * * *",
    **{60 * each: f"*/{each} * * * *" for each in (2, 3, 4, 5, 6, 10, 12, 15, 20, 30)},
    3600: "0 * * * *",
    **{3600 * each: f"0 */{each} * * *" for each in (2, 3, 4, 6, 8, 12)},
    86_400: "0 0 * * *",
    7 * 86_400: "0 0 * * 0",
    31 * 86_400: "0 0 1 * *",
}
YEAR_SECONDS = 366 * 86_400
STAR_WITH_STEP = re.compile(r"^\*/0*([2-9]|[1-9][0-9]+)$")


def schedule_of(schedule: str, time_zone: str | None) -> tuple[dict[str, str], list[Note]]:
    """The fields of a spec with a schedule, and what is different.

    Args:
        schedule: The schedule.
        time_zone: Its time zone; None if the source names none.

    Example:
        >>> schedule_of("TZ=Europe/Paris 0 3 ? * 1", None)
        ({'schedule': '0 3 * * 1', 'timeZone': 'Europe/Paris'}, [])
        >>> schedule_of("@every 1h30m", None)[0]
        {'schedule': '0 */2 * * *', 'timeZone': 'Etc/UTC'}
    """
    schedule = schedule.strip()
    prefix = ZONE_PREFIX.match(schedule)
    if prefix is not None:
        schedule, time_zone = schedule[prefix.end() :], prefix[1]
    every = EVERY.match(schedule)
    seconds = None if every is None else _seconds(every[1])
    if seconds is not None:
        period, cron = next((each for each in CRON_OF_SECONDS.items() if each[0] >= seconds), (YEAR_SECONDS, "@yearly"))
        differs = f", because no cron schedule has {seconds} s" if period != seconds else ""
        text = f"is {cron} now, by the clock and not by the start of a controller{differs}"
        return {"schedule": cron, "timeZone": time_zone or "Etc/UTC"}, [Note(SCHEDULE, text)]
    # A question mark means any value, as a star.
    fields = ["*" if each == "?" else each for each in schedule.split()]
    notes = list(_differences(fields, time_zone))
    return {"schedule": " ".join(fields), "timeZone": time_zone or "Etc/UTC"}, notes


def _seconds(duration: str) -> int | None:
    """The seconds of a duration, at least 1; None if it is no duration."""
    parts = DURATION_PART.findall(duration.strip())
    if not parts or "".join(number + unit for number, unit in parts) != duration.strip():
        return None
    return max(1, math.floor(sum(float(number) * UNIT_SECONDS[unit] for number, unit in parts)))


def _differences(fields: list[str], time_zone: str | None) -> Iterator[Note]:
    if time_zone is None:
        yield Note(
            ("spec", "timeZone"),
            "not set, so the schedule followed the controller's own time zone, usually UTC; here it is Etc/UTC",
        )
    if len(fields) <= DAY_OF_WEEK:
        return
    days = fields[DAY_OF_MONTH], fields[DAY_OF_WEEK]
    if "*" not in days and any(STAR_WITH_STEP.match(each) for each in days):
        yield Note(
            SCHEDULE,
            f"with the days {days[0]} and {days[1]} the source runs on a day that matches either of them, and this "
            "schedule on a day that matches both; list the days of one field",
        )
