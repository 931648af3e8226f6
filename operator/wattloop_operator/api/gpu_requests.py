"""The GPUs that containers of a template request: whole numbers, as Kubernetes has them of extended resources."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

GPU_RESOURCE = re.compile(r"^(nvidia|amd)\.com/(gpu|mig-.+)(\.shared)?$")
NUMBER = re.compile(r"[0-9]{1,4}")
MAX_GPUS_OF_CONTAINER = 1024
EXPECTED_GPUS = f"a whole number of GPUs from 0 to {MAX_GPUS_OF_CONTAINER}, without a suffix"


class GpuRequestError(ValueError):
    """A request of GPUs that is not a number of GPUs.

    Args:
        path: The keys to the value, from the container's resources or the template.
        value: The value.
    """

    def __init__(self, path: tuple[str | int, ...], value: object) -> None:
        self.path = path
        self.value = value
        super().__init__(f"{path[-1]}: expected {EXPECTED_GPUS}")


def requested_gpus(resources: object) -> int:
    """The number of GPUs that a container's resources request; a limit takes the place of a request.

    Raises:
        GpuRequestError: A quantity is not a number of GPUs.

    Example:
        >>> requested_gpus({"limits": {"nvidia.com/gpu": "8", "cpu": "500m"}})
        8
    """
    found: dict[str, int] = {}
    for path, value in _quantities(resources):
        number = int(value) if isinstance(value, str) and NUMBER.fullmatch(value) else value
        if type(number) is not int or not 0 <= number <= MAX_GPUS_OF_CONTAINER:
            raise GpuRequestError(path, value)
        found[path[-1]] = number
    return sum(found.values())


def gpu_request_error(template: Any) -> GpuRequestError | None:
    """The first request of a template of JSON types that is not a number of GPUs; None if there is none.

    Example:
        >>> gpu_request_error({"job": [{"resources": {"limits": {"nvidia.com/gpu": "1e30"}}}]}).path
        ('job', 0, 'resources', 'limits', 'nvidia.com/gpu')
    """
    waiting: list[tuple[tuple[str | int, ...], Any]] = [((), template)]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, list):
            waiting.extend(((*path, index), each) for index, each in enumerate(value))
        elif isinstance(value, Mapping):
            waiting.extend(((*path, key), each) for key, each in value.items())
            try:
                requested_gpus(value.get("resources"))
            except GpuRequestError as error:
                return GpuRequestError((*path, "resources", *error.path), error.value)
    return None


def _quantities(resources: object) -> Iterator[tuple[tuple[str, str], object]]:
    if not isinstance(resources, Mapping):
        return
    for part in ("requests", "limits"):
        quantities = resources.get(part)
        if isinstance(quantities, Mapping):
            yield from (((part, name), value) for name, value in quantities.items() if GPU_RESOURCE.match(str(name)))
