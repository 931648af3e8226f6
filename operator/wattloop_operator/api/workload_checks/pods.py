"""A pod template: its labels, what its pods ask of the cluster, and their volumes with the sources of those."""

import ipaddress
import re
from collections.abc import Iterator
from typing import Any

from wattloop_operator.api.checks.manifest_problem import Path
from wattloop_operator.api.workload_checks.containers import (
    DEFAULT_GRACE_SECONDS,
    PodContext,
    wrong_containers,
    wrong_pod_resources,
    wrong_profile,
)
from wattloop_operator.api.workload_checks.fields import fields_of
from wattloop_operator.api.workload_checks.formats import (
    CONFIG_KEY,
    EXPECTED_ID,
    EXPECTED_KEY,
    EXPECTED_LABEL,
    EXPECTED_LABEL_VALUE,
    EXPECTED_LOCAL_PATH,
    EXPECTED_QUALIFIED,
    EXPECTED_SUBDOMAIN,
    MAX_ID,
    NO_PARENT,
    Finding,
    ValueRule,
    between,
    has_no_parent,
    is_label,
    is_label_value,
    is_local_path,
    is_qualified,
    is_subdomain,
    parts,
    quantity,
    repeated,
    without,
    wrong,
    wrong_annotations,
    wrong_labels,
    wrong_values,
)

MAX_SECONDS = 2**31 - 1
MAX_MODE = 0o777
MAX_SYSCTL = 253
SYSCTL = re.compile(r"(?:[a-z0-9](?:[-_a-z0-9]*[a-z0-9])?[./])*[a-z0-9](?:[-_a-z0-9]*[a-z0-9])?")
EXPECTED_SYSCTL = "the name of a kernel parameter, such as net.core.somaxconn"
EXPECTED_MODE = "a mode from 0 to 0777 (511)"
MIN_TOKEN_SECONDS = 600
FIELDS_OF_FILES = ("metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid")
REQUIRED, PREFERRED = (f"{each}DuringSchedulingIgnoredDuringExecution" for each in ("required", "preferred"))
TERMS_OF_NODES = (
    f"affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[].matchExpressions[]",
    f"affinity.nodeAffinity.{PREFERRED}[].preference.matchExpressions[]",
)
TERMS_OF_PODS = tuple(
    f"affinity.{kind}.{terms}"
    for kind in ("podAffinity", "podAntiAffinity")
    for terms in (f"{REQUIRED}[]", f"{PREFERRED}[].podAffinityTerm")
)
# Of a volume: what has files, and the field that names a ConfigMap or Secret.
CONFIG_FILES = {
    "configMap": "name",
    "secret": "secretName",
    "projected.sources[].configMap": "name",
    "projected.sources[].secret": "name",
}
DOWNWARD_FILES = ("downwardAPI", "projected.sources[].downwardAPI")


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _is_file(path: str) -> bool:
    return is_local_path(path) and not path.startswith("..")


