"""Marks say where a job begins to train something else, and a value that is not known is no change."""

from collections.abc import Callable
from typing import Any

from wattloop_operator.history.job_history import MarkKind, marks_of

Make = Callable[..., Any]
FIRST, SECOND = f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"


def test_each_change_of_target_template_image_and_gpu_is_a_mark(history: Make, record: Make) -> None:
    records = [
        record(0, image_digest=FIRST),
        record(1, image_digest=SECOND),
        record(2, image_digest=SECOND, target_threshold=0.97),
        record(3, image_digest=SECOND, target_threshold=0.97, template_digest="fedcba9876543210"),
        record(4, image_digest=SECOND, target_threshold=0.97, template_digest="fedcba9876543210", gpu_count=2),
    ]
    marks = marks_of(history(*records))
    assert [(mark.recurrence, mark.kind) for mark in marks] == [
        (1, MarkKind.IMAGE),
        (2, MarkKind.TARGET),
        (3, MarkKind.TEMPLATE),
        (4, MarkKind.GPU),
    ]
    assert [mark.text for mark in marks[:2]] == ["aaaaaaaaaaaa → bbbbbbbbbbbb", "accuracy ≥ 0.95 → accuracy ≥ 0.97"]


def test_an_unknown_value_is_no_change(history: Make, record: Make) -> None:
    digests = [FIRST, None, FIRST, None, SECOND]
    records = [record(index, image_digest=digest) for index, digest in enumerate(digests)]
    assert [(mark.recurrence, mark.kind) for mark in marks_of(history(*records))] == [(4, MarkKind.IMAGE)]


def test_the_savings_up_to_each_recurrence_are_those_of_the_recurrences_so_far(history: Make, record: Make) -> None:
    records = [record(index, batch_size=32 if index < 2 else 64, energy_joules=2000.0 - index) for index in range(6)]
    whole = history(*records).savings
    for index, saved in whole.running():
        so_far = sum(each.paid for each in whole.compared if each.index <= index)
        count = sum(each.index <= index for each in whole.compared)
        assert saved.value == count * whole.default.expected.value - so_far
    assert whole.running()[-1][1] == whole.saved
