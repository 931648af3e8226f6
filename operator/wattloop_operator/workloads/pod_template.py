"""What Wattloop adds to a pod template: environment, token, agent socket, labels. What the user wrote stays."""

from __future__ import annotations

import copy
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from wattloop.environment import PREFIX

GPU_RESOURCE = re.compile(r"^(nvidia|amd)\.com/(gpu|mig-.+)(\.shared)?$")
REPORTING_VOLUME = "wattloop-reporting"
AGENT_VOLUME = "wattloop-agent"
REPORTING_FOLDER = "/var/run/secrets/wattloop.dev"
TOKEN_FILE = f"{REPORTING_FOLDER}/token"
CERTIFICATE_AUTHORITY_FILE = f"{REPORTING_FOLDER}/ca.crt"
# The certificates travel in an annotation: a ConfigMap would need the right to write one into every namespace.
CERTIFICATE_AUTHORITY_ANNOTATION = "wattloop.dev/report-certificate-authority"
# Reports are accepted with this audience alone: the token opens nothing else, and no other token opens this.
AUDIENCE = "wattloop.dev/report"
TOKEN_SECONDS = 3600


class TemplateError(ValueError):
    """A template that Wattloop cannot start as it stands; the text says what to change."""


@dataclass(frozen=True)
class Injection:
    """What is added to a pod template.

    Attributes:
        labels: Labels of the pods.
        variables: Environment of the training containers.
        certificate_authority: Certificates of the reporting API, PEM; empty: the system's serve.
        reports: Whether the pods report, and so get a token.
        agent_folder: Folder of the node with the agent's socket; empty: none.
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    certificate_authority: str = ""
    reports: bool = True
    agent_folder: str = ""


def with_injection(
    template: Mapping[str, Any], training_containers: Collection[str] | None, injection: Injection
) -> dict[str, Any]:
    """The pod template with what Wattloop adds.

    Args:
        template: `{metadata, spec}` as the user wrote it; it is not changed.
        training_containers: Names of the containers that train; None: all of them.
        injection: What is added.

    Raises:
        TemplateError: A variable or a volume of Wattloop's is there already, or a container is not.
    """
    pod = copy.deepcopy(dict(template))
    metadata = pod.setdefault("metadata", None) or {}
    pod["metadata"] = metadata
    metadata["labels"] = {**(metadata.get("labels") or {}), **injection.labels}
    if injection.certificate_authority:
        annotation = {CERTIFICATE_AUTHORITY_ANNOTATION: injection.certificate_authority}
        metadata["annotations"] = {**(metadata.get("annotations") or {}), **annotation}
    spec = pod["spec"]
    volumes = _volumes(injection)
    taken = {volume.get("name") for volume in spec.get("volumes") or ()} & {volume["name"] for volume in volumes}
    if taken:
        raise TemplateError(f"the volume name {min(taken)} is Wattloop's; give yours another one")
    if volumes:
        spec["volumes"] = [*(spec.get("volumes") or ()), *volumes]
    for container in training(spec, training_containers):
        _inject(container, injection)
    return pod


def training(spec: Mapping[str, Any], names: Collection[str] | None) -> list[dict[str, Any]]:
    """The containers of a pod spec that train.

    Raises:
        TemplateError: One of the names is of no container.
    """
    containers: list[dict[str, Any]] = spec["containers"]
    if names is None:
        return containers
    there = [str(container.get("name")) for container in containers]
    missing = sorted(set(names) - set(there))
    if missing:
        raise TemplateError(f"trainingContainers names {missing[0]}, but the containers are {', '.join(there)}")
    return [container for container in containers if container.get("name") in names]


def gpus(spec: Mapping[str, Any], names: Collection[str] | None) -> int:
    """How many GPUs the training containers of one pod ask for."""
    return sum(_gpus(container) for container in training(spec, names))


def _gpus(container: Mapping[str, Any]) -> int:
    resources = container.get("resources") or {}
    asked = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    counts = [str(amount) for name, amount in asked.items() if GPU_RESOURCE.match(str(name))]
    # The API server refuses what is no whole number; until then it counts for nothing.
    return sum(int(count) for count in counts if count.isdecimal())


def _inject(container: dict[str, Any], injection: Injection) -> None:
    own = container.get("env") or []
    reserved = sorted(str(each.get("name")) for each in own if str(each.get("name")).startswith(PREFIX))
    if reserved:
        raise TemplateError(
            f"container {container.get('name')} sets {reserved[0]}: variables {PREFIX}… are set by Wattloop, which "
            "edits none of yours; remove it or give it another name"
        )
    # First, so that the user's own variables and args may use $(WATTLOOP_BATCH_SIZE).
    # $$( stands for $( itself: what a parameter's value says is no reference to another variable.
    given = [{"name": name, "value": value.replace("$(", "$$(")} for name, value in injection.variables.items()]
    container["env"] = given + list(own)
    mounts = [{"name": volume["name"], **_mount(volume["name"], injection)} for volume in _volumes(injection)]
    if mounts:
        container["volumeMounts"] = [*(container.get("volumeMounts") or ()), *mounts]


def _mount(volume: str, injection: Injection) -> dict[str, Any]:
    path = REPORTING_FOLDER if volume == REPORTING_VOLUME else injection.agent_folder
    return {"mountPath": path, "readOnly": True}


def _volumes(injection: Injection) -> list[dict[str, Any]]:
    volumes: list[dict[str, Any]] = []
    if injection.reports:
        token = {"audience": AUDIENCE, "expirationSeconds": TOKEN_SECONDS, "path": "token"}
        sources: list[dict[str, Any]] = [{"serviceAccountToken": token}]
        if injection.certificate_authority:
            reference = {"fieldPath": f"metadata.annotations['{CERTIFICATE_AUTHORITY_ANNOTATION}']"}
            sources.append({"downwardAPI": {"items": [{"path": "ca.crt", "fieldRef": reference}]}})
        volumes.append({"name": REPORTING_VOLUME, "projected": {"sources": sources}})
    if injection.agent_folder:
        # Made where it is missing: a pod on a node without an agent trains all the same, unmeasured.
        host = {"path": injection.agent_folder, "type": "DirectoryOrCreate"}
        volumes.append({"name": AGENT_VOLUME, "hostPath": host})
    return volumes
