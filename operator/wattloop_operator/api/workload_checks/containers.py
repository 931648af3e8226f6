"""Containers of a pod: names, variables, mounts, ports, probes and rights."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from wattloop_operator.api.checks.manifest_problem import Path
from wattloop_operator.api.workload_checks.formats import (
    CONFIG_KEY,
    EXPECTED_LABEL,
    EXPECTED_LOCAL_PATH,
    PORT_NAME,
    VARIABLE_NAME,
    Finding,
    is_label,
    is_local_path,
    repeated,
    wrong,
)
from wattloop_operator.api.workload_checks.resources import wrong_resources

SOURCES_OF_VALUES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
SOURCES_OF_VARIABLES = ("configMapRef", "secretRef")
HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
OF_RUNNING_CONTAINERS = (*PROBES, "lifecycle")
PROBE_NUMBERS = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
FIELDS_OF_VARIABLES = frozenset(
    {
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
        "spec.nodeName",
        "spec.serviceAccountName",
        "status.hostIP",
        "status.hostIPs",
        "status.podIP",
        "status.podIPs",
    }
)
MAPS_OF_VARIABLES = ("metadata.labels['", "metadata.annotations['")
RESOURCES_OF_VARIABLES = ("cpu", "memory", "ephemeral-storage")
MAX_ID = 2**31 - 1
EXPECTED_PORT = "a port from 1 to 65535"
EXPECTED_PORT_NAME = "at most 15 lower-case letters, digits and -, with at least one letter"
EXPECTED_VARIABLE = "printable ASCII characters without ="
DEFAULT_GRACE_SECONDS = 30


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
    yield from _wrong_host_ports((*path, "containers"), containers)


def _wrong_container(path: Path, container: dict[str, Any], context: PodContext) -> Iterator[Finding]:
    if not is_label(container["name"]):
        yield wrong((*path, "name"), container["name"], EXPECTED_LABEL)
    if not container.get("image"):
        yield Finding(path, "no image", "image")
    yield from _wrong_variables(path, container, context)
    yield from _wrong_mounts(path, container, context)
    yield from _wrong_ports((*path, "ports"), container.get("ports") or [], context)
    yield from wrong_resources((*path, "resources"), container.get("resources") or {}, context.claims)
    rights = container.get("securityContext") or {}
    yield from _wrong_rights((*path, "securityContext"), rights)
    if rights.get("procMount") == "Unmasked" and not context.has_own_users:
        yield wrong((*path, "securityContext", "procMount"), "Unmasked", "hostUsers: false of the pod beside it")
    for index, each in enumerate(container.get("resizePolicy") or ()):
        if each["resourceName"] not in ("cpu", "memory"):
            yield wrong((*path, "resizePolicy", index, "resourceName"), each["resourceName"], "cpu or memory")
        elif each["restartPolicy"] != "NotRequired" and context.restart_policy in ("", "Never"):
            expected = "NotRequired with restartPolicy Never of the pod"
            yield wrong((*path, "resizePolicy", index, "restartPolicy"), each["restartPolicy"], expected)
    rules = container.get("restartPolicyRules") or ()
    if rules and not container.get("restartPolicy"):
        yield Finding(path, "no restartPolicy", "restartPolicy beside restartPolicyRules")


def _wrong_variables(path: Path, container: dict[str, Any], context: PodContext) -> Iterator[Finding]:
    for index, variable in enumerate(container.get("env") or ()):
        place: Path = (*path, "env", index)
        if not VARIABLE_NAME.fullmatch(variable["name"]):
            yield wrong((*place, "name"), variable["name"], EXPECTED_VARIABLE)
        source = variable.get("valueFrom")
        if source is None:
            continue
        kinds = [name for name in SOURCES_OF_VALUES if source.get(name) is not None]
        if variable.get("value"):
            yield Finding(place, "value and valueFrom", "one of them")
        if len(kinds) != 1:
            found = " and ".join(kinds) or "no source"
            yield Finding((*place, "valueFrom"), found, f"one of {', '.join(SOURCES_OF_VALUES)}")
        for kind in kinds:
            yield from _wrong_value_source((*place, "valueFrom", kind), kind, source[kind], context)
    for index, source in enumerate(container.get("envFrom") or ()):
        place = (*path, "envFrom", index)
        kinds = [name for name in SOURCES_OF_VARIABLES if source.get(name) is not None]
        if len(kinds) != 1:
            yield Finding(place, " and ".join(kinds) or "no source", f"one of {', '.join(SOURCES_OF_VARIABLES)}")
        for kind in kinds:
            if not source[kind].get("name"):
                yield Finding((*place, kind), "no name", "name")
        if source.get("prefix") and not VARIABLE_NAME.fullmatch(source["prefix"]):
            yield wrong((*place, "prefix"), source["prefix"], EXPECTED_VARIABLE)


def _wrong_value_source(path: Path, kind: str, source: dict[str, Any], context: PodContext) -> Iterator[Finding]:
    if kind in ("configMapKeyRef", "secretKeyRef"):
        if not source.get("name"):
            yield Finding(path, "no name", "name")
        if not CONFIG_KEY.fullmatch(source["key"]):
            yield wrong((*path, "key"), source["key"], "letters, digits, -, _ and .")
    elif kind == "fieldRef":
        field = source["fieldPath"]
        is_entry = field.startswith(MAPS_OF_VARIABLES) and field.endswith("']")
        if field not in FIELDS_OF_VARIABLES and not is_entry:
            expected = f"one of {', '.join(sorted(FIELDS_OF_VARIABLES))}, or metadata.labels['KEY']"
            yield wrong((*path, "fieldPath"), field, expected)
    elif kind == "fileKeyRef":
        if "emptyDir" not in context.volumes.get(source["volumeName"], ()):
            yield wrong((*path, "volumeName"), source["volumeName"], "the name of an emptyDir volume of the pod")
        if ".." in source["path"].split("/"):
            yield wrong((*path, "path"), source["path"], "a path without ..")
    elif kind == "resourceFieldRef":
        part, _, name = source["resource"].partition(".")
        is_known = name in RESOURCES_OF_VARIABLES or name.startswith("hugepages-")
        if part not in ("limits", "requests") or not is_known:
            expected = f"limits or requests of {', '.join(RESOURCES_OF_VARIABLES)}, such as limits.memory"
            yield wrong((*path, "resource"), source["resource"], expected)


def _wrong_mounts(path: Path, container: dict[str, Any], context: PodContext) -> Iterator[Finding]:
    mounts, devices = container.get("volumeMounts") or [], container.get("volumeDevices") or []
    yield from repeated((*path, "volumeMounts"), mounts, "mountPath")
    yield from repeated((*path, "volumeDevices"), devices, "devicePath")
    yield from repeated((*path, "volumeDevices"), devices, "name")
    expected = f"the name of one of the pod's volumes ({', '.join(context.volumes) or 'it has none'})"
    for index, mount in enumerate(mounts):
        place: Path = (*path, "volumeMounts", index)
        if mount["name"] not in context.volumes:
            yield wrong((*place, "name"), mount["name"], expected)
        if mount.get("subPath") and mount.get("subPathExpr"):
            yield Finding(place, "subPath and subPathExpr", "one of them")
        for field in ("subPath", "subPathExpr"):
            if not is_local_path(mount.get(field) or ""):
                yield wrong((*place, field), mount[field], EXPECTED_LOCAL_PATH)
        if mount.get("mountPropagation") == "Bidirectional" and not _is_privileged(container):
            yield wrong((*place, "mountPropagation"), "Bidirectional", "a privileged container beside it")
        if (mount.get("recursiveReadOnly") or "Disabled") != "Disabled" and not mount.get("readOnly"):
            yield wrong((*place, "recursiveReadOnly"), mount["recursiveReadOnly"], "readOnly: true beside it")
    mounted = {mount["name"] for mount in mounts}
    for index, device in enumerate(devices):
        place = (*path, "volumeDevices", index)
        if device["name"] not in context.volumes:
            yield wrong((*place, "name"), device["name"], expected)
        elif not {"persistentVolumeClaim", "ephemeral"}.intersection(context.volumes[device["name"]]):
            yield wrong((*place, "name"), device["name"], "a volume of a persistentVolumeClaim")
        if device["name"] in mounted:
            yield wrong((*place, "name"), device["name"], "a volume that volumeMounts does not have")


def _wrong_ports(path: Path, ports: list[dict[str, Any]], context: PodContext) -> Iterator[Finding]:
    yield from repeated(path, ports, "name")
    for index, port in enumerate(ports):
        place: Path = (*path, index)
        name, number, on_host = port.get("name"), port["containerPort"], port.get("hostPort") or 0
        if name and (len(name) > 15 or not PORT_NAME.fullmatch(name)):
            yield wrong((*place, "name"), name, EXPECTED_PORT_NAME)
        if not 1 <= number <= 65535:
            yield wrong((*place, "containerPort"), number, EXPECTED_PORT)
        if on_host and not 1 <= on_host <= 65535:
            yield wrong((*place, "hostPort"), on_host, EXPECTED_PORT)
        elif on_host and context.on_host_network and on_host != number:
            yield wrong((*place, "hostPort"), on_host, f"containerPort {number}, as on the host's network")


def _wrong_host_ports(path: Path, containers: list[dict[str, Any]]) -> Iterator[Finding]:
    seen = set()
    for index, container in enumerate(containers):
        for number, port in enumerate(container.get("ports") or ()):
            on_host = (port.get("protocol") or "TCP", port.get("hostIP") or "", port.get("hostPort"))
            if port.get("hostPort") and on_host in seen:
                place = (*path, index, "ports", number, "hostPort")
                yield Finding(place, f"{port['hostPort']} a second time", "each port of the host once")
            seen.add(on_host)


def _wrong_while_running(path: Path, container: dict[str, Any], context: PodContext) -> Iterator[Finding]:
    """What is wrong in probes and hooks, which a container has while others run."""
    for field in PROBES:
        probe, place = container.get(field), (*path, field)
        if probe is None:
            continue
        yield from _wrong_handler(place, probe, context)
        for name in PROBE_NUMBERS:
            if (probe.get(name) or 0) < 0:
                yield wrong((*place, name), probe[name], "at least 0")
        if field != "readinessProbe" and (probe.get("successThreshold") or 1) not in (0, 1):
            yield wrong((*place, "successThreshold"), probe["successThreshold"], f"1, as a {field} has")
        seconds = probe.get("terminationGracePeriodSeconds")
        if seconds is not None and (field == "readinessProbe" or seconds <= 0):
            expected = "none in a readinessProbe" if field == "readinessProbe" else "more than 0"
            yield wrong((*place, "terminationGracePeriodSeconds"), seconds, expected)
    for field, hook in (container.get("lifecycle") or {}).items():
        if field in ("postStart", "preStop") and hook is not None:
            yield from _wrong_handler((*path, "lifecycle", field), hook, context)


def _wrong_handler(path: Path, handler: dict[str, Any], context: PodContext) -> Iterator[Finding]:
    kinds = [name for name in HANDLERS if handler.get(name) is not None]
    if len(kinds) != 1:
        yield Finding(path, " and ".join(kinds) or "no handler", f"one of {', '.join(HANDLERS)}")
    for kind in kinds:
        place, value = (*path, kind), handler[kind]
        port = value.get("port")
        if kind == "exec" and not value.get("command"):
            yield Finding(place, "no command", "command")
        elif kind == "sleep" and not 0 <= value["seconds"] <= context.grace_seconds:
            expected = f"from 0 to {context.grace_seconds}, the pod's terminationGracePeriodSeconds"
            yield wrong((*place, "seconds"), value["seconds"], expected)
        elif isinstance(port, str) and (len(port) > 15 or not PORT_NAME.fullmatch(port)):
            yield wrong((*place, "port"), port, f"{EXPECTED_PORT}, or the name of one: {EXPECTED_PORT_NAME}")
        elif port is not None and not isinstance(port, str) and not 1 <= port <= 65535:
            yield wrong((*place, "port"), port, EXPECTED_PORT)


def _wrong_rights(path: Path, rights: dict[str, Any]) -> Iterator[Finding]:
    yield from wrong_ids(path, rights, ("runAsUser", "runAsGroup"))
    yield from wrong_profile(path, rights)
    if rights.get("privileged") and rights.get("allowPrivilegeEscalation") is False:
        yield Finding(path, "privileged: true with allowPrivilegeEscalation: false", "one of them")
    added = (rights.get("capabilities") or {}).get("add") or ()
    if rights.get("allowPrivilegeEscalation") is False and "CAP_SYS_ADMIN" in added:
        yield Finding(path, "CAP_SYS_ADMIN with allowPrivilegeEscalation: false", "one of them")


def wrong_ids(path: Path, rights: dict[str, Any], fields: Collection[str]) -> Iterator[Finding]:
    """The numbers of users and groups that none may have."""
    for field in fields:
        value = rights.get(field)
        if value is not None and not 0 <= value <= MAX_ID:
            yield wrong((*path, field), value, f"a number from 0 to {MAX_ID}")


def wrong_profile(path: Path, rights: dict[str, Any]) -> Iterator[Finding]:
    """A profile that does not fit the type of profiles beside it."""
    for field in ("seccompProfile", "appArmorProfile"):
        profile = rights.get(field) or {}
        if profile and (profile["type"] == "Localhost") != (profile.get("localhostProfile") is not None):
            found = "localhostProfile" if profile.get("localhostProfile") is not None else "no localhostProfile"
            yield Finding(
                (*path, field), f"{found} with type {profile['type']}", "localhostProfile with Localhost alone"
            )


def _is_privileged(container: dict[str, Any]) -> bool:
    return bool((container.get("securityContext") or {}).get("privileged"))
