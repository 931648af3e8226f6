"""NetworkPolicies let through what Wattloop lives by, each rule is needed for some of it, and nothing else passes."""

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from support.chart.network_rules import Endpoint, Flow, is_allowed
from support.chart.rendering import Object, at, chosen, nested, render
from support.control_plane.commands import ClusterCommand

TRAINING = Endpoint("team-a", {"wattloop.dev/recurrence": "digits-0"})
PROMETHEUS = Endpoint("monitoring", {"app.kubernetes.io/name": "prometheus"})
NAME_SERVER = Endpoint("kube-system", {"k8s-app": "kube-dns"})
INGRESS = Endpoint("ingress", {"app.kubernetes.io/name": "ingress"})
POSTGRESQL = Endpoint("db", {"app": "postgresql"})
OUTSIDE = Endpoint()
"""The API server, which is no pod, and the rest of the world."""

FROM_MONITORING = {
    "networkPolicy.metricsFrom": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]
}
WITH_POSTGRESQL = {"database.type": "postgresql", "database.postgresql.secretName": "db"}
WITH_PAGE = {"ui.enabled": True}
WITH_HOSTS = {
    **WITH_PAGE,
    "ui.hosts": ["wattloop.example"],
    "ui.tlsSecretName": "tls",
    "networkPolicy.uiFrom": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress"}}}],
}
OTHER_PORTS = {
    "networkPolicy.databasePort": 6432,
    "networkPolicy.apiServerPorts": [8443],
    "networkPolicy.extraEgress": [{"ports": [{"port": 3128, "protocol": "TCP"}]}],
}

Values = dict[str, Any]
Rendered = Callable[[Values], "Chart"]


class Chart:
    """A rendered chart: its policies, and its pods as ends of connections."""

    def __init__(self, objects: Sequence[Object], values: Values) -> None:
        self.policies = chosen(list(objects), "NetworkPolicy")
        self.operator = pod_of(objects, "Deployment/operator")
        self.agent = pod_of(objects, "DaemonSet")
        self.ui = pod_of(objects, "Deployment/ui") if values.get("ui.enabled") else None
        self._has_hosts = bool(values.get("ui.hosts"))
        self._api_server_ports = values.get("networkPolicy.apiServerPorts", [443, 6443])
        self._database_port = values.get("networkPolicy.databasePort", 5432)
        self._is_scraped = bool(values.get("networkPolicy.metricsFrom"))
        extra = values.get("networkPolicy.extraEgress", [])
        self._extra_ports = [port["port"] for rule in extra for port in rule["ports"]]
        self._has_postgresql = values.get("database.type") == "postgresql"

    def needed(self) -> dict[str, Flow]:
        """Every connection that Wattloop lives by."""
        operator, agent = self.operator, self.agent
        flows = {
            "a training reports": Flow(TRAINING, operator, operator.ports["report"]),
            "an agent reports": Flow(agent, operator, operator.ports["report"]),
            "a probe of the operator from a node": Flow(OUTSIDE, operator, operator.ports["health"]),
        }
        if self._is_scraped:
            flows |= self._scrapes(PROMETHEUS, "Prometheus")
        for port in self._api_server_ports:
            flows[f"the operator asks the API server at {port}"] = Flow(operator, OUTSIDE, port)
        for protocol in ("UDP", "TCP"):
            flows[f"the operator asks for a name by {protocol}"] = Flow(operator, NAME_SERVER, 53, protocol)
            flows[f"the agent asks for a name by {protocol}"] = Flow(agent, NAME_SERVER, 53, protocol)
        if self.ui is not None:
            flows["a probe of the page from a node"] = Flow(OUTSIDE, self.ui, self.ui.ports["health"])
            for port in self._api_server_ports:
                flows[f"the page asks the API server at {port}"] = Flow(self.ui, OUTSIDE, port)
            for protocol in ("UDP", "TCP"):
                flows[f"the page asks for a name by {protocol}"] = Flow(self.ui, NAME_SERVER, 53, protocol)
            if self._has_hosts:
                flows["an ingress leads to the page"] = Flow(INGRESS, self.ui, self.ui.ports["ui"])
        for port in self._extra_ports:
            for pod in filter(None, (operator, self.ui)):
                flows[f"an extra connection of {pod.labels} to {port}"] = Flow(pod, OUTSIDE, port)
        if self._has_postgresql:
            flows["the operator stores observations"] = Flow(operator, POSTGRESQL, self._database_port)
        return flows

    def refused(self) -> dict[str, Flow]:
        """Connections that Wattloop does not need, some of which an attacker would like."""
        operator, agent = self.operator, self.agent
        flows = {
            "the agent asks the API server": Flow(agent, OUTSIDE, self._api_server_ports[0]),
            "the agent sends mail": Flow(agent, OUTSIDE, 25),
            "the agent reads the operator's metrics": Flow(agent, operator, operator.ports["metrics"]),
            "the operator sends mail": Flow(operator, OUTSIDE, 25),
            "a training reads the operator's probes of another port": Flow(TRAINING, operator, 9999),
            "a training asks the agent by its network": Flow(TRAINING, agent, 9999),
            "a report from outside": Flow(OUTSIDE, operator, operator.ports["report"]),
        }
        if self.ui is not None:
            flows["a training asks for the page"] = Flow(TRAINING, self.ui, self.ui.ports["ui"])
            flows["the page sends mail"] = Flow(self.ui, OUTSIDE, 25)
            if not self._has_hosts:
                flows["an ingress asks for a page without hosts"] = Flow(INGRESS, self.ui, self.ui.ports["ui"])
        flows |= self._scrapes(TRAINING, "a training") | self._scrapes(OUTSIDE, "a scrape from outside")
        if not self._is_scraped:
            flows |= self._scrapes(PROMETHEUS, "an unnamed Prometheus")
        if not self._has_postgresql:
            flows["the operator asks a database that it does not have"] = Flow(operator, POSTGRESQL, 5432)
        return flows

    def _scrapes(self, source: Endpoint, who: str) -> dict[str, Flow]:
        return {
            f"{who} reads the operator's metrics": Flow(source, self.operator, self.operator.ports["metrics"]),
            f"{who} reads the agent's metrics": Flow(source, self.agent, self.agent.ports["metrics"]),
        }


