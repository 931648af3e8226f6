"""Reads the job of a manifest and adapts it to this machine."""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from wattloop.errors import InputError, UsageError
from wattloop_operator.api.manifests import check_file
from wattloop_operator.api.meta import ObjectMeta
from wattloop_operator.api.power_fields import Power, PowerMode
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.reporting_source import ReportingSource
from wattloop_operator.local.command import command_of

NAMESPACE = "local"
IDENTITY = uuid.UUID("6f1d8c4e-5a0f-4d57-9b0c-3c1a57f0a8de")


def read_job(path: Path) -> RecurringTrainingJob:
    """Read the one RecurringTrainingJob of a manifest.

    Raises:
        InputError: The manifest does not contain exactly one job, or the job cannot run as a
            process.
        UsageError: The manifest is invalid.
    """
    checked = check_file(str(path))
    if checked.problems:
        raise UsageError("\n".join(str(problem) for problem in checked.problems))
    jobs = [each for each in checked.valid if isinstance(each, RecurringTrainingJob)]
    if len(jobs) != 1:
        names = ", ".join(each.metadata.name for each in jobs) or "none"
        raise InputError(str(path), f"RecurringTrainingJobs: {names}", "exactly one")
    command_of(jobs[0], {}, str(path))
    source = jobs[0].spec.reporting.source
    if source is ReportingSource.TERMINATION_MESSAGE:
        found = f"spec.reporting.source {source}"
        raise InputError(str(path), found, "Logs or another source: on this machine no kubelet reads such messages")
    plan = jobs[0].spec.power.named_plan
    if plan is not None:
        found = f"spec.power.frequencyPlan.name {plan}"
        expected = "no name, because this machine has no FrequencyPlans; name a plan file in Pipeline(plan=…)"
        raise InputError(str(path), found, expected)
    return jobs[0]


def without_power_limits(job: RecurringTrainingJob) -> RecurringTrainingJob:
    """The job on a machine without a GPU: no power limit is held or measured."""
    power = Power(mode=PowerMode.NONE, frequency_plan=job.spec.power.frequency_plan)
    return job.model_copy(update={"spec": job.spec.model_copy(update={"power": power})})


def recurrences_of(job: RecurringTrainingJob, given: int | None) -> int | None:
    """How many recurrences a run on this machine has, one after another; None: those of the job's schedule.

    A job without a schedule, which waits for requests in a cluster, runs its maxRecurrences, or once.

    Args:
        job: The job.
        given: The number that the user asks for; None for none.
    """
    spec = job.spec
    if given is not None or spec.schedule is not None or spec.continuous or spec.suspend:
        return given
    return spec.max_recurrences or 1


def local_job(
    job: RecurringTrainingJob, seed: int, recurrences: int | None, created: datetime, annotations: Mapping[str, str]
) -> RecurringTrainingJob:
    """The job with the identity and the starts that it has on this machine.

    Args:
        job: The job of the manifest.
        seed: Seed of every random draw. The same seed gives the same run.
        recurrences: Run this many, one after another, instead of the schedule; None to follow the
            schedule.
        created: When it first ran here.
        annotations: Annotations of the job on this machine.
    """
    spec = job.spec
    if recurrences is not None:
        update = {"schedule": None, "continuous": True, "max_recurrences": recurrences, "suspend": False}
        spec = spec.model_copy(update=update)
    namespace = job.metadata.namespace or NAMESPACE
    return job.model_copy(
        update={
            "metadata": ObjectMeta(
                name=job.metadata.name,
                namespace=namespace,
                # Derived, not random: decisions depend on it, and the same seed must give the same
                # run everywhere.
                uid=str(uuid.uuid5(IDENTITY, f"{namespace}/{job.metadata.name}/{seed}")),
                creation_timestamp=created,
                generation=1,
                annotations=dict(annotations),
            ),
            "spec": spec,
        }
    )


# Words of a name, also of one such as apiKey.
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SECRET = re.compile(r"key|\w*(token|passw(or)?d|passphrase|secret|credential|apikey)s?")
# A limit of tokens of a text.
_NOT_SECRET = frozenset({"tokens"})


def is_secret(name: str) -> bool:
    """Whether a variable is a secret by its name.

    Example:
        >>> [is_secret(each) for each in ("HF_TOKEN", "PGPASSWORD", "apiKey", "AWS_SECRET_ACCESS_KEY")]
        [True, True, True, True]
        >>> [is_secret(each) for each in ("TOKENIZERS_PARALLELISM", "MAX_TOKENS", "MONKEY", "KEYBOARD")]
        [False, False, False, False]
    """
    words = {word.lower() for word in _WORD.findall(name)}
    return any(word not in _NOT_SECRET and _SECRET.fullmatch(word) for word in words)


def without_secrets(job: RecurringTrainingJob) -> RecurringTrainingJob:
    """The job with a short digest in place of each secret variable's value, so that another value is another template.

    32 bits of a digest tell nobody a token.
    """
    wire = job.to_wire()
    pod = wire["spec"]["template"].get("spec", {}).get("template", {}).get("spec", {})
    variables: list[dict[str, Any]] = [
        variable
        for kind in ("initContainers", "containers")
        for container in pod.get(kind, ())
        for variable in container.get("env", ())
        if "value" in variable and is_secret(variable["name"])
    ]
    if not variables:
        return job
    for variable in variables:
        variable["value"] = f"not stored ({hashlib.sha256(variable['value'].encode()).hexdigest()[:8]})"
    return RecurringTrainingJob.from_wire(wire)
