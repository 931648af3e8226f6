"""What there is to say as reports that are not too large: a pod's holdings always in one of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from wattloop.node_energy import MAX_POD_GPU_USAGES, PodGpuUsage


def pages(usages: Iterable[PodGpuUsage], most: int = MAX_POD_GPU_USAGES) -> list[tuple[PodGpuUsage, ...]]:
    """The holdings in pages of at most so many; one empty page where there are none.

    A pod is settled by a report that says of all its holdings that they have ended, so it is on one page. A pod with
    more holdings than a page has is cut: no real one has.

    Args:
        usages: What pods use and have used.
        most: How many a page has at most.

    Example:
        >>> [len(page) for page in pages([], most=2)]
        [0]
    """
    by_pod: dict[str, list[PodGpuUsage]] = {}
    for usage in usages:
        by_pod.setdefault(usage.pod_uid, []).append(usage)
    filled: list[list[PodGpuUsage]] = [[]]
    for pod in by_pod.values():
        for part in _parts(pod, most):
            if len(filled[-1]) + len(part) > most:
                filled.append([])
            filled[-1] += part
    return [tuple(page) for page in filled]


def _parts(pod: Sequence[PodGpuUsage], most: int) -> Iterable[Sequence[PodGpuUsage]]:
    return (pod[start : start + most] for start in range(0, len(pod), most))
