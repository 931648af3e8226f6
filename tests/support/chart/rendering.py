"""The objects that `helm template` renders: by kind and component, and values at places in them."""

import json
import re
from pathlib import Path
from typing import Any

import yaml

from support.control_plane.chart import CHART
from support.control_plane.commands import ClusterCommand

Object = dict[str, Any]
TO_LOOK_AT = f"--values={Path(__file__).with_name('without_cluster.yaml')}"
"""Before other values: those with which no rendering needs a cluster."""
ABSENT = object()
"""In place of a value: there is nothing at that place."""


def render(helm: ClusterCommand, values: dict[str, Any], tmp_path: Any) -> list[Object]:
    """The objects of a release `probe` in the namespace `home`."""
    file = tmp_path / "values.json"
    file.write_text(json.dumps(values))
    text = helm("template", "probe", str(CHART), TO_LOOK_AT, f"--values={file}", namespace="home")
    return documents(text)


def documents(text: str) -> list[Object]:
    """The objects of a text of YAML, by libyaml: the definitions take a quarter of a second without it."""
    return [item for item in yaml.load_all(text, yaml.CSafeLoader) if item is not None]


def nested(path: str, value: Any, others: dict[str, Any] | None = None) -> dict[str, Any]:
    """`{"a.b": 1}` as `{"a": {"b": 1}}`, with `others` given in the same way."""
    values: dict[str, Any] = {}
    for dotted, content in {**(others or {}), path: value}.items():
        *parents, last = dotted.split(".")
        inner = values
        for parent in parents:
            inner = inner.setdefault(parent, {})
        inner[last] = content
    return values


def chosen(objects: list[Object], selector: str) -> list[Object]:
    """Those of a `Kind` or of a `Kind/component`."""
    kind, _, component = selector.partition("/")
    return [
        item
        for item in objects
        if item["kind"] == kind
        and component in ("", item["metadata"].get("labels", {}).get("app.kubernetes.io/component"))
    ]


def at(item: Any, place: str) -> Any:
    """The value at a place such as `spec.containers[operator].env[WATTLOOP_DATABASE].value`; ABSENT if there is none.

    In brackets stands an element's index, its name, or of arguments the option; a dot of a name is written `\\.`.
    """
    for key, element in re.findall(r"((?:\\.|[^.\[\]\\])+)|\[([^\]]+)\]", place):
        if key:
            item = item.get(key.replace("\\", ""), ABSENT) if isinstance(item, dict) else ABSENT
        elif not isinstance(item, list):
            return ABSENT
        elif element.isdigit():
            item = item[int(element)] if int(element) < len(item) else ABSENT
        elif element.startswith("--"):
            item = next((each for each in item if str(each).startswith(f"{element}=")), ABSENT)
        else:
            item = next((each for each in item if each.get("name") == element), ABSENT)
    return item
