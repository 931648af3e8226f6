"""The GPU that a device plugin's id names."""

from __future__ import annotations

import pytest

from wattloop_agent.monitor.pods.device_ids import PodGpus, gpus_of, needs_names

A = "GPU-00000000-0000-0000-0000-00000000000a"
B = "GPU-00000000-0000-0000-0000-00000000000b"
MIG = "MIG-41b36413-03bc-566b-ae38-fa5fcd6c8c0b"
UNKNOWN_MIG = "MIG-00000000-0000-0000-0000-000000000000"
NAMES = {"nvidia0": A, "nvidia1": B, MIG: B}
NONE: frozenset[str] = frozenset()


@pytest.mark.parametrize(
    ("ids", "exclusive", "shared", "unknown"),
    [
        ([A, B], {A, B}, NONE, NONE),
        ([f"{A}::0", f"{A}::1"], NONE, {A}, NONE),
        ([A, f"{A}::1"], NONE, {A}, NONE),
        (["nvidia1"], {B}, NONE, NONE),
        (["nvidia0/gi3"], NONE, {A}, NONE),
        (["nvidia0/gi3/vgpu0"], NONE, {A}, NONE),
        (["nvidia1/vgpu0"], NONE, {B}, NONE),
        ([MIG], NONE, {B}, NONE),
        ([f"{MIG}::3"], NONE, {B}, NONE),
        ([f"MIG-{A}/7/0"], NONE, {A}, NONE),
        ([A, MIG, UNKNOWN_MIG], {A}, {B}, {UNKNOWN_MIG}),
        ([f"{MIG}/0", f"{MIG}::", "MIG-1", f"MIG-{A}"], NONE, NONE, {f"{MIG}/0", f"{MIG}::", "MIG-1", f"MIG-{A}"}),
        (["nvidia7", "0", "GPU-1", f"{A}::", "nvidia0/../nvidia1"], NONE, NONE,
         {"nvidia7", "0", "GPU-1", f"{A}::", "nvidia0/../nvidia1"}),
        ([], NONE, NONE, NONE),
    ],
)  # fmt: skip
def test_an_id_names_an_exclusive_gpu_a_shared_one_or_is_unknown(
    ids: list[str], exclusive: set[str], shared: set[str], unknown: set[str]
) -> None:
    assert gpus_of(ids, NAMES) == PodGpus(frozenset(exclusive), frozenset(shared), frozenset(unknown))


@pytest.mark.parametrize(
    ("ids", "needed"),
    [([A, f"{B}::0"], False), ([], False), ([A, "nvidia1"], True), ([MIG], True), (["nvidia0/gi1"], True)],
)
def test_nvml_is_read_only_if_an_id_is_no_gpu_uuid(ids: list[str], needed: bool) -> None:
    assert needs_names(ids) is needed
