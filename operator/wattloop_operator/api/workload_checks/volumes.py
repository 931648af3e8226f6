"""Volumes of a pod, and their sources."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from wattloop_operator.api.checks.manifest_problem import Path
from wattloop_operator.api.workload_checks.fields import fields_of
from wattloop_operator.api.workload_checks.formats import (
    CONFIG_KEY,
    EXPECTED_LABEL,
    EXPECTED_LOCAL_PATH,
    Finding,
    is_label,
    is_local_path,
    quantity,
    repeated,
    wrong,
)

MAX_MODE = 0o777
EXPECTED_MODE = "a mode from 0 to 0777 (511)"
EXPECTED_KEY = "letters, digits, -, _ and ."
MIN_TOKEN_SECONDS = 600
FIELDS_OF_FILES = frozenset({"metadata.name", "metadata.namespace", "metadata.uid", "metadata.labels"}) | {
    "metadata.annotations"
}


def wrong_volumes(path: Path, volumes: list[dict[str, Any]]) -> Iterator[Finding]:
    """What the API server refuses of the volumes of a pod, whose fields have their types."""
    yield from repeated(path, volumes, "name")
    for index, volume in enumerate(volumes):
        place: Path = (*path, index)
        if not is_label(volume["name"]):
            yield wrong((*place, "name"), volume["name"], EXPECTED_LABEL)
        # Without a source, a volume is an empty folder.
        sources = [name for name in fields_of("Volume") if name != "name" and volume.get(name) is not None]
        if len(sources) > 1:
            yield Finding(place, f"{' and '.join(sources)} of one volume", "one source, and a volume for each other")
        for name in sources:
            yield from _wrong_source((*place, name), name, volume[name])


def _wrong_source(path: Path, kind: str, source: dict[str, Any]) -> Iterator[Finding]:
    match kind:
        case "configMap":
            yield from _wrong_files(path, source, "name")
        case "secret":
            yield from _wrong_files(path, source, "secretName")
        case "downwardAPI":
            yield from _wrong_mode((*path, "defaultMode"), source.get("defaultMode"))
            yield from _wrong_downward(path, source)
        case "projected":
            yield from _wrong_mode((*path, "defaultMode"), source.get("defaultMode"))
            for index, each in enumerate(source.get("sources") or ()):
                yield from _wrong_projection((*path, "sources", index), each)
        case "hostPath" if ".." in source["path"].split("/"):
            yield wrong((*path, "path"), source["path"], "a path without ..")
        case "nfs" if not source["path"].startswith("/"):
            yield wrong((*path, "path"), source["path"], "an absolute path")
        case "emptyDir":
            size = quantity(source.get("sizeLimit") or 0)
            if size is not None and size < 0:
                yield wrong((*path, "sizeLimit"), source["sizeLimit"], "at least 0")
        case "ephemeral":
            yield from _wrong_claim(path, source.get("volumeClaimTemplate"))


def _wrong_claim(path: Path, template: dict[str, Any] | None) -> Iterator[Finding]:
    if template is None:
        yield Finding(path, "no volumeClaimTemplate", "volumeClaimTemplate")
        return
    spec, place = template["spec"], (*path, "volumeClaimTemplate", "spec")
    if not spec.get("accessModes"):
        yield Finding(place, "no accessModes", "accessModes, such as [ReadWriteOnce]")
    storage = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if storage is None:
        yield Finding(place, "no resources.requests.storage", "resources.requests.storage, such as 100Gi")
    elif (size := quantity(storage)) is not None and size <= 0:
        yield wrong((*place, "resources", "requests", "storage"), storage, "more than 0")


def _wrong_projection(path: Path, source: dict[str, Any]) -> Iterator[Finding]:
    kinds = [name for name, value in source.items() if value is not None]
    if len(kinds) > 1:
        yield Finding(path, f"{' and '.join(kinds)} of one source", "one of them, and a source for each other")
    for kind in kinds:
        place, value = (*path, kind), source[kind]
        if kind in ("configMap", "secret"):
            yield from _wrong_files(place, value, "name")
        elif kind == "downwardAPI":
            yield from _wrong_downward(place, value)
        elif kind == "serviceAccountToken":
            seconds = value.get("expirationSeconds")
            if seconds is not None and not MIN_TOKEN_SECONDS <= seconds < 2**32:
                yield wrong((*place, "expirationSeconds"), seconds, f"at least {MIN_TOKEN_SECONDS} seconds")
            if not is_local_path(value["path"]):
                yield wrong((*place, "path"), value["path"], EXPECTED_LOCAL_PATH)


def _wrong_files(path: Path, source: dict[str, Any], name: str) -> Iterator[Finding]:
    """What is wrong in a ConfigMap or Secret as a volume."""
    if not source.get(name):
        yield Finding(path, f"no {name}", name)
    yield from _wrong_mode((*path, "defaultMode"), source.get("defaultMode"))
    for index, item in enumerate(source.get("items") or ()):
        place: Path = (*path, "items", index)
        if not CONFIG_KEY.fullmatch(item["key"]):
            yield wrong((*place, "key"), item["key"], EXPECTED_KEY)
        yield from _wrong_file(place, item)


def _wrong_downward(path: Path, source: dict[str, Any]) -> Iterator[Finding]:
    for index, item in enumerate(source.get("items") or ()):
        place: Path = (*path, "items", index)
        yield from _wrong_file(place, item)
        field, resource = item.get("fieldRef"), item.get("resourceFieldRef")
        if (field is None) == (resource is None):
            yield Finding(place, "both" if field else "neither", "either fieldRef or resourceFieldRef")
        elif resource is not None and not resource.get("containerName"):
            yield Finding((*place, "resourceFieldRef"), "no containerName", "containerName")
        elif field is not None and field["fieldPath"].partition("[")[0] not in FIELDS_OF_FILES:
            yield wrong((*place, "fieldRef", "fieldPath"), field["fieldPath"], f"one of {_listed(FIELDS_OF_FILES)}")


def _wrong_file(path: Path, item: dict[str, Any]) -> Iterator[Finding]:
    if not is_local_path(item["path"]) or item["path"].startswith(".."):
        yield wrong((*path, "path"), item["path"], EXPECTED_LOCAL_PATH)
    yield from _wrong_mode((*path, "mode"), item.get("mode"))


def _wrong_mode(path: Path, mode: int | None) -> Iterator[Finding]:
    if mode is not None and not 0 <= mode <= MAX_MODE:
        yield wrong(path, mode, EXPECTED_MODE)


def _listed(names: frozenset[str]) -> str:
    return ", ".join(sorted(names))
