"""The page of a cluster by kubectl's port-forward: a program in place of kubectl names a port that is served.

`tests/cluster/commands/test_ui.py` has kubectl itself, on an API server without a kubelet.
"""

import json
import signal
import sys
from pathlib import Path

import httpx
import pytest

from support.live_page import serving_viewers
from support.reviewed_cluster import ReviewedCluster
from wattloop.commands.settings import Address
from wattloop.errors import OperationError
from wattloop_operator.page import port_forward
from wattloop_operator.page.port_forward import Kubectl, ServedPage, await_end, forwarded, served_page

PAGE = ServedPage("home", "wattloop-ui", 8790, ())
BIND = Address("127.0.0.1", 0)


def kubectl(folder: Path, monkeypatch: pytest.MonkeyPatch, line: str, then: str = "exec /bin/sleep 600") -> Kubectl:
    """A kubectl that writes a line, and waits or does what is given."""
    program = folder / "kubectl"
    program.write_text(f"#!/bin/sh\necho '{line}'\n{then}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    return Kubectl(())


def test_a_page_is_open_while_kubectl_forwards_and_an_end_of_kubectl_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving_viewers(ReviewedCluster()) as url:
        line = f"Forwarding from {url.removeprefix('http://')} -> 8790"
        with forwarded(kubectl(tmp_path, monkeypatch, line), PAGE, BIND) as (found, process):
            assert found == url
            assert "kubectl create token" in httpx.get(f"{found}/sign-in").text
            process.terminate()
            with pytest.raises(OperationError, match=r"ended with exit code -15.*begin again"):
                await_end(process)
        with forwarded(kubectl(tmp_path, monkeypatch, line), PAGE, BIND) as (_, process):
            assert process.poll() is None
        assert process.poll() is not None


def test_a_forwarded_port_that_does_not_answer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Nothing can listen on this port.
    silent = kubectl(tmp_path, monkeypatch, "Forwarding from 127.0.0.1:0 -> 8790")
    with pytest.raises(OperationError, match=r"does not answer at 127\.0\.0\.1:0"), forwarded(silent, PAGE, BIND):
        pass


def test_releases_of_one_namespace_are_not_told_to_be_chosen_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    container = {"args": [], "ports": [{"name": "ui", "containerPort": 8790}]}
    pod = {"template": {"spec": {"containers": [container]}}}
    items = [{"metadata": {"namespace": "home", "name": name}, "spec": pod} for name in ("a-ui", "b-ui")]
    found = kubectl(tmp_path, monkeypatch, json.dumps({"items": items}), "exit")
    with pytest.raises(OperationError, match=r"b-ui; .* kubectl port-forward --namespace home deployment/a-ui 8790"):
        served_page(found, "home")


def test_a_kubectl_ends_with_us_and_what_it_wrote_until_its_time_out_is_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # PR_GET_PDEATHSIG: the signal by which the kernel ends it with its parent.
    asks = "from ctypes import *; number = c_int(); CDLL(None).prctl(2, byref(number)); print(number.value)"
    asking = kubectl(tmp_path, monkeypatch, "", f"exec {sys.executable} -ISc '{asks}'")
    assert asking("get").split() == [str(int(signal.SIGKILL))]
    # A shell has written its line long before.
    monkeypatch.setattr(port_forward, "KUBECTL_SECONDS", 2)
    waiting = kubectl(tmp_path, monkeypatch, "", "echo 'enter the code ABCD' >&2; exec /bin/sleep 600")
    with pytest.raises(OperationError, match="kubectl get: no answer within 2 s; it wrote: enter the code ABCD"):
        waiting("get")
