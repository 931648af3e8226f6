"""The GPUs of a process, of those that its agent offers."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattloop.errors import UsageError
from wattloop.gpus.agent import GpuDescription
from wattloop.gpus.process_gpus import gpus_of_process, visible_gpus

UUIDS = [f"GPU-{letter * 8}-0000-0000-0000-00000000000{index}" for index, letter in enumerate("abcd")]
# In a pod the indices are those of the node.
OFFERED = [GpuDescription(uuid, "NVIDIA A100", 4 + index, None) for index, uuid in enumerate(UUIDS)]
RANK_1_OF_2 = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}


def indices(variables: dict[str, str], *, offered: int = 4, chosen: list[int | str] | None = None) -> list[int]:
    found = gpus_of_process(OFFERED[:offered][::-1], variables, chosen)
    return [UUIDS.index(gpu.uuid) for gpu in found]


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, [0, 1, 2, 3]),
        ({"CUDA_VISIBLE_DEVICES": "2"}, [2]),
        ({"CUDA_VISIBLE_DEVICES": "3, 1"}, [3, 1]),
        ({"CUDA_VISIBLE_DEVICES": ""}, []),
        ({"CUDA_VISIBLE_DEVICES": f"{UUIDS[1]},GPU-cc"}, [1, 2]),
        ({"CUDA_VISIBLE_DEVICES": f"MIG-{UUIDS[3]}/1/0"}, [3]),
        ({"CUDA_VISIBLE_DEVICES": "0", "WATTLOOP_GPUS": ",".join(UUIDS[:2])}, [0, 1]),
    ],
)
def test_cuda_visible_devices_names_the_gpus(variables: dict[str, str], expected: list[int]) -> None:
    assert indices(variables) == expected


def test_a_mig_device_without_the_name_of_its_gpu_is_clear_only_if_there_is_one_gpu() -> None:
    variables = {"CUDA_VISIBLE_DEVICES": "MIG-12345678-0000-0000-0000-000000000000"}
    assert indices(variables, offered=1) == [0]
    assert indices(variables, offered=2) == []


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        (RANK_1_OF_2, [1]),
        (RANK_1_OF_2 | {"CUDA_VISIBLE_DEVICES": "3,2"}, [2]),
        # The launcher gave each process a GPU of its own.
        (RANK_1_OF_2 | {"CUDA_VISIBLE_DEVICES": "3"}, [3]),
        # The only process of its node uses all GPUs.
        ({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}, [0, 1, 2, 3]),
        ({"JOB_COMPLETION_INDEX": "1", "WATTLOOP_PODS": "2"}, [0, 1, 2, 3]),
    ],
)
def test_a_local_rank_has_its_own_gpu(variables: dict[str, str], expected: list[int]) -> None:
    assert indices(variables) == expected


@settings(deadline=None)
@given(
    gpus=st.integers(0, 4),
    ranks=st.integers(1, 6),
    visible=st.none() | st.lists(st.integers(0, 5), max_size=5).filter(lambda named: len(named) != 1),
)
def test_no_two_local_ranks_have_the_same_gpu(gpus: int, ranks: int, visible: list[int] | None) -> None:
    named = {} if visible is None else {"CUDA_VISIBLE_DEVICES": ",".join(map(str, visible))}
    found = [
        index
        for rank in range(ranks)
        for index in indices(
            {"RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(ranks)}
            | named,
            offered=gpus,
        )
    ]
    assert len(set(found)) == len(found)


def test_a_script_chooses_its_gpus_by_index_or_uuid() -> None:
    assert indices(RANK_1_OF_2, chosen=[2, UUIDS[0], 2]) == [2, 0]


def test_a_gpu_that_is_not_offered_is_an_error_that_lists_the_others() -> None:
    with pytest.raises(UsageError, match=rf"GPU 4 is not offered to this process; the GPUs are: 0 \({UUIDS[0]}\), 1"):
        indices({}, chosen=[4])


GPUS = ["GPU-1a", "GPU-1b", "GPU-2"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, GPUS),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("0", ["GPU-1a"]),
        (" 2 , 1", ["GPU-2", "GPU-1b"]),
        ("GPU-2,0", ["GPU-2", "GPU-1a"]),
        ("GPU-1", []),
        ("1,-1,0", ["GPU-1b"]),
        ("0,3,1", ["GPU-1a"]),
        ("0,0", []),
        ("0,GPU-1a", []),
        ("²", []),
        ("99999999999999999999", []),
        ("MIG-1", ["GPU-1b"]),
        ("MIG-1,0", ["GPU-1b"]),
        ("MIG-unknown", []),
        ("0,MIG-1", ["GPU-1a"]),
    ],
)
def test_the_variable_selects_gpus_by_the_rules_of_cuda(value: str | None, shown: list[str]) -> None:
    assert visible_gpus(value, GPUS, {"MIG-1": "GPU-1b"}) == tuple(shown)


@given(st.text(max_size=50) | st.lists(st.sampled_from([*"0123", "GPU-1a", "GPU-", "MIG-1", "x"])).map(",".join))
def test_any_value_shows_some_of_the_gpus_and_none_twice(value: str) -> None:
    shown = visible_gpus(value, GPUS)
    assert set(shown) <= set(GPUS)
    assert len(set(shown)) == len(shown)
