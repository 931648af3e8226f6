"""The real controller of JobSets as a process, with its definition and its webhooks."""

from __future__ import annotations

import base64
import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import yaml
from kubernetes.dynamic import DynamicClient

from support.binaries.build import JOBSET
from support.control_plane.certificates import CertificateAuthority
from support.control_plane.commands import ClusterCommand
from support.control_plane.processes import ServerProcess
from support.control_plane.waiting import Object, wait_until
from support.free_ports import free_port

_READY_SECONDS = 120.0
_NAME = "jobsets.jobset.x-k8s.io"
_WEBHOOKS = ("config", "components", "webhook", "manifests.yaml")
_DEFINITION = ("config", "components", "crd", "bases", "jobset.x-k8s.io_jobsets.yaml")


@contextlib.contextmanager
def job_set_controller(
    program: Path, kubeconfig: Path, kubectl: ClusterCommand, cluster: DynamicClient, folder: Path
) -> Iterator[None]:
    """Install JobSet, as its own manifests have it, but the controller is a process of this machine.

    Args:
        program: The controller.
        kubeconfig: Its user and cluster.
        kubectl: An administrator's.
        cluster: The same, for watches.
        folder: For its certificate and log.
    """
    sources = JOBSET.sources()
    authority, port, health = CertificateAuthority(), free_port(), free_port()
    pair = authority.server(["127.0.0.1"], ["jobset"])
    (folder / "tls.crt").write_bytes(pair.certificate)
    (folder / "tls.key").write_bytes(pair.private_key)
    configuration = folder / "jobset.yaml"
    configuration.write_text(
        json.dumps(
            {
                "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
                "kind": "Configuration",
                "webhook": {"host": "127.0.0.1", "port": port, "certDir": str(folder)},
                "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
                "metrics": {"bindAddress": "0"},
                "leaderElection": {"leaderElect": False},
                "internalCertManagement": {"enable": False},
            }
        )
    )
    definition = sources.joinpath(*_DEFINITION)
    kubectl("apply", "--server-side", f"--filename={definition}")
    wait_until(
        cluster,
        api_version="apiextensions.k8s.io/v1",
        kind="CustomResourceDefinition",
        field_selector=f"metadata.name={_NAME}",
        condition=_is_established,
        what="the definition of JobSets to be established",
    )
    process = ServerProcess("jobset", [program, f"--kubeconfig={kubeconfig}", f"--config={configuration}"], folder)
    webhooks = [
        _at(each, port, authority.certificate)
        for each in yaml.safe_load_all(sources.joinpath(*_WEBHOOKS).read_text(encoding="utf-8"))
    ]
    try:
        _await_ready(process, f"http://127.0.0.1:{health}/readyz")
        kubectl.apply(*webhooks)
        yield
    finally:
        for each in webhooks:
            kubectl("delete", each["kind"], each["metadata"]["name"], "--ignore-not-found")
        process.stop()
        kubectl("delete", f"--filename={definition}")


def _is_established(definitions: list[Object]) -> bool:
    conditions = [each for definition in definitions for each in definition.get("status", {}).get("conditions") or []]
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)


def _at(configuration: dict[str, Any], port: int, authority: bytes) -> dict[str, Any]:
    """A configuration of webhooks, on this machine. Those of pods see the pods of JobSets alone, as in its release."""
    configuration["metadata"]["name"] = f"jobset-{configuration['metadata']['name']}"
    for webhook in configuration["webhooks"]:
        path = webhook["clientConfig"].pop("service")["path"]
        webhook["clientConfig"] = {
            "url": f"https://127.0.0.1:{port}{path}",
            "caBundle": base64.b64encode(authority).decode("ascii"),
        }
        if path.endswith("-pod"):
            of_job_sets = {"key": "jobset.sigs.k8s.io/jobset-name", "operator": "Exists"}
            webhook["objectSelector"] = {"matchExpressions": [of_job_sets]}
    return configuration


def _await_ready(process: ServerProcess, url: str) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while True:
        process.check_alive()
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(url).is_success:
                return
        assert time.monotonic() < deadline, f"the controller is not ready:\n{process.log_tail()}"
        time.sleep(0.1)
