"""Invalid values are rejected before anything is installed, and the message names the value."""

import re
from pathlib import Path
from typing import Any

import pytest

from support.chart.rendering import nested, render
from support.control_plane.chart import CHART
from support.control_plane.commands import ClusterCommand, CommandError

# Values that a path cannot have, and parts of the message, in two renderings: Helm names all invalid values of one.
INVALID: tuple[dict[str, tuple[Any, *tuple[str, ...]]], ...] = (
    {
        "operatr": ({}, "additional properties 'operatr' not allowed"),
        "operator.replica": (1, "at '/operator': additional properties 'replica' not allowed"),
        "operator.replicas": ("1", "at '/operator/replicas': got string, want integer"),
        "operator.image.repository": ("", "at '/operator/image/repository'"),
        "operator.image.digest": ("sha256:12", "at '/operator/image/digest'"),
        "operator.image.pullPolicy": ("Sometimes", "at '/operator/image/pullPolicy': value must be one of 'Always'"),
        "operator.logFormat": ("xml", "at '/operator/logFormat': value must be one of 'json', 'text'"),
        "operator.environment": ([{"value": "x"}], "at '/operator/environment/0': missing property 'name'"),
        "operator.resources": ({"request": {}}, "additional properties 'request' not allowed"),
        "operator.nodeSelector": ({"gpu": True}, "at '/operator/nodeSelector/gpu': got boolean, want string"),
        "commonLabels": ({"a": 1}, "at '/commonLabels/a': got number, want string"),
        "imagePullSecrets": (["key"], "at '/imagePullSecrets/0': got string, want object"),
        "tariff": ({"currency": "EUR"}, "at '/tariff': properties 'perKilowattHour' required, if 'currency' exists"),
        "database.type": ("mysql", "at '/database/type': value must be one of 'sqlite', 'postgresql'"),
        "database.sqlite.size": ("big", "at '/database/sqlite/size'"),
        "reporting.url": ("wattloop.example", "at '/reporting/url'"),
        # Values that an upgrade with --reuse-values from an older version would omit.
        "reporting.tls.mode": (None, "at '/reporting/tls': missing property 'mode'"),
        "metrics.alerts": (None, "at '/metrics': missing property 'alerts'"),
        "check": (None, "at '': missing property 'check'"),
        "ui.hosts": (["https://a.example"], "at '/ui/hosts/0'"),
        "reporting.tls.certManager.duration": ("90 days", "at '/reporting/tls/certManager/duration'"),
        "reporting.service.type": ("ExternalName", "at '/reporting/service/type'"),
        "metrics.podMonitor.interval": ("often", "at '/metrics/podMonitor/interval'"),
        "networkPolicy.apiServerPorts": ([], "at '/networkPolicy/apiServerPorts': minItems: got 0, want 1"),
        # Peers that an API server would reject after half of the release, or that match nothing.
        "networkPolicy.metricsFrom": (
            [
                {"namespace": "a"},
                {},
                {"ipBlock": {"cidr": "10.0.0.1"}},
                {"ipBlock": {"cidr": "::/0"}, "podSelector": {}},
            ],
            "at '/networkPolicy/metricsFrom/0': additional properties 'namespace' not allowed",
            "at '/networkPolicy/metricsFrom/1': minProperties: got 0, want 1",
            "at '/networkPolicy/metricsFrom/2/ipBlock/cidr': '10.0.0.1' does not match pattern",
            "at '/networkPolicy/metricsFrom/3': maxProperties: got 2, want 1",
        ),
        "networkPolicy.reportsFrom": (
            [{"podSelector": {"app": "a"}}, {"podSelector": {"matchExpressions": [{"key": "a", "operator": "in"}]}}],
            "at '/networkPolicy/reportsFrom/0/podSelector': additional properties 'app' not allowed",
            "at '/networkPolicy/reportsFrom/1/podSelector/matchExpressions/0/operator': value must be one of 'In'",
        ),
        "networkPolicy.uiFrom": ([{"namespaceSelector": "web"}], "got string, want object"),
        "networkPolicy.extraEgress": (
            [{"from": []}],
            "at '/networkPolicy/extraEgress/0': additional properties 'from'",
        ),
        "networkPolicy.agentExtraEgress": (
            [{"ports": [{"port": 0}]}],
            "at '/networkPolicy/agentExtraEgress/0/ports/0/port': minimum: got 0, want 1",
        ),
        "networkPolicy.enabled": ("yes", "at '/networkPolicy/enabled': got string, want boolean"),
        "agent.namespace": ("GPU nodes", "at '/agent/namespace'"),
        "agent.maxUnavailable": ("many", "at '/agent/maxUnavailable'"),
    },
    {
        "operator.replicas": (-1, "at '/operator/replicas': minimum: got -1, want 0"),
        "operator.image.repository": ("name:tag", "at '/operator/image/repository'"),
        "operator.environment": ({"A": "b"}, "at '/operator/environment': got object, want array"),
        "operator.resources": ({"limits": {"memory": "lots"}}, "at '/operator/resources/limits/memory'"),
        "commonLabels": ({"team": "a b"}, "at '/commonLabels/team': 'a b' does not match pattern"),
    },
)


