"""Finding the API server, and making sure at the start that it can be worked with."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import urllib3
from kubernetes import client, config
from kubernetes.config.config_exception import ConfigException
from yaml import YAMLError

from wattloop.errors import CannotError, UsageError
from wattloop_operator.api.group import API_VERSION, GROUP
from wattloop_operator.cluster.resources import RECURRING_TRAINING_JOBS, TRAINING_RECURRENCES
from wattloop_operator.cluster.transport import AnswerError, Request, Transport

# How the official client fails on a kubeconfig: missing, no kubeconfig, no YAML, no text, of a wrong shape.
UNREADABLE = (ConfigException, OSError, YAMLError, ValueError, TypeError, AttributeError, KeyError)
NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@dataclass(frozen=True)
class ClusterAddress:
    """Which cluster, and as whom.

    Attributes:
        kubeconfig: A kubeconfig file; None: the pod's own service account, or else the usual kubeconfig.
        context: A context of the kubeconfig; empty: its current one.
    """

    kubeconfig: Path | None = None
    context: str = ""

    def client(self, connections: int) -> client.ApiClient:
        """The official client.

        Args:
            connections: How many requests may be under way at once.

        Raises:
            CannotError: There is no usable configuration.
            UsageError: The kubeconfig or the context does not exist.
        """
        configuration = client.Configuration()
        try:
            if self._in_cluster():
                config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
            else:
                config.load_kube_config(  # type: ignore[no-untyped-call]
                    config_file=None if self.kubeconfig is None else str(self.kubeconfig),
                    context=self.context or None,
                    client_configuration=configuration,
                )
        except UNREADABLE as error:
            raise self._unusable(error) from error
        configuration.connection_pool_maxsize = connections
        # A request that was cut off is taken up by the turn that is taken again, not below it.
        configuration.retries = urllib3.Retry(connect=1, read=0, redirect=0, status=0, other=0)
        made = client.ApiClient(configuration)
        made.user_agent = "wattloop-operator"
        return made

    def _in_cluster(self) -> bool:
        return self.kubeconfig is None and not self.context and "KUBERNETES_SERVICE_HOST" in os.environ

    def _unusable(self, error: Exception) -> Exception:
        if self.kubeconfig is not None and not self.kubeconfig.exists():
            return UsageError(f"--kubeconfig: there is no file {self.kubeconfig}")
        where = "--kubeconfig FILE and --context NAME choose a cluster; in a pod the service account does"
        return CannotError(f"no cluster to work with: {unreadable(error)}; {where}")


def unreadable(error: Exception) -> str:
    """What is wrong with a kubeconfig, in a sentence's part."""
    if isinstance(error, ConfigException | OSError):
        return str(error).rstrip(".")
    return f"the kubeconfig cannot be read ({' '.join(str(error).split()) or type(error).__name__})"


def own_namespace() -> str:
    """The namespace of this pod; `default` outside of a cluster."""
    try:
        return NAMESPACE_FILE.read_text(encoding="ascii").strip()
    except OSError:
        return "default"


def check_reachable(transport: Transport) -> None:
    """Make sure that the API server answers, knows our kinds and lets us read them.

    Raises:
        CannotError: It does not.
    """
    try:
        known = transport(Request("GET", f"/apis/{API_VERSION}"))
    except AnswerError as error:
        if error.status == 404:
            raise CannotError(
                f"the cluster does not know {API_VERSION}; install the custom resource definitions first: "
                "kubectl apply --server-side -f crds/, or the chart"
            ) from error
        raise CannotError(f"the API server does not let the operator in: {error}") from error
    served = {str(each.get("name")) for each in known.get("resources") or ()}
    for resource in (RECURRING_TRAINING_JOBS, TRAINING_RECURRENCES):
        if resource.plural not in served:
            raise CannotError(
                f"the cluster does not serve {resource.plural}.{GROUP}; install the custom resource definitions of "
                "this version of Wattloop: kubectl apply --server-side -f crds/, or the chart"
            )
        try:
            transport(Request("GET", resource.path(), {"limit": "1"}))
        except AnswerError as error:
            raise CannotError(
                f"the operator may not read {resource.plural} ({error.message}); give its service account the roles of "
                "the chart"
            ) from error


def credentials(api_client: client.ApiClient) -> dict[str, Any]:
    """What kopf needs to log in as the same user: the token is read anew each time, since Kubernetes rotates it."""
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
