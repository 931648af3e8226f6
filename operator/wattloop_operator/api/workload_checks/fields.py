"""Fields of a Job and its pods: unknown, misspelt and missing ones, and values of a wrong type, at every level.

The API server drops an unknown field, and leaves an unknown reference as it is: the training would run without its
arguments, or with the text ``$(WATTLOOP_BATCHSIZE)`` for its batch size. The operator refuses such a template; only
what is close to a known name counts for it, since a later version may have further ones.
"""

import difflib
import itertools
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from wattloop.gpus.process_gpus import GPUS_VARIABLE
from wattloop.wire.environment import PREFIX, variable_names
from wattloop_operator.api.checks.manifest_problem import Path, closest, format_path, found_text
from wattloop_operator.api.template_checks import SPEC, WrongValue, pod_templates
from wattloop_operator.api.workload_checks.formats import Finding, expected_quantity, quantity, wrong
from wattloop_operator.api.workload_checks.job_types import TABLE, VERSION

# Fields of a later version than that of the table, which Kubernetes' own client knows. Their values are not checked.
LATER_FIELDS = {
    "ClusterTrustBundleProjection": ("user",),
    "ConfigMapVolumeSource": ("defaultUser",),
    "DownwardAPIVolumeFile": ("user",),
    "DownwardAPIVolumeSource": ("defaultUser",),
    "EmptyDirVolumeSource": ("mode",),
    "GRPCAction": ("mode",),
    "HTTPGetAction": ("protocol",),
    "JobSpec": ("scheduling",),
    "KeyToPath": ("user",),
    "PodCertificateProjection": ("user",),
    "PodSpec": ("evictionResponders",),
    "ProjectedVolumeSource": ("defaultUser",),
    "SecretVolumeSource": ("defaultUser",),
    "ServiceAccountTokenProjection": ("user",),
    "VolumeMount": ("bindMountOptions",),
}
# What the table calls required, and the API server accepts without a value.
NOT_REQUIRED = frozenset({("HTTPHeader", "value"), ("Sysctl", "value"), ("PodFailurePolicy", "rules")})
# What the table does not call required, and no Job can be without.
ALSO_REQUIRED = frozenset({("PodTemplateSpec", "spec")})
# Choices that Kubernetes does not publish.
CHOICES = {
    ("Container", "restartPolicy"): "Always|Never|OnFailure",
    ("LabelSelectorRequirement", "operator"): "DoesNotExist|Exists|In|NotIn",
    ("PodFailurePolicyOnPodConditionsPattern", "status"): "False|True|Unknown",
    ("PodOS", "name"): "linux|windows",
    ("ContainerResizePolicy", "restartPolicy"): "NotRequired|RestartContainer",
    ("VolumeMount", "recursiveReadOnly"): "Disabled|Enabled|IfPossible",
}
# Of these, an empty text is no choice; of others, it means the default.
NEVER_EMPTY = frozenset({"completionMode", "podReplacementPolicy", "mountPropagation", "preemptionPolicy"})
INTEGER_BITS = {"int32": 32, "int64": 64}
# The fields of a container, and of a variable, of which each changes what runs.
CONTAINER_FIELDS = ("name", "image", "command", "args", "env", "envFrom", "resources", "volumeMounts")
VARIABLE_FIELDS = ("name", "value", "valueFrom")
# An escaped $$(NAME) matches without a name. Names of parameters are the user's own.
REFERENCE = re.compile(rf"\$\$|\$\(({PREFIX}(?!PARAM_)[A-Za-z0-9_]*)\)")
SIMILARITY = 0.8
MAX_MISSPELT_CHARACTERS = 60


@dataclass(frozen=True)
class FieldType:
    """The type of a field.

    Attributes:
        text: The type, as the table has it.
        required: Whether an object lacks something without it.
    """

    text: str
    required: bool


@cache
def fields_of(name: str) -> dict[str, FieldType]:
    """The fields of a type of the table; empty for a type without fields."""
    return _types().get(name, {})


@cache
def _types() -> dict[str, dict[str, FieldType]]:
    types: dict[str, dict[str, FieldType]] = {}
    for entry in re.split(r"\n(?=\S)", TABLE.strip()):
        name, *fields = entry.split()
        types[name] = {}
        for each in fields:
            field, _, text = each.partition(":")
            is_required = text.endswith("!") and (name, field) not in NOT_REQUIRED
            is_required = is_required or (name, field) in ALSO_REQUIRED
            types[name][field] = FieldType(CHOICES.get((name, field), text.removesuffix("!")), is_required)
    return types


def wrong_fields(path: Path, value: Any, name: str, above: tuple[tuple[str, Path], ...] = ()) -> Iterator[Finding]:
    """What a value has that a type of the table does not allow.

    Args:
        path: The keys to the value.
        value: The value, of JSON types.
        name: The name of the type.
        above: The types of the objects around it, with their paths.

    Example:
        >>> [each.expected for each in wrong_fields((), {"containers": [{"name": "a", "Image": "b"}]}, "PodSpec")]
        ['image (did you mean it?)']
    """
    if not isinstance(value, dict):
        yield wrong(path, value, "an object")
        return
    fields = fields_of(name)
    if not fields:
        return
    around = (*above, (name, path))
    for field, part in value.items():
        if field in fields:
            if part is not None:
                yield from _wrong_value((*path, field), part, fields[field].text, around)
        elif field not in LATER_FIELDS.get(name, ()):
            yield Finding((*path, field), "an unknown field", _meant(field, name, value, around))
    for field, each in fields.items():
        if each.required and value.get(field) in (None, "", []):
            yield Finding(path, f"no {field}", field)