@pytest.mark.parametrize("invalid", INVALID, ids=["first", "other"])
def test_an_invalid_value_is_rejected(
    invalid: dict[str, tuple[Any, *tuple[str, ...]]], helm: ClusterCommand, tmp_path: Path
) -> None:
    with pytest.raises(CommandError) as refusal:
        render(helm, nested("global", {}, {path: value for path, (value, *_) in invalid.items()}), tmp_path)
    assert "values don't meet the specifications of the schema" in refusal.value.stderr
    assert [part for _, *parts in invalid.values() for part in parts if part not in refusal.value.stderr] == []


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"operator.replicas": 2}, "operator.replicas is 2, and a SQLite file serves one replica. Set database.type="),
        (
            {"database.type": "postgresql"},
            "database.postgresql.secretName is empty. Create the secret and name it: kubectl --namespace home create",
        ),
        (
            {"reporting.tls.mode": "secret", "reporting.tls.secretName": ""},
            "reporting.tls.secretName is empty. Create the secret and name it: kubectl --namespace home create secret",
        ),
        ({"reporting.tls.certManager.issuer.name": ""}, "issuer.name is empty. Name the ClusterIssuer that signs"),
        ({"reporting.url": "http://wattloop.example"}, "Begin the URL with https://, or set reporting.tls.mode=none"),
        (
            {"metrics.podMonitor.enabled": True},
            "metrics.podMonitor.enabled needs networkPolicy.metricsFrom, the peers that may scrape",
        ),
        (
            {"ui.enabled": True, "ui.hosts": ["a.example"]},
            "viewers send their tokens to the page, so a host needs a certificate. Create the secret and name it",
        ),
        (
            {"ui.enabled": True, "ui.hosts": ["a.example"], "ui.tlsSecretName": "tls"},
            "ui.hosts needs networkPolicy.uiFrom, the peers that may reach the page",
        ),
        ({"ui.enabled": True, "ui.tlsSecretName": "tls"}, "ui.tlsSecretName is not empty, and ui.hosts is"),
    ],
)
def test_conflicting_values_are_rejected(
    values: dict[str, Any], message: str, helm: ClusterCommand, tmp_path: Path
) -> None:
    with pytest.raises(CommandError, match=re.escape(message)):
        render(helm, nested("global", {}, values), tmp_path)


def test_a_pod_monitor_needs_no_peers_without_network_policies(helm: ClusterCommand, tmp_path: Path) -> None:
    values = nested("networkPolicy.enabled", False, {"metrics.podMonitor.enabled": True})
    assert [item["kind"] for item in render(helm, values, tmp_path)].count("PodMonitor") == 2


def test_an_issuer_of_the_operators_namespace_is_rejected_for_the_agents(helm: ClusterCommand, tmp_path: Path) -> None:
    values = nested("reporting.tls.certManager.issuer", {"name": "own", "kind": "Issuer"})
    with pytest.raises(CommandError, match="an Issuer serves one namespace, and the agent runs in another"):
        render(helm, values, tmp_path)
    objects = render(helm, values | {"agent": {"enabled": False}}, tmp_path)
    assert [item["metadata"]["namespace"] for item in objects if item["kind"] == "Certificate"] == ["home"]


def test_the_default_values_pass_the_strict_linter(helm: ClusterCommand) -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART))
