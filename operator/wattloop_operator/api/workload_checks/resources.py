"""Resources that a container requests, and their limits."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from wattloop_operator.api.checks.manifest_problem import Path, format_value
from wattloop_operator.api.workload_checks.formats import (
    EXPECTED_QUALIFIED,
    Finding,
    is_qualified,
    quantity,
    wrong,
)

OF_CONTAINERS = frozenset({"cpu", "memory", "ephemeral-storage"})
OF_PODS = frozenset({"cpu", "memory"})
HUGE_PAGES = "hugepages-"
# The domain of resources of which nodes may promise more than they have.
OWN_DOMAIN = "kubernetes.io/"
EXPECTED_RESOURCE = "cpu, memory, ephemeral-storage, or a resource with a domain such as nvidia.com/gpu"


def wrong_resources(path: Path, resources: dict[str, Any], claims: Collection[str]) -> Iterator[Finding]:
    """What the API server refuses of the resources of a container.

    Args:
        path: The keys to them.
        resources: The resources, whose fields have their types.
        claims: Names of the pod's claims.

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
