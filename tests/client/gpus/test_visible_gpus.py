"""The GPUs that CUDA shows to a process."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattloop.gpus.visible_gpus import visible_gpus

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
