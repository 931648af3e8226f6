"""The heads of Ray clusters, as far as KubeRay asks them: each answers in what state its program is.

No container runs here, so KubeRay's requests go to a proxy, which answers for all heads. A program is in the state of
the pods that submit it and then follow its log, as on a cluster.
"""

import contextlib
import json
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from kubernetes.dynamic import DynamicClient

from support.control_plane.objects import list_objects
from support.control_plane.training import environment_of

_ADDRESS = "127.0.0.1"
# The states of a program by the phases of its pods; the first one that a pod has.
_STATES = {"Failed": "FAILED", "Succeeded": "SUCCEEDED", "Running": "RUNNING"}


@contextlib.contextmanager
def ray_heads(cluster: DynamicClient) -> Iterator[Mapping[str, str]]:
    """A context with a proxy to the heads; yields the environment by which KubeRay finds it."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            """Answer `/api/jobs/ID` with the state of a program."""
            state = _state(cluster, self.path)
            self._answer(404 if state is None else 200, {"status": state})

        def do_POST(self) -> None:
            """Answer `/api/jobs/ID/stop`: the programs end with their pods."""
            self._answer(200, {"stopped": True})

        def log_message(self, *_: object) -> None:
            """Write nothing."""

        def _answer(self, code: int, body: Mapping[str, object]) -> None:
            content = json.dumps(body).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    with ThreadingHTTPServer((_ADDRESS, 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, name="ray-heads")
        thread.start()
        try:
            # An inherited list of exceptions may name the cluster's own hosts. Loopback is always one.
            yield {"HTTP_PROXY": f"http://{_ADDRESS}:{server.server_address[1]}", "NO_PROXY": "", "no_proxy": ""}
        finally:
            server.shutdown()
            thread.join()


def _state(cluster: DynamicClient, url: str) -> str | None:
    """The state of the program of a URL, such as `http://NAME.NAMESPACE.svc.cluster.local:8265/api/jobs/ID`."""
    parts = urlsplit(url)
    namespace, program = (parts.hostname or "").split(".")[1], parts.path.rpartition("/")[2]
    pods = list_objects(cluster, ("v1", "Pod"), namespace, "batch.kubernetes.io/job-name")
    phases = {pod["status"].get("phase") for pod in pods if environment_of(pod).get("RAY_JOB_SUBMISSION_ID") == program}
    return next((state for phase, state in _STATES.items() if phase in phases), None)
