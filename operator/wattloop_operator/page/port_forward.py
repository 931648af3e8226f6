"""The page that the chart serves in a cluster, reached by kubectl's port-forward."""

import contextlib
import http.client
import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from wattloop import interruption
from wattloop.commands.settings import Address
from wattloop.errors import OperationError
from wattloop.printable import printable
from wattloop_operator.cluster.auth.viewers import UI_AUDIENCE
from wattloop_operator.page.authentication import SIGN_IN
from wattloop_operator.parent_process import kill_with_parent

# Of every release, whatever it is called.
SELECTOR = "app.kubernetes.io/part-of=wattloop,app.kubernetes.io/component=ui"
PORT_NAME, HOSTS_OPTION = "ui", "--hosts="
# A session of the page lasts as long at most.
MAX_SESSION = "12h"
KUBECTL_SECONDS = ANSWER_SECONDS = 60
# A pod that does not run is a message, not a wait.
POD_OPTION = "--pod-running-timeout=2s"
_FORWARDING = re.compile(r"^Forwarding from (?P<address>\S+) -> ")


@dataclass(frozen=True)
class ServedPage:
    """A page that a release of the chart serves.

    Attributes:
        namespace: Namespace of the release.
        deployment: Name of its Deployment.
        port: Port of the page in its pod.
        hosts: Names by which browsers reach it by HTTPS; none: only port-forward reaches it.
    """

    namespace: str
    deployment: str
    port: int
    hosts: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.deployment}"


