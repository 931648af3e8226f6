"""Evaluations in the lines that a training writes."""

from __future__ import annotations

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattloop.wire.training_messages import MAX_NUMBER
from wattloop_operator.api.objective import Target
from wattloop_operator.api.reporting_source import Reporting
from wattloop_operator.domain.training_output import MAX_LINE_BYTES, Evaluation, OutputReader, PatternError

FINITE = st.floats(allow_nan=False, allow_infinity=False)


def reader(metric: str = "accuracy", **reporting: object) -> OutputReader:
    target = Target.model_validate({"metric": metric, "threshold": "0.9"})
    return OutputReader(Reporting.model_validate({"source": "Logs", **reporting}), target)


@pytest.mark.parametrize(
    ("line", "metric", "epoch"),
    [
        ("accuracy=0.5", 0.5, None),
        ("epoch=3 accuracy=0.5", 0.5, 3),
        ("accuracy : .5e-1, Epoch: 2", 0.05, 2),
        ("Epoch 4/30 - loss: 0.2 - accuracy: 0.81 - 3s", 0.81, 4),
        ("Epoch [5/30], accuracy = 81%", 81, 5),
        ("{'eval_loss': 0.5, 'accuracy': 0.71, 'epoch': 1.5}", 0.71, 1.5),
        ("{'accuracy': '0.71', 'epoch': '1.5'}", 0.71, 1.5),
        ('{"epoch":7,"accuracy":-1e3}', -1000, 7),
        ("the accuracy=0.5.", 0.5, None),
        ("epoch=2", None, None),
        ("val_accuracy=0.5", None, None),
        ("accuracy@5=0.5", None, None),
        ("accuracy=high", None, None),
        ("accuracy=0.5.1", None, None),
        ("accuracy", None, None),
        ("", None, None),
    ],
)
def test_names_with_values_are_recognized(line: str, metric: float | None, epoch: float | None) -> None:
    expected = None if metric is None else Evaluation(metric, epoch)
    assert reader().read(line.encode()) == expected


@pytest.mark.parametrize("text", ["nan", "NaN", "inf", "-Infinity"])
def test_a_metric_that_is_not_finite_is_an_evaluation(text: str) -> None:
    found = reader().read(f"accuracy={text}".encode())
    assert found is not None
    assert not math.isfinite(found.metric)


def test_an_epoch_counts_for_the_lines_after_it_and_may_count_from_0() -> None:
    lines = reader(firstEpoch=0)
    assert [lines.read(line) for line in (b"Epoch 0", b"accuracy=0.1", b"Epoch 1", b"loss=3", b"accuracy=0.2")] == [
        None,
        Evaluation(0.1, 1.0),
        None,
        None,
        Evaluation(0.2, 2.0),
    ]


def test_a_pattern_finds_metric_and_epoch_by_the_names_of_its_groups() -> None:
    lines = reader(pattern=r"^\[(?P<epoch>\d+)\] top1 (?P<metric>\S+)|^start (?P<ignored>\w+)")
    assert lines.read(b"[12] top1 71.5 %") == Evaluation(71.5, 12.0)
    assert lines.read(b"[13] top1 n/a") is None
    assert lines.read(b"start over") is None


def test_the_metric_may_have_another_name_in_the_output() -> None:
    assert reader(metricName="eval_accuracy").read(b"accuracy=0.1 eval_accuracy=0.2") == Evaluation(0.2, None)


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("accuracy (.*)", "no group named metric"),
        ("(?P<metric>", "missing \\)"),
        ("(?P<metric>a)(?=b)", "RE2"),
        ("((((?P<metric>a){1000}){1000}){1000})", "RE2"),
    ],
)
def test_an_unusable_pattern_is_rejected_with_its_cause(pattern: str, message: str) -> None:
    with pytest.raises(PatternError, match=message):
        reader(pattern=pattern)


@given(FINITE, st.floats(0, 1e9))
def test_every_number_is_read_as_python_writes_it(metric: float, epoch: float) -> None:
    assert reader().read(f"epoch={epoch!r} accuracy={metric!r}".encode()) == Evaluation(metric, epoch)


@given(st.lists(st.binary(max_size=200), max_size=20))
def test_no_output_is_an_error(lines: list[bytes]) -> None:
    read, patterned = reader(), reader(pattern="(?P<metric>.*)(?P<epoch>.*)")
    for line in lines:
        for found in (read.read(line), patterned.read(line)):
            assert found is None or found.epoch is None or 0 <= found.epoch <= MAX_NUMBER


def test_the_rest_of_a_long_line_is_not_searched() -> None:
    assert reader().read(b"x" * MAX_LINE_BYTES + b" accuracy=0.5") is None
    started = time.process_time()
    # A backtracking engine would need 2^5000 steps.
    assert reader(pattern="(x+x+)+(?P<metric>y)").read(b"x" * MAX_LINE_BYTES) is None
    assert time.process_time() - started < 10
