"""Whose GPU a device plugin's id names."""

from __future__ import annotations

import pytest

from wattloop_agent.reader.pods.device_ids import PodGpus, gpus_of

A = "GPU-00000000-0000-0000-0000-00000000000a"
B = "GPU-00000000-0000-0000-0000-00000000000b"
NODES = {0: A, 1: B}
NONE: frozenset[str] = frozenset()


@pytest.mark.parametrize(
    ("ids", "whole", "shared", "unknown"),
    [
        ([A, B], {A, B}, NONE, NONE),
        ([f"{A}::0", f"{A}::1"], NONE, {A}, NONE),
        ([A, f"{A}::1"], NONE, {A}, NONE),
        (["nvidia1"], {B}, NONE, NONE),
        (["nvidia0/gi3"], NONE, {A}, NONE),
        (["nvidia0/gi3/vgpu0"], NONE, {A}, NONE),
        (["nvidia1/vgpu0"], NONE, {B}, NONE),
        (["MIG-41b36413-03bc-566b-ae38-fa5fcd6c8c0b"], NONE, NONE, {"MIG-41b36413-03bc-566b-ae38-fa5fcd6c8c0b"}),
        (["nvidia7", "0", "GPU-1", f"{A}::", "nvidia0/../nvidia1"], NONE, NONE,
         {"nvidia7", "0", "GPU-1", f"{A}::", "nvidia0/../nvidia1"}),
        ([], NONE, NONE, NONE),
    ],
)  # fmt: skip
def test_an_id_names_a_whole_gpu_a_share_or_nothing_we_know(
    ids: list[str], whole: set[str], shared: set[str], unknown: set[str]
) -> None:
    assert gpus_of(ids, NODES) == PodGpus(frozenset(whole), frozenset(shared), frozenset(unknown))
