"""Service-account tokens from the API server's TokenRequest, as pods get them."""

from collections.abc import Sequence

from kubernetes import client

from support.control_plane.waiting import Object

_VALID_FOR_SECONDS = 3600


def service_account_token(
    core: client.CoreV1Api, namespace: str, service_account: str, *, audiences: Sequence[str] = ()
) -> str:
    """A token of a service account, bound to no pod; without audiences it is for the API server."""
    spec = client.V1TokenRequestSpec(audiences=list(audiences), expiration_seconds=_VALID_FOR_SECONDS)
    return _request(core, namespace, service_account, spec)


def pod_token(core: client.CoreV1Api, pod: Object, *, audiences: Sequence[str]) -> str:
    """The token of a projected volume of this pod: its TokenReview names the pod and its uid."""
    reference = client.V1BoundObjectReference(
        api_version="v1", kind="Pod", name=pod["metadata"]["name"], uid=pod["metadata"]["uid"]
    )
    spec = client.V1TokenRequestSpec(
        audiences=list(audiences), expiration_seconds=_VALID_FOR_SECONDS, bound_object_ref=reference
    )
    return _request(core, pod["metadata"]["namespace"], pod["spec"]["serviceAccountName"], spec)


def _request(core: client.CoreV1Api, namespace: str, service_account: str, spec: client.V1TokenRequestSpec) -> str:
    request = client.AuthenticationV1TokenRequest(spec=spec)
    response = core.create_namespaced_service_account_token(service_account, namespace, request)
    return str(response.status.token)
