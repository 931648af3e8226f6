"""The heads of Ray clusters, as far as KubeRay asks them: each answers in what state its program is.

No container runs here, so KubeRay's requests go to a proxy, which answers for all heads. A program is in the state of
the pods that submit it and then follow its log, as on a cluster.
"""

import contextlib
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler
from urllib.parse import urlsplit

from kubernetes.dynamic import DynamicClient

from support.control_plane.objects import list_objects
from support.control_plane.training import environment_of
from support.http_stand_in import http_server, respond

# The states of a program by the phases of its pods; the first one that a pod has.
_STATES = {"Failed": "FAILED", "Succeeded": "SUCCEEDED", "Running": "RUNNING"}


@contextlib.contextmanager
def ray_heads(cluster: DynamicClient) -> Iterator[Mapping[str, str]]:
    """A context with a proxy to the heads; yields the environment by which KubeRay finds it."""

    def behaviour(request: BaseHTTPRequestHandler) -> None:
        if request.command == "POST":
            # `/api/jobs/ID/stop`: the programs end with their pods.
            respond(request, 200, {"stopped": True})
            return
        # `/api/jobs/ID`
        state = _state(cluster, request.path)
        respond(request, 404 if state is None else 200, {"status": state})

    with http_server(behaviour) as url:
        # An inherited list of exceptions may name the cluster's own hosts. Loopback is always one.
        yield {"HTTP_PROXY": url, "NO_PROXY": "", "no_proxy": ""}


def _state(cluster: DynamicClient, url: str) -> str | None:
    """The state of the program of a URL, such as `http://NAME.NAMESPACE.svc.cluster.local:8265/api/jobs/ID`."""
    parts = urlsplit(url)
    namespace, program = (parts.hostname or "").split(".")[1], parts.path.rpartition("/")[2]
    pods = list_objects(cluster, ("v1", "Pod"), namespace, "batch.kubernetes.io/job-name")
    phases = {pod["status"].get("phase") for pod in pods if environment_of(pod).get("RAY_JOB_SUBMISSION_ID") == program}
    return next((state for phase, state in _STATES.items() if phase in phases), None)