RULES: tuple[ValueRule, ...] = (
    *((field, is_label, EXPECTED_LABEL) for field in ("hostname", "subdomain", "resourceClaims[].name")),
    *(
        (field, is_subdomain, EXPECTED_SUBDOMAIN)
        for field in ("serviceAccountName", "nodeName", "priorityClassName", "runtimeClassName")
    ),
    ("activeDeadlineSeconds", between(1, MAX_SECONDS), f"from 1 to {MAX_SECONDS} seconds"),
    ("schedulingGates[].name", is_qualified, EXPECTED_QUALIFIED),
    ("readinessGates[].conditionType", is_qualified, EXPECTED_QUALIFIED),
    ("dnsConfig.nameservers", lambda servers: len(servers) <= 3, "at most 3 of them"),
    ("dnsConfig.nameservers[]", _is_address, "an IP address"),
    ("hostAliases[].ip", _is_address, "an IP address"),
    ("hostAliases[].hostnames[]", is_subdomain, EXPECTED_SUBDOMAIN),
    *(
        (f"securityContext.{field}", between(0, MAX_ID), EXPECTED_ID)
        for field in ("runAsUser", "runAsGroup", "fsGroup")
    ),
    ("securityContext.supplementalGroups[]", between(0, MAX_SECONDS), f"from 0 to {MAX_SECONDS}"),
    (
        "securityContext.sysctls[].name",
        lambda name: len(name) <= MAX_SYSCTL and SYSCTL.fullmatch(name) is not None,
        EXPECTED_SYSCTL,
    ),
    ("ephemeralContainers", lambda containers: not containers, "none in a template"),
    ("topologySpreadConstraints[].maxSkew", lambda number: number > 0, "more than 0"),
    *((f"{terms}.topologyKey", is_qualified, EXPECTED_QUALIFIED) for terms in TERMS_OF_PODS),
    *(
        (f"affinity.{kind}.{PREFERRED}[].weight", between(1, 100), "from 1 to 100")
        for kind in ("nodeAffinity", "podAffinity", "podAntiAffinity")
    ),
    ("tolerations[].key", is_qualified, EXPECTED_QUALIFIED),
)
VOLUME_RULES: tuple[ValueRule, ...] = (
    ("name", is_label, EXPECTED_LABEL),
    *(
        (f"{kind}.defaultMode", between(0, MAX_MODE), EXPECTED_MODE)
        for kind in ("configMap", "secret", "downwardAPI", "projected")
    ),
    *((f"{kind}.items[].key", CONFIG_KEY.fullmatch, EXPECTED_KEY) for kind in CONFIG_FILES),
    *((f"{kind}.items[].path", _is_file, EXPECTED_LOCAL_PATH) for kind in (*CONFIG_FILES, *DOWNWARD_FILES)),
    *((f"{kind}.items[].mode", between(0, MAX_MODE), EXPECTED_MODE) for kind in (*CONFIG_FILES, *DOWNWARD_FILES)),
    ("hostPath.path", has_no_parent, NO_PARENT),
    ("nfs.path", lambda path: path.startswith("/"), "an absolute path"),
    ("emptyDir.sizeLimit", lambda size: (quantity(size) or 0) >= 0, "at least 0"),
    (
        "projected.sources[].serviceAccountToken.expirationSeconds",
        between(MIN_TOKEN_SECONDS, 2**32 - 1),
        f"at least {MIN_TOKEN_SECONDS} seconds",
    ),
    ("projected.sources[].serviceAccountToken.path", is_local_path, EXPECTED_LOCAL_PATH),
    (
        "ephemeral.volumeClaimTemplate.spec.resources.requests.storage",
        lambda storage: (size := quantity(storage)) is None or size > 0,
        "more than 0",
    ),
)


def wrong_pod(path: Path, template: dict[str, Any]) -> Iterator[Finding]:
    """What the API server refuses of a pod template, whose fields have their types.

    Example:
        >>> container = {"name": "train", "image": "a", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}
        >>> [each.path for each in wrong_pod((), {"spec": {"containers": [container]}})]
        [('spec', 'containers', 0, 'volumeMounts', 0, 'name')]
    """
    metadata, pod, place = template.get("metadata") or {}, template["spec"], (*path, "spec")
    yield from wrong_labels((*path, "metadata", "labels"), metadata.get("labels") or {})
    yield from wrong_annotations((*path, "metadata", "annotations"), metadata.get("annotations") or {})
    volumes, claims = pod.get("volumes") or [], pod.get("resourceClaims") or []
    yield from _wrong_volumes(place, pod)
    yield from _wrong_claims(place, pod)
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
    yield from wrong_values(place, pod, *RULES)
    yield from repeated((*place, "schedulingGates"), pod.get("schedulingGates") or [], "name")
    if pod.get("dnsPolicy") == "None" and not (pod.get("dnsConfig") or {}).get("nameservers"):
        yield Finding(place, "no dnsConfig.nameservers", "dnsConfig.nameservers with dnsPolicy None")
    yield from _wrong_pod_rights(place, pod)
    yield from _wrong_placement(place, pod)


def _wrong_claims(path: Path, pod: dict[str, Any]) -> Iterator[Finding]:
    yield from repeated((*path, "resourceClaims"), pod.get("resourceClaims") or [], "name")
    for place, claim in parts(path, pod, "resourceClaims[]"):
        sources = [name for name in fields_of("PodResourceClaim") if name != "name" and claim.get(name) is not None]
        if len(sources) != 1:
            found = " and ".join(sources) or "no source"
            yield Finding(place, found, "either resourceClaimName or resourceClaimTemplateName")
        for name in sources:
            # Of these an empty text is no absent one.
            if not is_subdomain(claim[name]):
                yield wrong((*place, name), claim[name], EXPECTED_SUBDOMAIN)


def _wrong_pod_rights(path: Path, pod: dict[str, Any]) -> Iterator[Finding]:
    rights = pod.get("securityContext") or {}
    yield from wrong_profile((*path, "securityContext"), rights)
    yield from repeated((*path, "securityContext", "sysctls"), rights.get("sysctls") or [], "name")
    if pod.get("hostPID") and pod.get("shareProcessNamespace"):
        yield Finding(path, "hostPID with shareProcessNamespace", "one of them")
    for field in ("hostPID", "hostIPC", "hostNetwork"):
        if pod.get(field) and pod.get("hostUsers") is False:
            yield Finding((*path, field), f"{field} with hostUsers: false", "one of them")


