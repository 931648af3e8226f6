"""Reads a job's history: from a database, or from the objects of a cluster."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from kubernetes import config
from kubernetes.client import ApiClient
from pydantic import ValidationError

from wattloop.errors import InputError, OperationError, UsageError
from wattloop_operator.api.model import ApiModel, first_problem
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.cluster.api import (
    RECURRING_TRAINING_JOBS,
    TRAINING_RECURRENCES,
    Body,
    ClusterApi,
    NotFoundError,
    RejectedError,
)
from wattloop_operator.cluster.api_server import KUBECONFIG_ERRORS, kubeconfig_problem
from wattloop_operator.cluster.api_transport import HttpTransport
from wattloop_operator.domain.job_identity import is_shown
from wattloop_operator.domain.snapshot import Snapshot
from wattloop_operator.domain.tariff import NO_TARIFFS, Tariffs, tariff_of
from wattloop_operator.domain.training_attempt import TrainingAttempt
from wattloop_operator.history.job_history import JobHistory
from wattloop_operator.store import JobObservations, Store

Model = TypeVar("Model", bound=ApiModel)


@dataclass(frozen=True)
class JobSelector:
    """Selects a job in a database.

    Attributes:
        name: The job's name; None for the only job of the database.
        namespace: Its namespace; None for the only namespace with a job of this name.
        uid: Its UID; None for the job of this name that ran last.
    """

    name: str | None
    namespace: str | None = None
    uid: str | None = None


def stored_history(store: Store, selector: JobSelector, tariffs: Tariffs | None = None) -> JobHistory:
    """Read a job's history.

    The local mode stores the job itself beside its observations. Of a cluster's job there are only
    observations, so it has neither a weight of energy nor a default batch size to compare with.

    Args:
        store: The open store.
        selector: The job.
        tariffs: The tariffs; None: the one that is remembered with the job of a local run.

    Raises:
        UsageError: There is no such job, or there are several. The message lists the jobs.
        InputError: The stored job is invalid.
        OperationError: The database failed.
    """
    found = _find(store, selector)
    records, profiles = store.observations.of_job(found.job_uid), store.profiles.of_job(found.job_uid)
    job = store.objects.get_as(RecurringTrainingJob, found.namespace, found.job_name)
    if job is not None and job.metadata.uid == found.job_uid:
        return JobHistory.of_job(job, records, profiles, tariff_of(found.namespace, job, tariffs))
    # The first attempt of a job ran its defaults.
    defaults = dict(records[0].parameters) if records else {}
    return JobHistory(found.namespace, found.job_name, None, None, records, profiles, default_parameters=defaults)


def _find(store: Store, selector: JobSelector) -> JobObservations:
    jobs = store.observations.jobs()
    found = [
        job
        for job in jobs
        if selector.name in (None, job.job_name)
        and selector.namespace in (None, job.namespace)
        and selector.uid in (None, job.job_uid)
    ]
    names = {job.job_name for job in found}
    if len(names) > 1:
        raise UsageError(f"{store.name}: there are several jobs; name one, with --database: {_listed(found)}")
    wanted = selector.name or "of any name"
    name = wanted if selector.namespace is None else f"{selector.namespace}/{wanted}"
    name += "" if selector.uid is None else f" of uid {selector.uid}"
    if not found:
        available = _listed(jobs) or "none yet"
        raise UsageError(f"{store.name}: there are no recurrences of a job {name}; jobs with recurrences: {available}")
    if len({job.namespace for job in found}) > 1:
        raise UsageError(f"{store.name}: there are several jobs {name}; choose with --namespace: {_listed(found)}")
    ends = {
        job.job_uid: max((each.finished_at.timestamp() for each in store.observations.of_job(job.job_uid)), default=0.0)
        for job in found
    }
    return max(found, key=lambda job: (ends[job.job_uid], job.job_uid))


def _listed(jobs: Sequence[JobObservations]) -> str:
    names = sorted({f"{job.namespace}/{job.job_name}" for job in jobs})
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")


OR_A_DATABASE = "or read a database with --database URL"


@dataclass(frozen=True)
class ClusterContext:
    """A context of the user's kubeconfig.

    Attributes:
        name: Its name.
        namespace: Its namespace, or ``default`` if it names none.
        client: The official client with its address and credentials.
    """

    name: str
    namespace: str
    client: ApiClient


def cluster_context(name: str | None = None, kubeconfig: str | None = None) -> ClusterContext:
    """The context of this name, or the current one.

    Args:
        name: Name of the context; None for the current one.
        kubeconfig: The file that has it; None for the usual one.

    Raises:
        UsageError: There is no context of this name.
        OperationError: There is no kubeconfig, or it cannot be used.
    """
    try:
        contexts, current = config.list_kube_config_contexts(kubeconfig)  # type: ignore[no-untyped-call]
        chosen = next((each for each in contexts if each["name"] == name), None if name else current)
        if chosen is None:
            names = ", ".join(sorted(each["name"] for each in contexts))
            raise UsageError(f"the kubeconfig has no context {name!r}; it has: {names}")
        client = config.new_client_from_config(kubeconfig, context=name)  # type: ignore[no-untyped-call]
    except KUBECONFIG_ERRORS as error:
        raise OperationError(
            f"no cluster: {kubeconfig_problem(error)}; name a kubeconfig in KUBECONFIG or by --kubeconfig, "
            f"{OR_A_DATABASE}"
        ) from None
    return ClusterContext(chosen["name"], chosen["context"].get("namespace") or "default", client)


def cluster_history(
    context: ClusterContext, job_name: str, namespace: str | None = None, tariffs: Tariffs = NO_TARIFFS
) -> JobHistory:
    """Read a job and its recurrences that still exist in the cluster.

    Args:
        context: The cluster and credentials.
        job_name: The job's name.
        namespace: Its namespace; None for that of the context.
        tariffs: Price and carbon intensity of electricity by namespace.

    Raises:
        UsageError: There is no such job.
        OperationError: The cluster cannot be reached, does not have Wattloop's kinds, or denies
            access.
        InputError: An object does not match this version's API.
    """
    where = namespace or context.namespace
    api = ClusterApi(HttpTransport(context.client))
    try:
        body = api.get(RECURRING_TRAINING_JOBS, where, job_name)
        bodies, _ = api.list(TRAINING_RECURRENCES, namespace=where)
    except NotFoundError as error:
        raise _missing(error, context, f"{where}/{job_name}") from None
    except RejectedError as error:
        raise OperationError(
            f"context {context.name}: {error}; ask for permission to get and list Wattloop's objects, {OR_A_DATABASE}"
        ) from None
    except OperationError as error:
        raise OperationError(
            f"context {context.name}: {error}; check its address and credentials, {OR_A_DATABASE}"
        ) from None
    job = read_object(RecurringTrainingJob, body, f"{where}/{job_name}")
    recurrences = [read_object(TrainingRecurrence, each, f"{where}/{job_name}") for each in bodies]
    own = tuple(TrainingAttempt.of(each, None) for each in recurrences if is_shown(job, each))
    return JobHistory.of_snapshot(Snapshot(job=job, recurrences=own, tariff=tariffs.of(where)))


def read_object(model: type[Model], body: Body, subject: str) -> Model:
    """An object of a cluster as a model of the API.

    Args:
        model: The model.
        body: The object, as the API server sends it.
        subject: What is named if it cannot be read.

    Raises:
        InputError: It does not match this version's API.
    """
    try:
        return model.from_wire(body)
    except ValidationError as error:
        raise unreadable(subject, error) from error


def unreadable(subject: str, error: ValidationError) -> InputError:
    """The error of an object of a cluster that does not match this version's API; it names the first field."""
    return InputError(
        subject,
        f"an object that this version of Wattloop cannot read ({first_problem(error)})",
        "one of the version that the cluster's operator has",
    )


def _missing(error: NotFoundError, context: ClusterContext, job: str) -> OperationError | UsageError:
    # The server's message for an unknown kind. For a missing object, the message has its name.
    if "could not find the requested resource" in str(error):
        return OperationError(
            f"context {context.name}: the cluster does not have Wattloop's kinds; install the chart first"
        )
    return UsageError(
        f"context {context.name}: there is no RecurringTrainingJob {job}; list them with: "
        "kubectl get rtj --all-namespaces"
    )
