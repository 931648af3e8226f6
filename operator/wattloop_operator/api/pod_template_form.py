"""The types of what Wattloop reads and changes in a pod template, which the schema preserves as the user wrote it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from wattloop.printable import printable
from wattloop.wire.message_fields import shown

NAMED = {"name": str}
CONTAINER = {"name": str, "env": [NAMED], "volumeMounts": [{"mountPath": str}]}
# A mapping names the fields of an object that are checked, a list has the form of its items.
POD_TEMPLATE: Mapping[str, Any] = {
    "metadata": {"labels": {}, "annotations": {}},
    "spec": {"containers": [CONTAINER], "initContainers": [{}], "volumes": [NAMED]},
}
JOB: Mapping[str, Any] = {"parallelism": int, "completions": int, "completionMode": str}
EXPECTED = {str: "a string", int: "a whole number"}

Path = tuple[str | int, ...]


@dataclass(frozen=True)
class WrongType:
    """A value of another type than Kubernetes has at its place.

    Attributes:
        path: The keys to the value, from the template.
        value: The value.
        expected: The type, as text.
    """

    path: Path
    value: object
    expected: str

    def __str__(self) -> str:
        place = "".join(f"[{step}]" if isinstance(step, int) else printable(f".{step}", 80) for step in self.path)
        return f"spec.template{place}: found {shown(self.value)}, expected {self.expected}"


def wrong_type(template: Any) -> WrongType | None:
    """The first value of a template of JSON types, or of a pod template in it, that has a wrong type; None if none has.

    Example:
        >>> pod = {"spec": {"containers": [{"name": "train", "env": "DEBUG=1"}]}}
        >>> str(wrong_type({"job": {"template": pod}}))
        "spec.template.job.template.spec.containers[0].env: found 'DEBUG=1', expected a list"
    """
    job, pods = template.get("job"), dict(_pod_templates(template))
    if job is not None and ("job", "template") not in pods:
        return WrongType(("job", "template"), job.get("template"), "an object whose spec has containers")
    forms: list[tuple[Path, Any, Any]] = [] if job is None else [(("job",), job, JOB)]
    forms += [(path, pod, POD_TEMPLATE) for path, pod in pods.items()]
    return next((wrong for path, value, form in forms for wrong in _wrong(path, value, form)), None)


def _pod_templates(value: Any) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Each object inside a value of JSON types whose spec has containers, with the keys to it."""
    waiting: list[tuple[Path, Any]] = [((), value)]
    while waiting:
        path, each = waiting.pop()
        if isinstance(each, list):
            waiting.extend(((*path, index), part) for index, part in enumerate(each))
        elif isinstance(each, dict):
            spec = each.get("spec")
            if isinstance(spec, dict) and spec.get("containers") is not None:
                yield path, each
            else:
                waiting.extend(((*path, key), part) for key, part in each.items())


def _wrong(path: Path, value: Any, form: Any) -> Iterator[WrongType]:
    if isinstance(form, type):
        if type(value) is not form:
            yield WrongType(path, value, EXPECTED[form])
    elif isinstance(form, list):
        if not isinstance(value, list):
            yield WrongType(path, value, "a list")
            return
        for index, item in enumerate(value):
            yield from _wrong((*path, index), item, form[0])
    elif not isinstance(value, dict):
        yield WrongType(path, value, "an object")
    else:
        # As at the API server, null is no value.
        for name, inner in form.items():
            if value.get(name) is not None:
                yield from _wrong((*path, name), value[name], inner)