def _wrong_placement(path: Path, pod: dict[str, Any]) -> Iterator[Finding]:
    yield from wrong_labels((*path, "nodeSelector"), pod.get("nodeSelector") or {})
    for place, toleration in parts(path, pod, "tolerations[]"):
        yield from _wrong_toleration(place, toleration)
    for pattern in TERMS_OF_NODES:
        for place, rule in parts(path, pod, pattern):
            yield from _wrong_expression(place, rule)
    for pattern in (*TERMS_OF_PODS, "topologySpreadConstraints[]"):
        for place, selector in parts(path, pod, f"{pattern}.labelSelector"):
            yield from wrong_selector(place, selector)
    seen = set()
    for place, constraint in parts(path, pod, "topologySpreadConstraints[]"):
        domains = constraint.get("minDomains")
        if domains is not None and (domains <= 0 or constraint["whenUnsatisfiable"] != "DoNotSchedule"):
            yield wrong((*place, "minDomains"), domains, "more than 0, with whenUnsatisfiable DoNotSchedule")
        key = (constraint["topologyKey"], constraint["whenUnsatisfiable"])
        if key in seen:
            yield Finding(place, f"{' with '.join(key)} a second time", "each topologyKey once")
        seen.add(key)


def _wrong_toleration(path: Path, toleration: dict[str, Any]) -> Iterator[Finding]:
    operator, value = (toleration.get(field) or "" for field in ("operator", "value"))
    if not toleration.get("key") and operator != "Exists":
        yield Finding(path, "no key", "key, or operator: Exists for all taints")
    if operator == "Exists" and value:
        yield wrong((*path, "value"), value, "no value with operator Exists")
    elif operator in ("", "Equal") and not is_label_value(value):
        yield wrong((*path, "value"), value, EXPECTED_LABEL_VALUE)
    if toleration.get("tolerationSeconds") is not None and toleration.get("effect") != "NoExecute":
        yield wrong((*path, "tolerationSeconds"), toleration["tolerationSeconds"], "effect: NoExecute beside it")


def wrong_selector(path: Path, selector: dict[str, Any]) -> Iterator[Finding]:
    """What the API server refuses of a selector of labels."""
    yield from wrong_labels((*path, "matchLabels"), selector.get("matchLabels") or {})
    for place, rule in parts(path, selector, "matchExpressions[]"):
        yield from _wrong_expression(place, rule)


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
    yield from wrong_values(path, rule, ("values[]", is_label_value, EXPECTED_LABEL_VALUE))


def _wrong_volumes(path: Path, pod: dict[str, Any]) -> Iterator[Finding]:
    yield from repeated((*path, "volumes"), pod.get("volumes") or [], "name")
    for place, volume in parts(path, pod, "volumes[]"):
        yield from wrong_values(place, volume, *VOLUME_RULES)
        # Without a source, a volume is an empty folder.
        sources = [name for name in fields_of("Volume") if name != "name" and volume.get(name) is not None]
        if len(sources) > 1:
            yield Finding(place, f"{' and '.join(sources)} of one volume", "one source, and a volume for each other")
        for source, each in parts(place, volume, "projected.sources[]"):
            kinds = [name for name, value in each.items() if value is not None]
            if len(kinds) > 1:
                yield Finding(
                    source, f"{' and '.join(kinds)} of one source", "one of them, and a source for each other"
                )
        for kind, name in CONFIG_FILES.items():
            yield from without(place, volume, kind, name)
        for kind in DOWNWARD_FILES:
            for file, item in parts(place, volume, f"{kind}.items[]"):
                yield from _wrong_downward_file(file, item)
        yield from without(place, volume, "ephemeral", "volumeClaimTemplate")
        for claim, spec in parts(place, volume, "ephemeral.volumeClaimTemplate.spec"):
            if not spec.get("accessModes"):
                yield Finding(claim, "no accessModes", "accessModes, such as [ReadWriteOnce]")
            if ((spec.get("resources") or {}).get("requests") or {}).get("storage") is None:
                yield Finding(claim, "no resources.requests.storage", "resources.requests.storage, such as 100Gi")


def _wrong_downward_file(path: Path, item: dict[str, Any]) -> Iterator[Finding]:
    field, resource = item.get("fieldRef"), item.get("resourceFieldRef")
    if (field is None) == (resource is None):
        yield Finding(path, "both" if field else "neither", "either fieldRef or resourceFieldRef")
    elif resource is not None and not resource.get("containerName"):
        yield Finding((*path, "resourceFieldRef"), "no containerName", "containerName")
    elif field is not None and field["fieldPath"].partition("[")[0] not in FIELDS_OF_FILES:
        yield wrong((*path, "fieldRef", "fieldPath"), field["fieldPath"], f"one of {', '.join(FIELDS_OF_FILES)}")
