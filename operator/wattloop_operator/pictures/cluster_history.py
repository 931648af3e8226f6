"""A job's history as the objects of a cluster remember it."""

from __future__ import annotations

import json
from typing import Any

from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from kubernetes.config.config_exception import ConfigException
from pydantic import ValidationError
from urllib3.exceptions import HTTPError

from wattloop.errors import CannotError, InputError, UsageError
from wattloop_operator.api.group import GROUP, VERSION
from wattloop_operator.api.recurring_training_job import RecurringTrainingJob
from wattloop_operator.api.training_recurrence import TrainingRecurrence
from wattloop_operator.engine.snapshot import Snapshot
from wattloop_operator.pictures.job_history import JobHistory

# Seconds to connect, and to wait for an answer.
PATIENCE = (5, 30)
OBJECTS_A_PAGE = 500


def cluster_history(name: str, *, context: str | None = None, namespace: str | None = None) -> JobHistory:
    """Read a job and the recurrences that the cluster still keeps of it.

    Args:
        name: The job's name.
        context: A context of the kubeconfig; None: its current one.
        namespace: The job's namespace; None: the context's, or ``default``.

    Raises:
        UsageError: There is no such context, or no such job.
        CannotError: The cluster cannot be reached, or does not let this user read.
        InputError: An object is of a later API than this version's.
    """
    try:
        contexts, current = config.list_kube_config_contexts()  # type: ignore[no-untyped-call]
        chosen = next((each for each in contexts if each["name"] == context), current)
        if context is not None and chosen["name"] != context:
            names = ", ".join(sorted(each["name"] for each in contexts))
            raise UsageError(f"the kubeconfig has no context {context!r}; it has: {names}")
        api_client = config.new_client_from_config(context=context)  # type: ignore[no-untyped-call]
    except ConfigException as error:
        raise CannotError(
            f"no cluster: {error}; name a kubeconfig in KUBECONFIG, or read a database with --database URL"
        ) from None
    where = namespace or chosen["context"].get("namespace") or "default"
    with api_client:
        try:
            return _read(client.CustomObjectsApi(api_client), where, name)
        except ApiException as error:
            raise _explained(error, f"context {chosen['name']}", where, name) from None
        except HTTPError as error:
            reason = getattr(error, "reason", None) or error
            raise CannotError(
                f"context {chosen['name']}: the API server cannot be reached: {reason}; check the address and the "
                "network, or read a database with --database URL"
            ) from None


def _read(api: client.CustomObjectsApi, namespace: str, name: str) -> JobHistory:
    body: Any = api.get_namespaced_custom_object(
        GROUP, VERSION, namespace, RecurringTrainingJob.resource.plural, name, _request_timeout=PATIENCE
    )
    try:
        job = RecurringTrainingJob.from_wire(body)
        recurrences = [TrainingRecurrence.from_wire(each) for each in _listed(api, namespace)]
    except ValidationError as error:
        raise InputError(
            f"{namespace}/{name}",
            f"an object that this version of Wattloop cannot read ({error.error_count()} fields)",
            "the version that the cluster's operator has",
        ) from error
    own = tuple(each for each in recurrences if each.spec.job_ref.uid == job.metadata.uid)
    return JobHistory.of_snapshot(Snapshot(job=job, recurrences=own))


def _listed(api: client.CustomObjectsApi, namespace: str) -> list[dict[str, Any]]:
    objects: list[dict[str, Any]] = []
    following: str | None = None
    while True:
        page: Any = api.list_namespaced_custom_object(
            GROUP,
            VERSION,
            namespace,
            TrainingRecurrence.resource.plural,
            limit=OBJECTS_A_PAGE,
            _request_timeout=PATIENCE,
            _continue=following,
        )
        objects += page["items"]
        following = page["metadata"].get("continue")
        if not following:
            return objects


def _explained(error: ApiException, where: str, namespace: str, name: str) -> CannotError | UsageError:
    said = _message(error)
    if error.status == 404 and "could not find the requested resource" in said:
        return CannotError(
            f"{where}: the API server does not know Wattloop's kinds; install the chart (its CRDs) first"
        )
    if error.status == 404:
        return UsageError(
            f"{where}: there is no RecurringTrainingJob {namespace}/{name}; list them with: "
            "kubectl get rtj --all-namespaces"
        )
    if error.status in {401, 403}:
        return CannotError(f"{where}: not allowed: {said}; ask for the right to get and list Wattloop's objects")
    return CannotError(f"{where}: the API server answered {error.status}: {said}; try again")


def _message(error: ApiException) -> str:
    try:
        return str(json.loads(error.body or "")["message"])
    except (TypeError, ValueError, KeyError):
        return str(error.body or error.reason).strip()