class Kubectl:
    """Runs kubectl.

    Raises:
        OperationError: There is no kubectl.
    """

    def __init__(self, options: Sequence[str]) -> None:
        program = shutil.which("kubectl")
        if program is None:
            raise OperationError("there is no kubectl on the PATH, which forwards the port; install it")
        self._line = (program, *options)

    def __call__(self, *words: str) -> str:
        """What a command of it writes.

        Raises:
            OperationError: It failed.
        """
        name = " ".join(words[:2])
        try:
            done = subprocess.run(  # noqa: S603 - the user's own kubectl, as a list
                [*self._line, *words],
                capture_output=True,
                text=True,
                check=False,
                timeout=KUBECTL_SECONDS,
                # A signal ends us at once here.
                preexec_fn=kill_with_parent,
            )
        except subprocess.TimeoutExpired as error:
            # Such as the code by which a credential plugin lets its user sign in; bytes in spite of text=True.
            written = (error.stderr or b"").decode(errors="replace")
            said = f"; it wrote: {printable(' '.join(written.split()))}" if written else ""
            raise OperationError(f"kubectl {name}: no answer within {KUBECTL_SECONDS} s{said}") from None
        if done.returncode:
            # The lines before are the client's log.
            raise OperationError(f"kubectl {name}: {printable((done.stderr.strip().splitlines() or [''])[-1])}")
        return done.stdout

    @contextlib.contextmanager
    def running(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        """A command of it that runs, whose errors go where ours go; it ends with the block."""
        with subprocess.Popen(  # noqa: S603 - the user's own kubectl, as a list
            [*self._line, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            # Ctrl-C is ours alone.
            start_new_session=True,
            preexec_fn=kill_with_parent,  # noqa: PLW1509  only async-signal-safe calls are made there
        ) as process:
            try:
                yield process
            finally:
                process.kill()


def served_page(kubectl: Kubectl, namespace: str | None) -> ServedPage:
    """The page that a release of the chart serves.

    Args:
        kubectl: Reads the cluster.
        namespace: Namespace of the release; None: any.

    Raises:
        OperationError: There is none, or there are several, or the user may not list Deployments.
    """
    where = ("--all-namespaces",) if namespace is None else ("--namespace", namespace)
    try:
        text = kubectl("get", "deployments", f"--selector={SELECTOR}", "--output=json", *where)
    except OperationError as error:
        if namespace is None and "(Forbidden)" in str(error):
            raise OperationError(f"{error}; name the namespace of Wattloop's release with -n") from None
        raise
    pages = [_page(each) for each in json.loads(text)["items"]]
    place = "the cluster" if namespace is None else f"the namespace {namespace}"
    if not pages:
        raise OperationError(
            f"no release of the chart in {place} serves the page: helm upgrade … --set ui.enabled=true; without "
            "--forward, this command serves a page of what your kubeconfig's user may list"
        )
    if len(pages) > 1:
        first, remedy = pages[0], "choose one with -n"
        if all(each.namespace == first.namespace for each in pages):
            options = f"--namespace {first.namespace} deployment/{first.deployment} {first.port}"
            remedy = f"forward one yourself, such as by kubectl port-forward {options}"
        raise OperationError(f"several releases serve the page: {', '.join(map(str, pages))}; {remedy}")
    return pages[0]


def _page(deployment: dict[str, Any]) -> ServedPage:
    metadata, (container, *_) = deployment["metadata"], deployment["spec"]["template"]["spec"]["containers"]
    ports = {each.get("name"): int(each["containerPort"]) for each in container["ports"]}
    hosts = (each.removeprefix(HOSTS_OPTION) for each in container["args"] if each.startswith(HOSTS_OPTION))
    return ServedPage(
        namespace=str(metadata["namespace"]),
        deployment=str(metadata["name"]),
        port=ports[PORT_NAME],
        hosts=tuple(host for each in hosts for host in each.split(",")),
    )


def viewer_token(kubectl: Kubectl, namespace: str, account: str) -> str:
    """A token of a service account by which a browser signs in at the page, and nothing else is reached.

    Raises:
        OperationError: There is no such account, or the user may not make tokens of it.
    """
    options = (f"--namespace={namespace}", f"--audience={UI_AUDIENCE}", f"--duration={MAX_SESSION}")
    return kubectl("create", "token", account, *options).strip()


@contextlib.contextmanager
def forwarded(kubectl: Kubectl, page: ServedPage, bind: Address) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Forward an address of this machine to a page; gives its URL, once the page answers, and the process.

    Raises:
        OperationError: The port cannot be forwarded, or the page does not answer.
    """
    ports = f"{bind.port or ''}:{page.port}"
    options = (f"--namespace={page.namespace}", f"--address={bind.host}", POD_OPTION)
    with kubectl.running("port-forward", *options, f"deployment/{page.deployment}", ports) as process:
        assert process.stdout is not None
        line = interruption.call_cancellable(process.stdout.readline, process.kill)
        found = _FORWARDING.match(line)
        if found is None:
            raise OperationError(
                f"kubectl port-forward to {page} failed, as the message above says. It takes a pod that runs (kubectl "
                f"describe deployment {page.deployment} --namespace {page.namespace}), the rights to get deployments, "
                "get and list pods and create pods/portforward there, and a free port (--bind)"
            )
        _await_answer(found["address"])
        yield f"http://{found['address']}", process


def await_end(process: subprocess.Popen[str]) -> None:
    """Wait until the forwarding ends, or the program is asked to end.

    Raises:
        OperationError: It has ended by itself.
        Interrupted: The program was asked to end.
    """

    def read() -> None:
        assert process.stdout is not None
        # A line of each connection.
        for _ in process.stdout:
            pass

    interruption.call_cancellable(read, process.kill)
    interruption.raise_if_requested()
    raise OperationError(
        f"kubectl port-forward has ended with exit code {process.wait()}, as when the page's pod restarts; begin again"
    )


def _await_answer(address: str) -> None:
    connection = http.client.HTTPConnection(address, timeout=ANSWER_SECONDS)
    try:
        connection.request("GET", SIGN_IN)
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        raise OperationError(f"the page does not answer at {address}: {error}; see the message above") from error
    finally:
        connection.close()
    if status != http.client.OK:
        raise OperationError(f"the page answers at {address} with the status {status}; see the log of its pod")
