"""The place of a process among the processes of a distributed run, as its launcher set it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

MAX_INTEGER_CHARACTERS = 20
# Number of pods of an indexed Job, or of all Jobs of a JobSet, which Kubernetes does not tell them.
PODS_VARIABLE = "WATTLOOP_PODS"
INDEX_VARIABLE = "JOB_COMPLETION_INDEX"
# Each Job of a JobSet counts its own pods from 0: number of the pods of the groups before this one, index of this
# Job in its group, number of pods of each Job of the group.
FIRST_POD_VARIABLE = "WATTLOOP_FIRST_POD"
JOB_INDEX_VARIABLE = "WATTLOOP_JOB_INDEX"
JOB_PODS_VARIABLE = "WATTLOOP_JOB_PODS"


@dataclass(frozen=True)
class ProcessRank:
    """The place of a process in a distributed run.

    Attributes:
        rank: Its number, from 0; only the metric of rank 0 counts.
        ranks: Number of processes; 1 if there is no other, or if the launcher does not say.
        local_rank: Its number among the processes of its node or pod; None if there is one, or if the
            launcher does not say.
        local_ranks: Number of processes of its node or pod; None if the launcher does not say.
    """

    rank: int = 0
    ranks: int = 1
    local_rank: int | None = None
    local_ranks: int | None = None


@dataclass(frozen=True)
class _Variables:
    """The variables of one launcher; the rank decides whether it is the launcher of this process."""

    rank: str
    ranks: str
    local_rank: str
    local_ranks: str


# torchrun and those that follow it (Accelerate, DeepSpeed, Kubeflow), Open MPI, and the pods of an indexed
# Job. A pod may have several of them: torchrun in a pod of an indexed Job numbers the processes.
LAUNCHERS = (
    _Variables("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    _Variables(
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    _Variables(INDEX_VARIABLE, PODS_VARIABLE, "", ""),
)


def process_rank(variables: Mapping[str, str]) -> ProcessRank:
    """The place that the launcher gave to the process with these environment variables.

    Values that are no whole numbers count as absent: a launcher's variable may mean something else.

    Example:
        >>> process_rank({"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"})
        ProcessRank(rank=3, ranks=4, local_rank=1, local_ranks=2)
        >>> process_rank({})
        ProcessRank(rank=0, ranks=1, local_rank=None, local_ranks=None)
    """
    for names in LAUNCHERS:
        rank = _number(variables, names.rank)
        if rank is None:
            continue
        if names.rank == INDEX_VARIABLE:
            rank += _pods_before(variables)
        ranks = max(_number(variables, names.ranks) or 1, rank + 1)
        return ProcessRank(rank, ranks, _number(variables, names.local_rank), _number(variables, names.local_ranks))
    return ProcessRank()


def _pods_before(variables: Mapping[str, str]) -> int:
    """How many pods the Jobs before this one have; 0 outside of a JobSet."""
    first, job, pods = (
        _number(variables, name) or 0 for name in (FIRST_POD_VARIABLE, JOB_INDEX_VARIABLE, JOB_PODS_VARIABLE)
    )
    return first + job * pods


def _number(variables: Mapping[str, str], name: str) -> int | None:
    text = variables.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < MAX_INTEGER_CHARACTERS else None