def _wrong_value(path: Path, value: Any, kind: str, above: tuple[tuple[str, Path], ...]) -> Iterator[Finding]:
    if kind.startswith("["):
        if not isinstance(value, list):
            yield wrong(path, value, "a list")
            return
        for index, item in enumerate(value):
            yield from _wrong_value((*path, index), item, kind[1:-1], above)
    elif kind.startswith("{"):
        if not isinstance(value, dict):
            yield wrong(path, value, "an object")
            return
        for key, part in value.items():
            # A null is an empty text, but no quantity.
            if part is not None or kind != "{string}":
                yield from _wrong_value((*path, key), part, kind[1:-1], above)
    elif kind in _types():
        yield from wrong_fields(path, value, kind, above)
    else:
        expected = _expected(str(path[-1]), value, kind)
        if expected:
            yield Finding(path, found_text(value, "type"), expected)


def _expected(field: str, value: Any, kind: str) -> str:
    """What a scalar of this type would be, in place of this value; empty if it is one."""
    is_whole = isinstance(value, int | float) and not isinstance(value, bool) and float(value).is_integer()
    bits = INTEGER_BITS.get(kind, 64)
    bound = 2 ** (bits - 1)
    quoted = "" if isinstance(value, list | dict) else ", in quotes"
    scalars = {
        "boolean": (isinstance(value, bool), "true or false, without quotes"),
        "int32": (is_whole and -bound <= value < bound, f"a whole number of {bits} bits, without quotes"),
        "IntOrString": (is_whole or isinstance(value, str), "a whole number or a string"),
        "Quantity": (quantity(value) is not None, expected_quantity(value)),
        "string": (isinstance(value, str), f"a string{quoted}"),
    }
    scalars |= {"int64": scalars["int32"], "Time": scalars["string"]}
    if kind in scalars:
        is_accepted, expected = scalars[kind]
        return "" if is_accepted else expected
    choices = kind.split("|")
    if value in choices or (value == "" and field not in NEVER_EMPTY):
        return ""
    close = closest(value, choices) if isinstance(value, str) else None
    return f"one of {', '.join(choices)}" + (f" (did you mean {close}?)" if close else "")


def _meant(field: str, name: str, siblings: dict[str, Any], around: tuple[tuple[str, Path], ...]) -> str:
    """What was probably meant by an unknown field: one of its object, or of an object around it."""
    known = fields_of(name)
    same = next((each for each in known if each.lower() == field.lower()), None)
    if same is not None and same not in siblings:
        return f"{same} (did you mean it?)"
    for other, path in reversed(around[:-1]):
        if field in fields_of(other):
            return f"it at {format_path(('spec', 'template', *path, field))} (is it misplaced?)"
    for inner, kind in known.items():
        if field in fields_of(kind.text):
            return f"it in {inner} (is it misplaced?)"
        # The spec of a Job's pods.
        if inner == "template" and field in fields_of("PodSpec"):
            return "it in template.spec (is it misplaced?)"
    close = closest(field, [each for each in known if each not in siblings])
    return f"{close} (did you mean it?)" if close else f"a field that a {name} of Kubernetes {VERSION} has"


def misspelt(template: Any) -> WrongValue | None:
    """The first misspelt field of a pod or container, or reference to a misspelt variable of Wattloop; else None.

    Args:
        template: A template of JSON types without a `wrong_type`.

    Example:
        >>> container = {"name": "train", "arg": ["--epochs=3"]}
        >>> str(misspelt({"spec": {"template": {"spec": {"containers": [container]}}}}))
        'spec.template.spec.template.spec.containers[0].arg: found a list, expected args (did you mean it?)'
    """
    # Those of a later version are known, too, so that none counts as a misspelling of another.
    fields = {*fields_of("PodSpec"), *LATER_FIELDS["PodSpec"]}
    for inner, pod in pod_templates(template["spec"]):
        path = (*SPEC, *inner)
        in_pod = next(_misspelt_of(((*path, "spec"), pod["spec"], fields)), None)
        if in_pod is not None:
            return in_pod
        for index, container in enumerate(pod["spec"]["containers"]):
            place: Path = (*path, "spec", "containers", index)
            variables = (
                ((*place, "env", number), each, VARIABLE_FIELDS)
                for number, each in enumerate(container.get("env") or ())
            )
            references = _misspelt_references(place, container)
            found = next(
                itertools.chain(_misspelt_of((place, container, CONTAINER_FIELDS), *variables), references), None
            )
            if found is not None:
                return found
    return None


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
    if name in known or len(name) > MAX_MISSPELT_CHARACTERS:
        return ""
    found = difflib.get_close_matches(name, known, n=1, cutoff=SIMILARITY) or [
        each for each in known if each.lower() == name.lower()
    ]
    return found[0] if found else ""
