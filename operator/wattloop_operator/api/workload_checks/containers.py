"""Containers of a pod: names, variables, mounts, ports, probes, rights and resources."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from wattloop_operator.api.checks.manifest_problem import Path, format_value
from wattloop_operator.api.workload_checks.formats import (
    CONFIG_KEY,
    EXPECTED_ID,
    EXPECTED_KEY,
    EXPECTED_LABEL,
    EXPECTED_LOCAL_PATH,
    EXPECTED_QUALIFIED,
    MAX_ID,
    NO_PARENT,
    PORT_NAME,
    VARIABLE_NAME,
    Finding,
    ValueRule,
    between,
    has_no_parent,
    is_label,
    is_local_path,
    is_not_negative,
    is_qualified,
    parts,
    quantity,
    repeated,
    without,
    without_one_of,
    wrong,
    wrong_values,
)

SOURCES_OF_VALUES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
SOURCES_OF_VARIABLES = ("configMapRef", "secretRef")
OBJECTS_WITH_NAME = (
    "env[].valueFrom.configMapKeyRef",
    "env[].valueFrom.secretKeyRef",
    "envFrom[].configMapRef",
    "envFrom[].secretRef",
)
HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
OF_RUNNING_CONTAINERS = (*PROBES, "lifecycle")
PROBE_NUMBERS = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
FIELDS_OF_VARIABLES = frozenset(
    {"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName"}
    | {"status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"}
)
MAPS_OF_VARIABLES = ("metadata.labels['", "metadata.annotations['")
RESOURCES_OF_VARIABLES = ("cpu", "memory", "ephemeral-storage")
EXPECTED_PORT = "a port from 1 to 65535"
EXPECTED_PORT_NAME = "at most 15 lower-case letters, digits and -, with at least one letter"
EXPECTED_VARIABLE = "printable ASCII characters without ="
EXPECTED_FIELD = f"one of {', '.join(sorted(FIELDS_OF_VARIABLES))}, or metadata.labels['KEY']"
EXPECTED_RESOURCE_FIELD = f"limits or requests of {', '.join(RESOURCES_OF_VARIABLES)}, such as limits.memory"
DEFAULT_GRACE_SECONDS = 30
OF_CONTAINERS = frozenset({"cpu", "memory", "ephemeral-storage"})
OF_PODS = frozenset({"cpu", "memory"})
HUGE_PAGES = "hugepages-"
# The domain of resources of which nodes may promise more than they have.
OWN_DOMAIN = "kubernetes.io/"
EXPECTED_RESOURCE = "cpu, memory, ephemeral-storage, or a resource with a domain such as nvidia.com/gpu"


def _is_field(text: str) -> bool:
    return text in FIELDS_OF_VARIABLES or (text.startswith(MAPS_OF_VARIABLES) and text.endswith("']"))


def _is_resource_field(text: str) -> bool:
    part, _, name = text.partition(".")
    return part in ("limits", "requests") and (name in RESOURCES_OF_VARIABLES or name.startswith("hugepages-"))


def _is_port_name(text: str) -> bool:
    return len(text) <= 15 and PORT_NAME.fullmatch(text) is not None


RULES: tuple[ValueRule, ...] = (
    ("name", is_label, EXPECTED_LABEL),
    ("env[].name", VARIABLE_NAME.fullmatch, EXPECTED_VARIABLE),
    ("env[].valueFrom.configMapKeyRef.key", CONFIG_KEY.fullmatch, EXPECTED_KEY),
    ("env[].valueFrom.secretKeyRef.key", CONFIG_KEY.fullmatch, EXPECTED_KEY),
    ("env[].valueFrom.fieldRef.fieldPath", _is_field, EXPECTED_FIELD),
    ("env[].valueFrom.fileKeyRef.path", has_no_parent, NO_PARENT),
    ("env[].valueFrom.resourceFieldRef.resource", _is_resource_field, EXPECTED_RESOURCE_FIELD),
    ("envFrom[].prefix", VARIABLE_NAME.fullmatch, EXPECTED_VARIABLE),
    ("volumeMounts[].subPath", is_local_path, EXPECTED_LOCAL_PATH),
    ("volumeMounts[].subPathExpr", is_local_path, EXPECTED_LOCAL_PATH),
    ("ports[].name", _is_port_name, EXPECTED_PORT_NAME),
    ("ports[].containerPort", between(1, 65535), EXPECTED_PORT),
    ("ports[].hostPort", between(0, 65535), EXPECTED_PORT),
    ("securityContext.runAsUser", between(0, MAX_ID), EXPECTED_ID),
    ("securityContext.runAsGroup", between(0, MAX_ID), EXPECTED_ID),
    ("resizePolicy[].resourceName", ("cpu", "memory").__contains__, "cpu or memory"),
)
RUNNING_RULES: tuple[ValueRule, ...] = tuple(
    (f"{probe}.{name}", is_not_negative, "at least 0") for probe in PROBES for name in PROBE_NUMBERS
)


@dataclass(frozen=True)
class PodContext:
    """What the containers of a pod refer to.

    Attributes:
        volumes: The sources of each volume, by name.
        claims: Names of its resource claims.
        restart_policy: Its restartPolicy; empty if it has none.
        on_host_network: Whether its containers use the node's network.
        has_own_users: Whether its users are others than the node's.
        grace_seconds: The time that its containers have to end.
    """

    volumes: dict[str, Collection[str]]
    claims: Collection[str]
    restart_policy: str
    on_host_network: bool
    has_own_users: bool
    grace_seconds: int


def wrong_containers(path: Path, pod: dict[str, Any], context: PodContext) -> Iterator[Finding]:
    """What the API server refuses of the containers of a pod, whose fields have their types."""
    containers, first = pod["containers"], pod.get("initContainers") or []
    yield from repeated((*path, "containers"), containers, "name")
    names = {each["name"] for each in containers}
    yield from repeated((*path, "initContainers"), first, "name")
    for index, container in enumerate(containers):
        yield from _wrong_container((*path, "containers", index), container, context)
        yield from _wrong_while_running((*path, "containers", index), container, context)
    for index, container in enumerate(first):
        place: Path = (*path, "initContainers", index)
        if container["name"] in names:
            yield wrong((*place, "name"), container["name"], "another name than that of a container of the pod")
        yield from _wrong_container(place, container, context)
        if container.get("restartPolicy") == "Always":
            yield from _wrong_while_running(place, container, context)
            continue
        for field in OF_RUNNING_CONTAINERS:
            if container.get(field) is not None:
                yield wrong((*place, field), container[field], "restartPolicy: Always beside it in an init container")
    yield from _wrong_host_ports(path, containers)


def _wrong_container(path: Path, container: dict[str, Any], context: PodContext) -> Iterator[Finding]:
    yield from wrong_values(path, container, *RULES)
    if not container.get("image"):
        yield Finding(path, "no image", "image")
    yield from _wrong_variables(path, container, context)
    yield from _wrong_mounts(path, container, context)
    yield from repeated((*path, "ports"), container.get("ports") or [], "name")
    for place, port in parts(path, container, "ports[]"):
        number, on_host = port["containerPort"], port.get("hostPort") or 0
        if context.on_host_network and 1 <= on_host <= 65535 and on_host != number:
            yield wrong((*place, "hostPort"), on_host, f"containerPort {number}, as on the host's network")
    yield from wrong_resources((*path, "resources"), container.get("resources") or {}, context.claims)
    yield from _wrong_rights((*path, "securityContext"), container.get("securityContext") or {}, context)
    for place, each in parts(path, container, "resizePolicy[]"):
        is_changed = each["resourceName"] in ("cpu", "memory") and each["restartPolicy"] != "NotRequired"
        if is_changed and context.restart_policy in ("", "Never"):
            expected = "NotRequired with restartPolicy Never of the pod"
            yield wrong((*place, "restartPolicy"), each["restartPolicy"], expected)
    if container.get("restartPolicyRules") and not container.get("restartPolicy"):
        yield Finding(path, "no restartPolicy", "restartPolicy beside restartPolicyRules")


def _wrong_variables(path: Path, container: dict[str, Any], context: PodContext) -> Iterator[Finding]:
    for place, variable in parts(path, container, "env[]"):
        if variable.get("value") and variable.get("valueFrom") is not None:
            yield Finding(place, "value and valueFrom", "one of them")
    yield from without_one_of(path, container, "env[].valueFrom", SOURCES_OF_VALUES)
    yield from without_one_of(path, container, "envFrom[]", SOURCES_OF_VARIABLES)
    for pattern in OBJECTS_WITH_NAME:
        yield from without(path, container, pattern, "name")
    for place, source in parts(path, container, "env[].valueFrom.fileKeyRef"):
        if "emptyDir" not in context.volumes.get(source["volumeName"], ()):
            yield wrong((*place, "volumeName"), source["volumeName"], "the name of an emptyDir volume of the pod")


def _wrong_mounts(path: Path, container: dict[str, Any], context: PodContext) -> Iterator[Finding]:
    mounts, devices = container.get("volumeMounts") or [], container.get("volumeDevices") or []
    yield from repeated((*path, "volumeMounts"), mounts, "mountPath")
    yield from repeated((*path, "volumeDevices"), devices, "devicePath")
    yield from repeated((*path, "volumeDevices"), devices, "name")
    expected = f"the name of one of the pod's volumes ({', '.join(context.volumes) or 'it has none'})"
    is_privileged = (container.get("securityContext") or {}).get("privileged")
    for place, mount in parts(path, container, "volumeMounts[]"):
        if mount["name"] not in context.volumes:
            yield wrong((*place, "name"), mount["name"], expected)
        if mount.get("subPath") and mount.get("subPathExpr"):
            yield Finding(place, "subPath and subPathExpr", "one of them")
        if mount.get("mountPropagation") == "Bidirectional" and not is_privileged:
            yield wrong((*place, "mountPropagation"), "Bidirectional", "a privileged container beside it")
        if (mount.get("recursiveReadOnly") or "Disabled") != "Disabled" and not mount.get("readOnly"):
            yield wrong((*place, "recursiveReadOnly"), mount["recursiveReadOnly"], "readOnly: true beside it")
    mounted = {mount["name"] for mount in mounts}
    for place, device in parts(path, container, "volumeDevices[].name"):
        if device not in context.volumes:
            yield wrong(place, device, expected)
        elif not {"persistentVolumeClaim", "ephemeral"}.intersection(context.volumes[device]):
            yield wrong(place, device, "a volume of a persistentVolumeClaim")
        if device in mounted:
            yield wrong(place, device, "a volume that volumeMounts does not have")


def _wrong_host_ports(path: Path, containers: list[dict[str, Any]]) -> Iterator[Finding]:
    seen = set()
    for place, port in parts(path, {"containers": containers}, "containers[].ports[]"):
        on_host = (port.get("protocol") or "TCP", port.get("hostIP") or "", port.get("hostPort"))
        if port.get("hostPort") and on_host in seen:
            yield Finding((*place, "hostPort"), f"{port['hostPort']} a second time", "each port of the host once")
        seen.add(on_host)


def _wrong_while_running(path: Path, container: dict[str, Any], context: PodContext) -> Iterator[Finding]:
    """What is wrong in probes and hooks, which a container has while others run."""
    yield from wrong_values(path, container, *RUNNING_RULES)
    for field in PROBES:
        for place, probe in parts(path, container, field):
            yield from _wrong_handler(place, probe, context)
            if field != "readinessProbe" and (probe.get("successThreshold") or 1) not in (0, 1):
                yield wrong((*place, "successThreshold"), probe["successThreshold"], f"1, as a {field} has")
            seconds = probe.get("terminationGracePeriodSeconds")
            if seconds is not None and (field == "readinessProbe" or seconds <= 0):
                expected = "none in a readinessProbe" if field == "readinessProbe" else "more than 0"
                yield wrong((*place, "terminationGracePeriodSeconds"), seconds, expected)
    for hook in ("lifecycle.postStart", "lifecycle.preStop"):
        for place, handler in parts(path, container, hook):
            yield from _wrong_handler(place, handler, context)


def _wrong_handler(path: Path, handler: dict[str, Any], context: PodContext) -> Iterator[Finding]:
    yield from without_one_of(path[:-1], {str(path[-1]): handler}, str(path[-1]), HANDLERS, "no handler")
    yield from without(path, handler, "exec", "command")
    for place, seconds in parts(path, handler, "sleep.seconds"):
        if not 0 <= seconds <= context.grace_seconds:
            yield wrong(place, seconds, f"from 0 to {context.grace_seconds}, the pod's terminationGracePeriodSeconds")
    for kind in HANDLERS:
        port = (handler.get(kind) or {}).get("port")
        if isinstance(port, str) and not _is_port_name(port):
            yield wrong((*path, kind, "port"), port, f"{EXPECTED_PORT}, or the name of one: {EXPECTED_PORT_NAME}")
        elif port is not None and not isinstance(port, str) and not 1 <= port <= 65535:
            yield wrong((*path, kind, "port"), port, EXPECTED_PORT)


def _wrong_rights(path: Path, rights: dict[str, Any], context: PodContext) -> Iterator[Finding]:
    yield from wrong_profile(path, rights)
    if rights.get("privileged") and rights.get("allowPrivilegeEscalation") is False:
        yield Finding(path, "privileged: true with allowPrivilegeEscalation: false", "one of them")
    added = (rights.get("capabilities") or {}).get("add") or ()
    if rights.get("allowPrivilegeEscalation") is False and "CAP_SYS_ADMIN" in added:
        yield Finding(path, "CAP_SYS_ADMIN with allowPrivilegeEscalation: false", "one of them")
    if rights.get("procMount") == "Unmasked" and not context.has_own_users:
        yield wrong((*path, "procMount"), "Unmasked", "hostUsers: false of the pod beside it")


def wrong_profile(path: Path, rights: dict[str, Any]) -> Iterator[Finding]:
    """A profile that does not fit the type of profiles beside it."""
    for field in ("seccompProfile", "appArmorProfile"):
        profile = rights.get(field) or {}
        has_name = profile.get("localhostProfile") is not None
        if profile and (profile["type"] == "Localhost") != has_name:
            found = f"{'' if has_name else 'no '}localhostProfile with type {profile['type']}"
            yield Finding((*path, field), found, "localhostProfile with Localhost alone")


def wrong_resources(path: Path, resources: dict[str, Any], claims: Collection[str]) -> Iterator[Finding]:
    """What the API server refuses of the resources of a container.

    Example:
        >>> [each.found for each in wrong_resources((), {"requests": {"nvidia.com/gpu": 1}}, ())]
        ['no limit beside this request of 1']
    """
    limits, requests = (resources.get(part) or {} for part in ("limits", "requests"))
    for part, quantities in (("limits", limits), ("requests", requests)):
        for name, value in quantities.items():
            yield from _wrong_quantity((*path, part, name), name, value)
    for name, value in requests.items():
        place = (*path, "requests", name)
        if name not in limits:
            if not _may_be_overcommitted(name):
                yield Finding(
                    place, f"no limit beside this request of {value}", f"limits with {name}: {value}, the same number"
                )
            continue
        requested, limit = quantity(value), quantity(limits[name])
        if requested is None or limit is None:
            continue
        if requested != limit and not _may_be_overcommitted(name):
            yield wrong(place, value, f"the same number as in limits, {limits[name]}")
        elif requested > limit:
            yield wrong(place, value, f"at most its limit, {limits[name]}")
    names = {*limits, *requests}
    if any(name.startswith(HUGE_PAGES) for name in names) and not names & OF_PODS:
        yield Finding(path, "huge pages alone", "cpu or memory beside them")
    seen: set[tuple[str, str]] = set()
    for index, claim in enumerate(resources.get("claims") or ()):
        key = (claim["name"], claim.get("request") or "")
        if claim["name"] not in claims:
            yield wrong((*path, "claims", index, "name"), claim["name"], "the name of one of the pod's resourceClaims")
        elif key in seen or (claim["name"], "") in seen:
            yield wrong((*path, "claims", index, "name"), claim["name"], "each claim once")
        seen.add(key)


def wrong_pod_resources(
    path: Path, resources: dict[str, Any], containers: Sequence[dict[str, Any]]
) -> Iterator[Finding]:
    """What the API server refuses of the resources that the containers of a pod have together."""
    if resources.get("claims"):
        yield Finding((*path, "claims"), "claims of the pod's resources", "claims of a container's resources")
    yield from wrong_resources(path, resources | {"claims": None}, ())
    of_containers = [each.get("resources") or {} for each in containers]
    for part in ("limits", "requests"):
        for name, value in (resources.get(part) or {}).items():
            place, whole = (*path, part, name), quantity(value)
            if name not in OF_PODS and not name.startswith(HUGE_PAGES):
                found = f"the resource {format_value(name)}"
                yield Finding(place, found, "cpu, memory or hugepages- of a size; others are a container's")
            parts = [quantity((each.get(part) or {}).get(name, 0)) or 0 for each in of_containers]
            least = max(parts, default=0) if part == "limits" else sum(parts)
            if whole is not None and whole < least:
                yield wrong(place, value, "as much as its containers have")


def _wrong_quantity(path: Path, name: str, value: Any) -> Iterator[Finding]:
    number = quantity(value)
    if not is_qualified(name):
        yield Finding(path, f"the resource {format_value(name)}", EXPECTED_QUALIFIED)
    elif "/" not in name and name not in OF_CONTAINERS and not name.startswith(HUGE_PAGES):
        yield Finding(path, f"the resource {format_value(name)}", EXPECTED_RESOURCE)
    elif name.startswith("requests."):
        yield Finding(path, f"the resource {format_value(name)}", "a resource without requests. before it")
    elif number is not None and number < 0:
        yield wrong(path, value, "at least 0")
    elif number is not None and _is_extended(name) and number.denominator != 1:
        yield wrong(path, value, f"a whole number of {name}")
    elif number is not None and name.startswith(HUGE_PAGES):
        size = quantity(name.removeprefix(HUGE_PAGES))
        if size is None or size <= 0:
            yield Finding(path, f"the resource {format_value(name)}", "huge pages of a size, such as hugepages-2Mi")
        elif (number / size).denominator != 1:
            yield wrong(path, value, f"a multiple of {name.removeprefix(HUGE_PAGES)}")


def _is_extended(name: str) -> bool:
    return "/" in name and OWN_DOMAIN not in name


def _may_be_overcommitted(name: str) -> bool:
    return not _is_extended(name) and not name.startswith(HUGE_PAGES)
