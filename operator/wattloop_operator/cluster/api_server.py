"""The connection to the API server, and the checks of it at the start."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import urllib3
from kubernetes import client, config
from kubernetes.config.config_exception import ConfigException
from yaml import YAMLError

from wattloop.errors import OperationError, UsageError
from wattloop.files.reading import special_file_kind
from wattloop_operator.api.model import API_VERSION, GROUP
from wattloop_operator.cluster.api import (
    FREQUENCY_PLANS,
    GPU_POWER_POLICIES,
    RECURRING_TRAINING_JOBS,
    TRAINING_RECURRENCES,
)
from wattloop_operator.cluster.api_transport import METADATA_ONLY, Request, StatusError, Transport, UnavailableError

logger = logging.getLogger(__name__)

# Errors of the official client for a kubeconfig that is missing, or is not a kubeconfig, YAML or
# text.
KUBECONFIG_ERRORS = (ConfigException, OSError, YAMLError, ValueError, TypeError, AttributeError, KeyError)
REQUIRED_RESOURCES = (RECURRING_TRAINING_JOBS, TRAINING_RECURRENCES)
WATCHED_RESOURCES = (*REQUIRED_RESOURCES, FREQUENCY_PLANS, GPU_POWER_POLICIES)
NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@dataclass(frozen=True)
class ClusterAddress:
    """A cluster and a user.

    Attributes:
        kubeconfig: A kubeconfig file; None: the pod's service account, or else the default
            kubeconfig.
        context: A context of the kubeconfig; empty: its current context.
    """

    kubeconfig: Path | None = None
    context: str = ""

    def client(self, connections: int) -> client.ApiClient:
        """The official client.

        Args:
            connections: Maximal number of concurrent requests.

        Raises:
            OperationError: There is no usable configuration.
            UsageError: The kubeconfig or the context does not exist.
        """
        if self.kubeconfig is not None and (kind := special_file_kind(self.kubeconfig)):
            raise UsageError(f"--kubeconfig: found {kind} at {self.kubeconfig}, expected a file")
        configuration = client.Configuration()
        in_cluster = self.kubeconfig is None and not self.context and "KUBERNETES_SERVICE_HOST" in os.environ
        try:
            if in_cluster:
                config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
            else:
                config.load_kube_config(  # type: ignore[no-untyped-call]
                    config_file=None if self.kubeconfig is None else str(self.kubeconfig),
                    context=self.context or None,
                    client_configuration=configuration,
                )
        except KUBECONFIG_ERRORS as error:
            if self.kubeconfig is not None and not self.kubeconfig.exists():
                raise UsageError(f"--kubeconfig: there is no file {self.kubeconfig}") from error
            remedy = "choose one with --kubeconfig FILE and --context NAME; in a pod the service account is used"
            raise OperationError(f"no cluster: {kubeconfig_problem(error)}; {remedy}") from error
        configuration.connection_pool_maxsize = connections
        # An interrupted request is repeated by the next reconciliation, not here, and a refused one by `retrying`.
        configuration.retries = urllib3.Retry(
            connect=1, read=0, redirect=0, status=0, other=0, respect_retry_after_header=False
        )
        api_client = client.ApiClient(configuration)
        api_client.user_agent = "wattloop-operator"
        return api_client


def kubeconfig_problem(error: Exception) -> str:
    """The problem of a kubeconfig, as a clause."""
    if isinstance(error, ConfigException | OSError):
        return str(error).rstrip(".")
    return f"the kubeconfig cannot be read ({' '.join(str(error).split()) or type(error).__name__})"


def own_namespace() -> str:
    """The namespace of this pod; `default` outside a cluster."""
    try:
        return NAMESPACE_FILE.read_text(encoding="ascii").strip()
    except OSError:
        return "default"


def check_reachable(transport: Transport, namespaces: Sequence[str] = ()) -> tuple[str, ...]:
    """Check that the API server answers and serves Wattloop's kinds, and that the operator may read them.

    Args:
        transport: Carries requests to the API server.
        namespaces: The operator's namespaces; empty: all.

    Returns:
        The readable namespaces. The others are logged as errors: a deleted namespace must not stop
            the training in another one.

    Raises:
        UnavailableError: The API server is away.
        OperationError: A check failed, or no namespace is readable.
    """
    _check_served(transport)
    if not namespaces:
        _check_readable(transport, "")
        return ()
    readable, problem = [], ""
    for namespace in namespaces:
        try:
            _check_namespace(transport, namespace)
        except UnavailableError:
            raise
        except OperationError as error:
            problem = str(error)
            logger.error("namespace %s: its RecurringTrainingJobs are not run: %s", namespace, error)  # noqa: TRY400
        else:
            readable.append(namespace)
    if not readable:
        raise OperationError(f"no namespace of --namespaces is readable: {problem}")
    return tuple(readable)


def is_readable(transport: Transport, namespace: str) -> bool:
    """Whether the operator may read Wattloop's kinds in a namespace; False if unreachable."""
    try:
        _check_namespace(transport, namespace)
    except OperationError:
        return False
    return True


def _check_served(transport: Transport) -> None:
    try:
        known = transport(Request("GET", f"/apis/{API_VERSION}"))
    except StatusError as error:
        if error.status == 404:
            raise OperationError(
                f"the cluster does not know {API_VERSION}; install the custom resource definitions first: "
                "kubectl apply --server-side -f crds/, or the chart"
            ) from error
        raise OperationError(f"the API server rejects the operator: {error}") from error
    served = {str(each.get("name")) for each in known.get("resources") or ()}
    for resource in WATCHED_RESOURCES:
        if resource.plural not in served:
            raise OperationError(
                f"the cluster does not serve {resource.plural}.{GROUP}; install the custom resource definitions of "
                "this version of Wattloop: kubectl apply --server-side -f crds/, or the chart"
            )


def _check_namespace(transport: Transport, namespace: str) -> None:
    try:
        transport(Request("GET", f"/api/v1/namespaces/{namespace}"))
    except StatusError as error:
        # The chart grants no right to read namespaces; then the next check finds a missing one.
        if error.status == 404:
            raise OperationError(
                f"there is no namespace {namespace}; create it, or take it from --namespaces"
            ) from error
    _check_readable(transport, namespace)


def _check_readable(transport: Transport, namespace: str) -> None:
    where = f" in the namespace {namespace}, or there is no such namespace" if namespace else ""
    remedy = "create it and run helm upgrade with it in operator.namespaces" if namespace else ""
    for resource in REQUIRED_RESOURCES:
        try:
            transport(Request("GET", resource.path(namespace), {"limit": "1"}, accept=METADATA_ONLY))
        except StatusError as error:
            raise OperationError(
                f"the operator may not read {resource.plural}{where} ({error.message}); "
                + (remedy or "give its service account the roles of the chart")
            ) from error


def credentials(api_client: client.ApiClient) -> dict[str, Any]:
    """Credentials for kopf, of the same user; the token is read at each call, because Kubernetes rotates it."""
    configuration = api_client.configuration
    header = configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
    scheme, _, token = (header or "").rpartition(" ")
    return {
        "server": configuration.host,
        "ca_path": configuration.ssl_ca_cert,
        "insecure": not configuration.verify_ssl,
        "scheme": scheme or None,
        "token": token or None,
        "certificate_path": configuration.cert_file,
        "private_key_path": configuration.key_file,
    }
