"""The place of a process among the processes of a distributed run, as its launcher set it."""

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


# Variables of rank, ranks, local rank and local ranks; the rank decides whether it is the launcher of this process.
# torchrun and those that follow it (Accelerate, DeepSpeed, Kubeflow), Open MPI, and the pods of an indexed Job. A pod
# may have several of them: torchrun in a pod of an indexed Job numbers the processes.
OPEN_MPI = "OMPI_COMM_WORLD"
LAUNCHERS = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    (f"{OPEN_MPI}_RANK", f"{OPEN_MPI}_SIZE", f"{OPEN_MPI}_LOCAL_RANK", f"{OPEN_MPI}_LOCAL_SIZE"),
    (INDEX_VARIABLE, PODS_VARIABLE, "", ""),
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
    for variable, *others in LAUNCHERS:
        rank = _number(variables, variable)
        if rank is None:
            continue
        if variable == INDEX_VARIABLE:
            # Of a JobSet, the pods of the Jobs before this one come first.
            first, job, pods = (
                _number(variables, name) or 0 for name in (FIRST_POD_VARIABLE, JOB_INDEX_VARIABLE, JOB_PODS_VARIABLE)
            )
            rank += first + job * pods
        ranks, local_rank, local_ranks = (_number(variables, name) for name in others)
        return ProcessRank(rank, max(ranks or 1, rank + 1), local_rank, local_ranks)
    return ProcessRank()


def _number(variables: Mapping[str, str], name: str) -> int | None:
    text = variables.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < MAX_INTEGER_CHARACTERS else None
