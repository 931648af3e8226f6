"""The chart rendered without a cluster, as by GitOps: every rendering is the same, or it is refused."""

import base64
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.chart.empty_cluster import EmptyCluster
from support.chart.rendering import at, chosen, documents
from support.chart.tls import Certificates, handshake
from support.control_plane.chart import CHART, REPOSITORY
from support.control_plane.commands import ClusterCommand, CommandError

DOCUMENT = REPOSITORY / "docs" / "certificates.md"


def test_a_rendering_that_would_create_another_authority_is_rejected(helm: ClusterCommand) -> None:
    with pytest.raises(CommandError, match=r"Set reporting\.tls\.mode to certManager \(with reporting"):
        helm("template", "wattloop", str(CHART))


def test_a_rendering_with_a_cluster_uses_its_objects(helm: ClusterCommand, namespace: str) -> None:
    # An earlier test on this control plane may have left the definitions and a release without an operator.
    options = ("--dry-run=server", "--set=operator.replicas=0,crds.install=false")
    assert "kind: Secret" in helm("template", "wattloop", str(CHART), *options, namespace=namespace)


def documented_commands() -> str:
    """The commands by which the page on installation makes a certificate of one's own."""
    text = DOCUMENT.read_text(encoding="utf-8")
    found = re.search(r"^\*\*GitOps\.\*\*.*?\n\n((?:    [^\n]*\n)+)", text, re.MULTILINE | re.DOTALL)
    return re.sub("(?m)^    ", "", found[1])


def used_by(rendered: str, kubectl: ClusterCommand) -> Certificates:
    """The certificates that the pods of a rendered chart mount."""
    objects: list[dict[str, Any]] = documents(rendered)
    (deployment,), (daemon_set,) = chosen(objects, "Deployment"), chosen(objects, "DaemonSet")
    assert chosen(objects, "Secret") == []
    name = at(deployment, "spec.template.spec.volumes[reporting-certificate].secret.secretName")
    secret = kubectl.json("get", "secret", name, namespace="wattloop")["data"]
    source = at(daemon_set, "spec.template.spec.volumes[reporting].projected.sources[1].configMap.name")
    trusted = kubectl.json("get", "configmap", source, namespace="wattloop-agent")["data"]["ca.crt"]
    certificate, key, authority = (base64.b64decode(secret[each]) for each in ("tls.crt", "tls.key", "ca.crt"))
    return Certificates(authority, b"", authority, trusted.encode(), certificate, key)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="the documented commands need openssl, which is not here")
def test_a_certificate_by_the_documented_commands_is_trusted_by_pods_and_agents(
    empty: EmptyCluster, tmp_path: Path
) -> None:
    for name in ("wattloop", "wattloop-agent"):
        empty.kubectl("create", "namespace", name)
    environment = {
        "PATH": f"{empty.kubectl.program.parent}:/usr/bin:/bin",
        "KUBECONFIG": str(empty.kubectl.kubeconfig),
        "HOME": str(tmp_path),
    }
    ran = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", documented_commands()],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    named = re.findall(r"`(reporting\.tls\.\w+=[\w-]+)`", DOCUMENT.read_text(encoding="utf-8"))
    assert len(named) == 2
    settings = ("--set=reporting.tls.mode=secret", *(f"--set={each}" for each in named))
    rendered = [empty.helm("template", "wattloop", str(CHART), *settings, namespace="wattloop") for _ in range(2)]
    assert rendered[0] == rendered[1]
    made = used_by(rendered[0], empty.kubectl)
    assert handshake(made, "wattloop-operator.wattloop.svc", tmp_path) == "welcome"
    assert made.trusted_by_agents == made.trusted_by_pods
