"""Builds the view of the GPUs: their power, the limits that are held, by which attempt and until when."""

from __future__ import annotations

import math
from collections.abc import Sequence
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
    page, pages = page_of(len(gpus), GPUS_OF_PAGE, page)
    return ClusterView(
        version=version,
        command=source.command(("history", "--gpus")),
        unknown=source.gpus_unknown,
        nodes=[_node(name, [each for each in gpus if each.node == name]) for name in sorted({g.node for g in gpus})],
        total=len(gpus),
        page=page,
        pages=pages,
        gpus=[GpuLine(**asdict(each)) for each in gpus[(page - 1) * GPUS_OF_PAGE : page * GPUS_OF_PAGE]],
    )


def _node(name: str, gpus: Sequence[HeldGpu]) -> NodeLine:
    limits = [None if each.limit_watts is None else each.limit_watts * each.gpus for each in gpus]
    return NodeLine(
        node=name,
        gpus=sum(each.gpus for each in gpus),
        mean_power_watts=_sum_if_known([each.mean_power_watts for each in gpus]),
        limit_watts=_sum_if_known(limits),
    )


def _sum_if_known(values: Sequence[float | None]) -> float | None:
    """The sum; None if a value is not known, so that no sum of a part is taken for the whole."""
    known = [each for each in values if each is not None]
    return math.fsum(known) if len(known) == len(values) else None
