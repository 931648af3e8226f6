"""A global batch in parts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattloop.errors import UsageError
from wattloop.run.micro_batches import micro_batches

NUMBERS = st.integers(1, 5000)


@given(NUMBERS, st.integers(1, 64), st.none() | NUMBERS)
def test_the_parts_fit_and_lose_less_than_one_sample_a_part(
    batch_size: int, devices: int, max_per_device: int | None
) -> None:
    parts = micro_batches(batch_size, devices, max_per_device)
    assert 1 <= parts.batch_size <= (max_per_device or batch_size)
    # A batch below one sample a device is the only one that grows.
    assert parts.global_batch_size <= max(batch_size, devices)
    assert batch_size - parts.global_batch_size < devices * parts.accumulation
    # One part fewer would not fit.
    assert parts.accumulation == 1 or (parts.accumulation - 1) * (max_per_device or 0) < batch_size // devices


@given(st.integers(1, 64), st.integers(1, 64), st.integers(1, 64))
def test_a_batch_that_divides_is_trained_completely(samples: int, parts: int, devices: int) -> None:
    assert micro_batches(samples * parts * devices, devices, samples).global_batch_size == samples * parts * devices


@pytest.mark.parametrize("arguments", [(0, 1, None), (1, 0, None), (1, 1, 0), (-8, 1, None)])
def test_a_number_below_one_is_rejected(arguments: tuple[int, int, int | None]) -> None:
    with pytest.raises(UsageError, match=r"is -?\d; it must be a whole number of at least 1"):
        micro_batches(*arguments)
