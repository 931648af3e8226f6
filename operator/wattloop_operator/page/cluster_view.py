"""Builds the view of the GPUs: their power, the limits that are held, by which attempt or pod, and until when."""

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

from wattloop_operator.api.gpu_node import GPUNode, GPUNodeStatus, NodeGPU
from wattloop_operator.domain.quantities import optional_float
from wattloop_operator.history.gpu_holders import GpuLine
from wattloop_operator.page.job_source import JobSource
from wattloop_operator.page.job_view import page_of
from wattloop_operator.page.views import ClusterView, NodeLine, OtherGpuLine, ReportedNodeLine
from wattloop_operator.reconcile.energy.gpu_node_status import MAX_AGE

GPUS_OF_PAGE = 100


def cluster_view(source: JobSource, now: datetime, page: int = 1) -> ClusterView:
    """One page of the GPUs of running attempts and then of the others, and the sums of all of them by node.

    Values that are older than `MAX_AGE` are not known.
    """
    version, missing, gpus = source.version(), source.missing(), source.gpus()
    gpu_nodes = [_known(each, now) for each in gpus.nodes]
    # Uid of a pod and UUID of its GPU, "" for all of them, that the attempts have lines of.
    shown_pods = {(uid, each.gpu) for each in gpus.held for uid in gpus.pods.get((each.namespace, each.attempt), ())}
    lines: list[GpuLine | OtherGpuLine] = [*gpus.held, *_others(gpu_nodes, shown_pods)]
    page, pages, shown = page_of(lines, GPUS_OF_PAGE, page)
    return ClusterView(
        version=version,
        command=source.command(("history", "--gpus")),
        missing=[*missing, *gpus.missing],
        unknown=gpus.held_unknown,
        nodes=_nodes(gpus.held),
        reported_unknown=gpus.nodes_unknown,
        reported_nodes=[_reported(each) for each in gpu_nodes],
        total=len(lines),
        page=page,
        pages=pages,
        gpus=[each for each in shown if isinstance(each, GpuLine)],
        other_gpus=[each for each in shown if isinstance(each, OtherGpuLine)],
    )


def _known(gpu_node: GPUNode, now: datetime) -> GPUNode:
    """The node with what is still known of it: of old values, which GPUs it had."""
    status = gpu_node.status
    if status.last_report_time is not None and now - status.last_report_time < MAX_AGE:
        return gpu_node
    gpus = tuple(NodeGPU(uuid=each.uuid, product=each.product) for each in status.gpus)
    old = GPUNodeStatus(last_report_time=status.last_report_time, gpu_count=status.gpu_count, gpus=gpus)
    return gpu_node.model_copy(update={"status": old})


def _has_line(gpu: NodeGPU, shown: Collection[tuple[str, str]]) -> bool:
    """Whether the attempts have lines of all its holders. What an attempt says alone would hide GPUs of others."""
    return 0 < len(gpu.holders) == gpu.pods and all(
        (holder.uid, gpu.uuid) in shown or (holder.uid, "") in shown for holder in gpu.holders
    )


def _reported(gpu_node: GPUNode) -> ReportedNodeLine:
    status = gpu_node.status
    return ReportedNodeLine(
        node=gpu_node.metadata.name,
        gpus=len(status.gpus),
        free_gpus=status.free_gpus,
        power_watts=optional_float(status.power_watts),
        free_power_watts=optional_float(status.free_power_watts),
        reported_at=status.last_report_time,
    )


def _others(gpu_nodes: Iterable[GPUNode], shown: Collection[tuple[str, str]]) -> list[OtherGpuLine]:
    """The GPUs that are not among those of the attempts; free ones first, since their power is for nothing."""
    found = [
        OtherGpuLine(
            gpu=gpu.uuid,
            node=each.metadata.name,
            product=gpu.product or "",
            pods=gpu.pods,
            holders=[f"{holder.namespace}/{holder.pod}" for holder in gpu.holders],
            power_watts=optional_float(gpu.power_watts),
            limit_watts=optional_float(gpu.limit_watts),
            max_limit_watts=optional_float(gpu.max_limit_watts),
            reported_at=each.status.last_report_time,
        )
        for each in gpu_nodes
        for gpu in each.status.gpus
        if not _has_line(gpu, shown)
    ]
    return sorted(found, key=lambda line: line.pods != 0)


def _nodes(gpus: Iterable[GpuLine]) -> list[NodeLine]:
    """The sums of each node. A GPU of which only its attempt's nodes are known is in none of them."""
    known: defaultdict[str, list[GpuLine]] = defaultdict(list)
    partial_attempts: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
    for each in gpus:
        if len(each.nodes) == 1:
            known[each.node].append(each)
        else:
            for name in each.nodes:
                partial_attempts[name].add((each.namespace, each.attempt))
    names = sorted(known.keys() | partial_attempts.keys())
    return [_node(name, known.get(name, ()), len(partial_attempts.get(name, ()))) for name in names]


def _node(name: str, gpus: Sequence[GpuLine], partial_attempts: int) -> NodeLine:
    recent = _sum_if_known([each.recent_power_watts for each in gpus])
    limits = [None if each.limit_watts is None else each.limit_watts * each.gpus for each in gpus]
    return NodeLine(
        node=name,
        gpus=sum(each.gpus for each in gpus),
        mean_power_watts=_sum_if_known([each.mean_power_watts for each in gpus]),
        recent_power_watts=recent,
        recent_until=None if recent is None else min(each.recent_until for each in gpus if each.recent_until),
        limit_watts=_sum_if_known(limits),
        partial_attempts=partial_attempts,
    )


def _sum_if_known(values: Sequence[float | None]) -> float | None:
    """The sum; None without a value, or if one is not known, so that no sum of a part is taken for the whole."""
    known = [each for each in values if each is not None]
    return math.fsum(known) if known and len(known) == len(values) else None
