"""Misspelt fields of a template's pods and containers, and references to misspelt variables of Wattloop.

The API server drops an unknown field, and leaves an unknown reference as it is: the training would run without its
arguments, or with the text ``$(WATTLOOP_BATCHSIZE)`` for its batch size. Only what is close to a known name counts,
since a later version may have further ones.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from wattloop.gpus.process_gpus import GPUS_VARIABLE
from wattloop.wire.environment import PREFIX, variable_names
from wattloop_operator.api.template_checks import SPEC, Path, WrongValue, pod_templates

# The fields of a pod's spec, so that none of them counts as a misspelling of another.
POD_FIELDS = frozenset(
    {
        "activeDeadlineSeconds",
        "affinity",
        "automountServiceAccountToken",
        "containers",
        "dnsConfig",
        "dnsPolicy",
        "enableServiceLinks",
        "ephemeralContainers",
        "evictionResponders",
        "hostAliases",
        "hostIPC",
        "hostNetwork",
        "hostPID",
        "hostUsers",
        "hostname",
        "hostnameOverride",
        "imagePullSecrets",
        "initContainers",
        "nodeName",
        "nodeSelector",
        "os",
        "overhead",
        "preemptionPolicy",
        "priority",
        "priorityClassName",
        "readinessGates",
        "resourceClaims",
        "resources",
        "restartPolicy",
        "runtimeClassName",
        "schedulerName",
        "schedulingGates",
        "schedulingGroup",
        "securityContext",
        "serviceAccount",
        "serviceAccountName",
        "setHostnameAsFQDN",
        "shareProcessNamespace",
        "subdomain",
        "terminationGracePeriodSeconds",
        "tolerations",
        "topologySpreadConstraints",
        "volumes",
    }
)
# The fields of a container, and of a variable, of which each changes what runs.
CONTAINER_FIELDS = ("name", "image", "command", "args", "env", "envFrom", "resources", "volumeMounts")
VARIABLE_FIELDS = ("name", "value", "valueFrom")
# An escaped $$(NAME) matches without a name. Names of parameters are the user's own.
REFERENCE = re.compile(rf"\$\$|\$\(({PREFIX}(?!PARAM_)[A-Za-z0-9_]*)\)")
SIMILARITY = 0.8
MAX_MISSPELT_CHARACTERS = 60


def misspelt(template: Any) -> WrongValue | None:
    """The first misspelt field of a pod or container, or reference to a misspelt variable of Wattloop; else None.

    Args:
        template: A template of JSON types without a `wrong_type`.

    Example:
        >>> container = {"name": "train", "arg": ["--epochs=3"]}
        >>> str(misspelt({"spec": {"template": {"spec": {"containers": [container]}}}}))
        'spec.template.spec.template.spec.containers[0].arg: found a list, expected args (did you mean it?)'
    """
    for inner, pod in pod_templates(template["spec"]):
        path = (*SPEC, *inner)
        in_pod = next(_misspelt_of(((*path, "spec"), pod["spec"], POD_FIELDS)), None)
        if in_pod is not None:
            return in_pod
        for index, container in enumerate(pod["spec"]["containers"]):
            place: Path = (*path, "spec", "containers", index)
            found = next(
                itertools.chain(_misspelt_fields(place, container), _misspelt_references(place, container)), None
            )
            if found is not None:
                return found
    return None


def _misspelt_fields(place: Path, container: Mapping[str, Any]) -> Iterator[WrongValue]:
    variables = (
        ((*place, "env", index), each, VARIABLE_FIELDS) for index, each in enumerate(container.get("env") or ())
    )
    yield from _misspelt_of((place, container, CONTAINER_FIELDS), *variables)


def _misspelt_of(*objects: tuple[Path, Mapping[str, Any], Collection[str]]) -> Iterator[WrongValue]:
    """The misspelt fields of objects, each with its path and the fields that it may have."""
    for path, value, known in objects:
        for name in value:
            close = _close(name, known)
            if close and close not in value:
                yield WrongValue((*path, name), value[name], f"{close} (did you mean it?)")


def _misspelt_references(place: Path, container: Mapping[str, Any]) -> Iterator[WrongValue]:
    texts = [
        ((*place, name, index), text)
        for name in ("command", "args")
        for index, text in enumerate(container.get(name) or ())
    ]
    texts += [
        ((*place, "env", index, "value"), each.get("value")) for index, each in enumerate(container.get("env") or ())
    ]
    known = variable_names() | {GPUS_VARIABLE}
    for path, text in texts:
        for match in REFERENCE.finditer(text or ""):
            close = _close(match[1] or "", known)
            if close:
                yield WrongValue(path, text, f"$({close}) (did you mean it?)")


def _close(name: str, known: Collection[str]) -> str:
    """The known name that an unknown one is close to; empty for none."""
    if name in known or len(name) > MAX_MISSPELT_CHARACTERS:
        return ""
    found = difflib.get_close_matches(name, known, n=1, cutoff=SIMILARITY) or [
        each for each in known if each.lower() == name.lower()
    ]
    return found[0] if found else ""
