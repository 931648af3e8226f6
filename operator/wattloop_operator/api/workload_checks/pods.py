"""A pod template: its labels, and what its pods ask of the cluster."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import Any

from wattloop_operator.api.checks.manifest_problem import Path
from wattloop_operator.api.workload_checks.containers import (
    DEFAULT_GRACE_SECONDS,
    PodContext,
    wrong_containers,
    wrong_ids,
    wrong_profile,
)
from wattloop_operator.api.workload_checks.fields import fields_of
from wattloop_operator.api.workload_checks.formats import (
    EXPECTED_LABEL,
    EXPECTED_LABEL_VALUE,
    EXPECTED_QUALIFIED,
    EXPECTED_SUBDOMAIN,
    Finding,
    is_label,
    is_label_value,
    is_qualified,
    is_subdomain,
    repeated,
    wrong,
    wrong_annotations,
    wrong_labels,
)
from wattloop_operator.api.workload_checks.resources import wrong_pod_resources
from wattloop_operator.api.workload_checks.volumes import wrong_volumes

LABELS_OF_NAMES = ("hostname", "subdomain")
SUBDOMAINS = ("serviceAccountName", "nodeName", "priorityClassName", "runtimeClassName")
GROUPS = ("runAsUser", "runAsGroup", "fsGroup")
MAX_SECONDS = 2**31 - 1
MAX_SYSCTL = 253
SYSCTL = re.compile(r"(?:[a-z0-9](?:[-_a-z0-9]*[a-z0-9])?[./])*[a-z0-9](?:[-_a-z0-9]*[a-z0-9])?")
EXPECTED_SYSCTL = "the name of a kernel parameter, such as net.core.somaxconn"
REQUIRED_TERMS, PREFERRED_TERMS = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)


def wrong_pod(path: Path, template: dict[str, Any]) -> Iterator[Finding]:
    """What the API server refuses of a pod template, whose fields have their types.

    Args:
        path: The keys to it.
        template: The pod template, with a spec.

    Example:
        >>> container = {"name": "train", "image": "a", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}
        >>> [each.path for each in wrong_pod((), {"spec": {"containers": [container]}})]
        [('spec', 'containers', 0, 'volumeMounts', 0, 'name')]
    """
    metadata, pod, place = template.get("metadata") or {}, template["spec"], (*path, "spec")
    yield from wrong_labels((*path, "metadata", "labels"), metadata.get("labels") or {})
    yield from wrong_annotations((*path, "metadata", "annotations"), metadata.get("annotations") or {})
    volumes, claims = pod.get("volumes") or [], pod.get("resourceClaims") or []
    yield from wrong_volumes((*place, "volumes"), volumes)
    yield from _wrong_claims((*place, "resourceClaims"), claims)
    grace = pod.get("terminationGracePeriodSeconds")
    context = PodContext(
        volumes={each["name"]: each.keys() - {"name"} for each in volumes},
        claims={each["name"] for each in claims},
        restart_policy=pod.get("restartPolicy") or "",
        on_host_network=bool(pod.get("hostNetwork")),
        has_own_users=pod.get("hostUsers") is False,
        grace_seconds=DEFAULT_GRACE_SECONDS if grace is None else grace,
    )
    yield from wrong_containers(place, pod, context)
    yield from wrong_pod_resources((*place, "resources"), pod.get("resources") or {}, pod["containers"])
    if pod.get("ephemeralContainers"):
        yield wrong((*place, "ephemeralContainers"), pod["ephemeralContainers"], "none in a template")
    yield from _wrong_names(place, pod)
    yield from _wrong_network(place, pod)
    yield from _wrong_pod_rights(place, pod)
    yield from _wrong_placement(place, pod)


def _wrong_names(path: Path, pod: dict[str, Any]) -> Iterator[Finding]:
    for field in LABELS_OF_NAMES:
        if pod.get(field) and not is_label(pod[field]):
            yield wrong((*path, field), pod[field], EXPECTED_LABEL)
    for field in SUBDOMAINS:
        if pod.get(field) and not is_subdomain(pod[field]):
            yield wrong((*path, field), pod[field], EXPECTED_SUBDOMAIN)
    deadline = pod.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= MAX_SECONDS:
        yield wrong((*path, "activeDeadlineSeconds"), deadline, f"from 1 to {MAX_SECONDS} seconds")
    gates = pod.get("schedulingGates") or []
    yield from repeated((*path, "schedulingGates"), gates, "name")
    for index, gate in enumerate(gates):
        if not is_qualified(gate["name"]):
            yield wrong((*path, "schedulingGates", index, "name"), gate["name"], EXPECTED_QUALIFIED)
    for index, gate in enumerate(pod.get("readinessGates") or ()):
        if not is_qualified(gate["conditionType"]):
            place = (*path, "readinessGates", index, "conditionType")
            yield wrong(place, gate["conditionType"], EXPECTED_QUALIFIED)


def _wrong_claims(path: Path, claims: list[dict[str, Any]]) -> Iterator[Finding]:
    yield from repeated(path, claims, "name")
    for index, claim in enumerate(claims):
        if not is_label(claim["name"]):
            yield wrong((*path, index, "name"), claim["name"], EXPECTED_LABEL)
        sources = [name for name in fields_of("PodResourceClaim") if name != "name" and claim.get(name) is not None]
        if len(sources) != 1:
            found = " and ".join(sources) or "no source"
            yield Finding((*path, index), found, "either resourceClaimName or resourceClaimTemplateName")
        for name in sources:
            if not is_subdomain(claim[name]):
                yield wrong((*path, index, name), claim[name], EXPECTED_SUBDOMAIN)


def _wrong_network(path: Path, pod: dict[str, Any]) -> Iterator[Finding]:
    dns = pod.get("dnsConfig") or {}
    servers = dns.get("nameservers") or []
    if pod.get("dnsPolicy") == "None" and not servers:
        yield Finding(path, "no dnsConfig.nameservers", "dnsConfig.nameservers with dnsPolicy None")
    if len(servers) > 3:
        yield wrong((*path, "dnsConfig", "nameservers"), servers, "at most 3 of them")
    for index, server in enumerate(servers):
        if not _is_address(server):
            yield wrong((*path, "dnsConfig", "nameservers", index), server, "an IP address")
    for index, alias in enumerate(pod.get("hostAliases") or ()):
        if not _is_address(alias["ip"]):
            yield wrong((*path, "hostAliases", index, "ip"), alias["ip"], "an IP address")
        for number, name in enumerate(alias.get("hostnames") or ()):
            if not is_subdomain(name):
                yield wrong((*path, "hostAliases", index, "hostnames", number), name, EXPECTED_SUBDOMAIN)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _wrong_pod_rights(path: Path, pod: dict[str, Any]) -> Iterator[Finding]:
    rights = pod.get("securityContext") or {}
    yield from wrong_ids((*path, "securityContext"), rights, GROUPS)
    yield from wrong_profile((*path, "securityContext"), rights)
    for index, group in enumerate(rights.get("supplementalGroups") or ()):
        if not 0 <= group <= MAX_SECONDS:
            yield wrong((*path, "securityContext", "supplementalGroups", index), group, f"from 0 to {MAX_SECONDS}")
    yield from repeated((*path, "securityContext", "sysctls"), rights.get("sysctls") or [], "name")
    for index, sysctl in enumerate(rights.get("sysctls") or ()):
        if len(sysctl["name"]) > MAX_SYSCTL or SYSCTL.fullmatch(sysctl["name"]) is None:
            yield wrong((*path, "securityContext", "sysctls", index, "name"), sysctl["name"], EXPECTED_SYSCTL)
    if pod.get("hostPID") and pod.get("shareProcessNamespace"):
        yield Finding(path, "hostPID with shareProcessNamespace", "one of them")
    for field in ("hostPID", "hostIPC", "hostNetwork"):
        if pod.get(field) and pod.get("hostUsers") is False:
            yield Finding((*path, field), f"{field} with hostUsers: false", "one of them")


def _wrong_placement(path: Path, pod: dict[str, Any]) -> Iterator[Finding]:
    yield from wrong_labels((*path, "nodeSelector"), pod.get("nodeSelector") or {})
    for index, toleration in enumerate(pod.get("tolerations") or ()):
        yield from _wrong_toleration((*path, "tolerations", index), toleration)
    affinity = pod.get("affinity") or {}
    yield from _wrong_node_affinity((*path, "affinity", "nodeAffinity"), affinity.get("nodeAffinity") or {})
    for kind in ("podAffinity", "podAntiAffinity"):
        yield from _wrong_pod_affinity((*path, "affinity", kind), affinity.get(kind) or {})
    seen = set()
    for index, constraint in enumerate(pod.get("topologySpreadConstraints") or ()):
        place: Path = (*path, "topologySpreadConstraints", index)
        if constraint["maxSkew"] <= 0:
            yield wrong((*place, "maxSkew"), constraint["maxSkew"], "more than 0")
        domains = constraint.get("minDomains")
        if domains is not None and (domains <= 0 or constraint["whenUnsatisfiable"] != "DoNotSchedule"):
            yield wrong((*place, "minDomains"), domains, "more than 0, with whenUnsatisfiable DoNotSchedule")
        yield from wrong_selector((*place, "labelSelector"), constraint.get("labelSelector") or {})
        key = (constraint["topologyKey"], constraint["whenUnsatisfiable"])
        if key in seen:
            yield Finding(place, f"{' with '.join(key)} a second time", "each topologyKey once")
        seen.add(key)


def _wrong_toleration(path: Path, toleration: dict[str, Any]) -> Iterator[Finding]:
    key, operator, value = (toleration.get(field) or "" for field in ("key", "operator", "value"))
    if key and not is_qualified(key):
        yield wrong((*path, "key"), key, EXPECTED_QUALIFIED)
    if not key and operator != "Exists":
        yield Finding(path, "no key", "key, or operator: Exists for all taints")
    if operator == "Exists" and value:
        yield wrong((*path, "value"), value, "no value with operator Exists")
    elif operator in ("", "Equal") and not is_label_value(value):
        yield wrong((*path, "value"), value, EXPECTED_LABEL_VALUE)
    if toleration.get("tolerationSeconds") is not None and toleration.get("effect") != "NoExecute":
        yield wrong((*path, "tolerationSeconds"), toleration["tolerationSeconds"], "effect: NoExecute beside it")


def _wrong_node_affinity(path: Path, affinity: dict[str, Any]) -> Iterator[Finding]:
    required = (affinity.get(REQUIRED_TERMS) or {}).get("nodeSelectorTerms") or []
    terms: list[tuple[Path, dict[str, Any]]] = [
        ((*path, REQUIRED_TERMS, "nodeSelectorTerms", index), term) for index, term in enumerate(required)
    ]
    for index, each in enumerate(affinity.get(PREFERRED_TERMS) or ()):
        yield from _wrong_weight((*path, PREFERRED_TERMS, index), each)
        terms.append(((*path, PREFERRED_TERMS, index, "preference"), each["preference"]))
    for place, term in terms:
        for index, rule in enumerate(term.get("matchExpressions") or ()):
            yield from _wrong_expression((*place, "matchExpressions", index), rule)


def _wrong_pod_affinity(path: Path, affinity: dict[str, Any]) -> Iterator[Finding]:
    terms: list[tuple[Path, dict[str, Any]]] = [
        ((*path, REQUIRED_TERMS, index), term) for index, term in enumerate(affinity.get(REQUIRED_TERMS) or ())
    ]
    for index, each in enumerate(affinity.get(PREFERRED_TERMS) or ()):
        yield from _wrong_weight((*path, PREFERRED_TERMS, index), each)
        terms.append(((*path, PREFERRED_TERMS, index, "podAffinityTerm"), each["podAffinityTerm"]))
    for place, term in terms:
        if not is_qualified(term["topologyKey"]):
            yield wrong((*place, "topologyKey"), term["topologyKey"], EXPECTED_QUALIFIED)
        yield from wrong_selector((*place, "labelSelector"), term.get("labelSelector") or {})


def _wrong_weight(path: Path, term: dict[str, Any]) -> Iterator[Finding]:
    if not 1 <= term["weight"] <= 100:
        yield wrong((*path, "weight"), term["weight"], "from 1 to 100")


def wrong_selector(path: Path, selector: dict[str, Any]) -> Iterator[Finding]:
    """What the API server refuses of a selector of labels."""
    yield from wrong_labels((*path, "matchLabels"), selector.get("matchLabels") or {})
    for index, rule in enumerate(selector.get("matchExpressions") or ()):
        yield from _wrong_expression((*path, "matchExpressions", index), rule)


def _wrong_expression(path: Path, rule: dict[str, Any]) -> Iterator[Finding]:
    operator, values = rule["operator"], rule.get("values") or []
    if not is_qualified(rule["key"]):
        yield wrong((*path, "key"), rule["key"], EXPECTED_QUALIFIED)
    if operator in ("In", "NotIn") and not values:
        yield Finding(path, "no values", f"values with operator {operator}")
    elif operator in ("Exists", "DoesNotExist") and values:
        yield wrong((*path, "values"), values, f"no values with operator {operator}")
    elif operator in ("Gt", "Lt") and len(values) != 1:
        yield wrong((*path, "values"), values, f"one number with operator {operator}")
    for index, value in enumerate(values):
        if not is_label_value(value):
            yield wrong((*path, "values", index), value, EXPECTED_LABEL_VALUE)
