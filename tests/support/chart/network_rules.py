"""The connections that NetworkPolicies allow by their specification; no network of the tests enforces any.

https://kubernetes.io/docs/concepts/services-networking/network-policies/: a pod that no policy selects in a direction
is open in it; else it needs one rule of one policy that selects it. A connection needs both ends' leave.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Policy = Mapping[str, Any]
Rule = Mapping[str, Any]


@dataclass(frozen=True)
class Endpoint:
    """One end of a connection: a pod, or with no namespace something outside of the cluster's pods.

    Attributes:
        ports: The names of its containers' ports.
    """

    namespace: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    ports: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Flow:
    """A connection from one endpoint to a port of another."""

    source: Endpoint
    destination: Endpoint
    port: int
    protocol: str = "TCP"


def is_allowed(flow: Flow, policies: Sequence[Policy]) -> bool:
    """Whether both ends let the connection through."""
    leaves = _allows(flow, policies, flow.source, "Egress", "to", flow.destination)
    return leaves and _allows(flow, policies, flow.destination, "Ingress", "from", flow.source)


def _allows(flow: Flow, policies: Sequence[Policy], pod: Endpoint, direction: str, peers: str, other: Endpoint) -> bool:
    selecting = list(_selecting(policies, pod, direction))
    rules = [rule for policy in selecting for rule in policy["spec"].get(direction.lower()) or ()]
    return not selecting or any(_matches(rule, flow, peers, other) for rule in rules)


def _selecting(policies: Sequence[Policy], pod: Endpoint, direction: str) -> Iterator[Policy]:
    for policy in policies:
        of_pod = bool(pod.namespace) and policy["metadata"]["namespace"] == pod.namespace
        if (
            of_pod
            and direction in policy["spec"]["policyTypes"]
            and _selects(policy["spec"]["podSelector"], pod.labels)
        ):
            yield policy


def _matches(rule: Rule, flow: Flow, peers: str, other: Endpoint) -> bool:
    assert not rule.keys() - {peers, "ports"}, f"what does {rule} mean?"
    by_peer = not rule.get(peers) or any(_is_peer(peer, other) for peer in rule[peers])
    by_port = not rule.get("ports") or any(_is_port(port, flow) for port in rule["ports"])
    return by_peer and by_port


def _is_peer(peer: Rule, other: Endpoint) -> bool:
    assert not peer.keys() - {"namespaceSelector", "podSelector"}, f"what does {peer} mean?"
    # A selector of pods alone is one of pods in the policy's own namespace, which the chart has nowhere.
    namespace = {"kubernetes.io/metadata.name": other.namespace}
    of_namespace = bool(other.namespace) and _selects(peer["namespaceSelector"], namespace)
    return of_namespace and _selects(peer.get("podSelector", {}), other.labels)


def _is_port(port: Rule, flow: Flow) -> bool:
    number = port["port"]
    if isinstance(number, str):
        number = flow.destination.ports.get(number)
    return number == flow.port and port.get("protocol", "TCP") == flow.protocol


def _selects(selector: Rule, labels: Mapping[str, str]) -> bool:
    assert not selector.keys() - {"matchLabels"}, f"what does {selector} mean?"
    return all(labels.get(name) == value for name, value in selector.get("matchLabels", {}).items())
