"""Builds the view of the GPUs: their power, the limits that are held, by which attempt and until when."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict

from wattloop_operator.history.gpu_holders import HeldGpu
from wattloop_operator.page.job_source import JobSource
from wattloop_operator.page.jobs_view import page_of
from wattloop_operator.page.views import ClusterView, GpuLine, NodeLine

GPUS_OF_PAGE = 100


def cluster_view(source: JobSource, page: int = 1) -> ClusterView:
    """One page of the GPUs of running attempts, and the sums of all of them by node.

    Args:
        source: The jobs.
        page: Number of the page, from 1; one beyond the last is the last.

    Raises:
        WattloopError: The jobs cannot be read.
    """
    version, gpus = source.version(), source.held_gpus()
    page, pages, shown = page_of(gpus, GPUS_OF_PAGE, page)
    return ClusterView(
        version=version,
        command=source.command(("history", "--gpus")),
        unknown=source.gpus_unknown,
        nodes=_nodes(gpus),
        total=len(gpus),
        page=page,
        pages=pages,
        gpus=[GpuLine(**asdict(each)) for each in shown],
    )


def _nodes(gpus: Iterable[HeldGpu]) -> list[NodeLine]:
    """The sums of each node. A GPU of which only its attempt's nodes are known is in none of them."""
    known: defaultdict[str, list[HeldGpu]] = defaultdict(list)
    partial_attempts: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
    for each in gpus:
        if len(each.nodes) == 1:
            known[each.node].append(each)
        else:
            for name in each.nodes:
                partial_attempts[name].add((each.namespace, each.attempt))
    names = sorted(known.keys() | partial_attempts.keys())
    return [_node(name, known.get(name, ()), len(partial_attempts.get(name, ()))) for name in names]


def _node(name: str, gpus: Sequence[HeldGpu], partial_attempts: int) -> NodeLine:
    limits = [None if each.limit_watts is None else each.limit_watts * each.gpus for each in gpus]
    return NodeLine(
        node=name,
        gpus=sum(each.gpus for each in gpus),
        mean_power_watts=_sum_if_known([each.mean_power_watts for each in gpus]),
        limit_watts=_sum_if_known(limits),
        partial_attempts=partial_attempts,
    )


def _sum_if_known(values: Sequence[float | None]) -> float | None:
    """The sum; None without a value, or if one is not known, so that no sum of a part is taken for the whole."""
    known = [each for each in values if each is not None]
    return math.fsum(known) if known and len(known) == len(values) else None
