"""Names of recurrences: locks of a start, in the order of their indices."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from wattloop_operator.api.field_types import MAX_JOB_NAME_CHARACTERS
from wattloop_operator.domain.names import recurrence_name, slot_in_name, slot_of_request, slot_of_time

# As a suffix of the names of a Job's pods leaves them.
MAX_CHARACTERS = 57
JOBS = st.from_regex(rf"[a-z0-9]([a-z0-9-]{{0,{MAX_JOB_NAME_CHARACTERS - 2}}}[a-z0-9])?", fullmatch=True)
SLOTS = st.one_of(
    st.text().map(slot_of_request),
    st.integers(1_577_836_800, 9_999_999_999).map(lambda seconds: slot_of_time(datetime.fromtimestamp(seconds, UTC))),
)


@given(JOBS, st.lists(st.integers(0, 99_999), min_size=2), st.data())
def test_names_sort_by_index_whatever_the_slots_are(job: str, indices: list[int], data: st.DataObject) -> None:
    named = [(recurrence_name(job, index, data.draw(SLOTS), 0), index) for index in indices]
    assert [index for _, index in sorted(named)] == sorted(indices)


@given(JOBS, st.integers(0, 1_000_000), SLOTS, st.integers(0, 20))
def test_a_name_contains_its_slot_and_fits_the_name_of_a_pod(job: str, index: int, slot: str, attempt: int) -> None:
    name = recurrence_name(job, index, slot, attempt)
    assert slot_in_name(job, name) == slot
    assert len(name) <= MAX_CHARACTERS


@given(JOBS, SLOTS, st.integers(0, 20))
def test_a_name_of_an_older_version_contains_its_slot(job: str, slot: str, attempt: int) -> None:
    assert slot_in_name(job, f"{job}-{slot}-{attempt}") == slot
    assert slot_in_name(job, f"{job}-run-3f9650bb28-{attempt}") == "run-3f9650bb28"