def pod_of(objects: Sequence[Object], kind: str) -> Endpoint:
    """The pods of a Deployment or DaemonSet."""
    (item,) = chosen(list(objects), kind)
    ports = {
        port["name"]: port["containerPort"]
        for container in at(item, "spec.template.spec.containers")
        for port in container.get("ports", ())
    }
    return Endpoint(item["metadata"]["namespace"], at(item, "spec.template.metadata.labels"), ports)


@pytest.fixture
def rendered(helm: ClusterCommand, tmp_path: Path) -> Rendered:
    def make(values: Values) -> Chart:
        return Chart(render(helm, nested("crds.install", False, values), tmp_path), values)

    return make


@pytest.mark.parametrize(
    "values",
    [
        {},
        FROM_MONITORING | WITH_PAGE,
        WITH_POSTGRESQL | FROM_MONITORING,
        OTHER_PORTS | WITH_POSTGRESQL | FROM_MONITORING | WITH_HOSTS,
    ],
    ids=["default", "page", "db", "ports"],
)
def test_only_the_connections_that_wattloop_needs_are_allowed(values: Values, rendered: Rendered) -> None:
    chart = rendered(values)
    held_up = [what for what, flow in chart.needed().items() if not is_allowed(flow, chart.policies)]
    assert held_up == []
    passing = [what for what, flow in chart.refused().items() if is_allowed(flow, chart.policies)]
    assert passing == []


def test_each_network_policy_rule_is_needed(rendered: Rendered) -> None:
    chart = rendered(WITH_POSTGRESQL | FROM_MONITORING | WITH_HOSTS)
    superfluous = []
    for number, policy in enumerate(chart.policies):
        for direction in ("ingress", "egress"):
            for index, rule in enumerate(policy["spec"][direction]):
                policies = copy.deepcopy(chart.policies)
                del policies[number]["spec"][direction][index]
                if all(is_allowed(flow, policies) for flow in chart.needed().values()):
                    superfluous.append(rule)
    assert superfluous == []


def test_values_narrow_the_sources_of_reports_and_scrapes(rendered: Rendered) -> None:
    def of(namespace: str) -> list[Object]:
        return [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}]

    # Agents report, too: who names others need not name them.
    chart = rendered({"networkPolicy.reportsFrom": of("team-a"), "networkPolicy.metricsFrom": of("monitoring")})
    assert [what for what, flow in chart.needed().items() if not is_allowed(flow, chart.policies)] == []
    stranger = Endpoint("team-b")
    for pod, port in ((chart.operator, "report"), (chart.operator, "metrics"), (chart.agent, "metrics")):
        assert not is_allowed(Flow(stranger, pod, pod.ports[port]), chart.policies)


def test_the_parts_of_a_release_with_another_name_find_each_other(rendered: Rendered) -> None:
    chart = rendered({"nameOverride": "loop", "agent.namespace": "gpus", "commonLabels": {"team": "trains"}})
    assert [what for what, flow in chart.needed().items() if not is_allowed(flow, chart.policies)] == []


def test_by_default_no_network_policy_allows_reading_metrics(
    kubectl: ClusterCommand, namespace: str, rendered: Rendered
) -> None:
    chart = rendered({})
    kept = []
    for policy in chart.policies:
        name, home = policy["metadata"]["name"], policy["metadata"]["namespace"]
        kubectl.apply({**policy, "metadata": {"name": name}}, namespace=namespace)
        (found,) = [
            item
            for item in kubectl.json("get", "networkpolicies", namespace=namespace)["items"]
            if item["metadata"]["name"] == name
        ]
        # The API server omits an empty list of rules; it means no rule because the policy is of this type.
        assert found["spec"]["policyTypes"] == ["Ingress", "Egress"]
        kept.append({**found, "spec": {"ingress": [], **found["spec"]}, "metadata": {"name": name, "namespace": home}})
    assert len(kept) == 2
    passing = [what for what, flow in chart.refused().items() if is_allowed(flow, kept)]
    assert passing == []
    assert [what for what, flow in chart.needed().items() if not is_allowed(flow, kept)] == []
