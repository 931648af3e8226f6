"""The rank of a process, by the variables of its launcher."""

import pytest

from wattloop.wire.launcher import ProcessRank, process_rank

TORCHRUN = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "1",
}


@pytest.mark.parametrize(
    ("variables", "place"),
    [
        ({}, ProcessRank()),
        (TORCHRUN, ProcessRank(5, 8, 1, 4)),
        (OPEN_MPI, ProcessRank(3, 4, 0, 1)),
        ({"JOB_COMPLETION_INDEX": "2", "WATTLOOP_PODS": "4"}, ProcessRank(2, 4)),
        # The second pod of the third Job of a group in a JobSet, after a group of one pod.
        (
            {"JOB_COMPLETION_INDEX": "1", "WATTLOOP_PODS": "7", "WATTLOOP_FIRST_POD": "1"}
            | {"WATTLOOP_JOB_INDEX": "2", "WATTLOOP_JOB_PODS": "2"},
            ProcessRank(6, 7),
        ),
        # torchrun in a pod of an indexed Job numbers the processes.
        ({"JOB_COMPLETION_INDEX": "1", "WATTLOOP_PODS": "2", **TORCHRUN}, ProcessRank(5, 8, 1, 4)),
        # Without a number of processes there are at least those up to this one.
        ({"JOB_COMPLETION_INDEX": "2"}, ProcessRank(2, 3)),
        ({"RANK": "captain", "WORLD_SIZE": "8"}, ProcessRank()),
        ({"RANK": "1", "WORLD_SIZE": "many", "LOCAL_RANK": "-1"}, ProcessRank(1, 2)),
        ({"RANK": "9" * 30}, ProcessRank()),
    ],
)
def test_the_launcher_places_a_process(variables: dict[str, str], place: ProcessRank) -> None:
    assert process_rank(variables) == place
