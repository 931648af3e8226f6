"""The evaluations in the rows of a file, and why a row has none."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattloop_operator.api.objective import Target
from wattloop_operator.domain.metric_rows import RowReader

TARGET = Target.model_validate({"metric": "val_acc", "threshold": "0.9"})
LOSS = Target.model_validate({"metric": "loss", "threshold": "0.5", "direction": "Minimize"})
Read = list[tuple[float, float | None]]


def reader(target: Target = TARGET) -> RowReader:
    return RowReader(target)


def read(rows: RowReader, text: str) -> Read:
    found = [rows.read(line.encode()) for line in text.split("\n")]
    return [(each.metric, each.epoch) for each in found if each is not None]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("epoch,loss,val_acc\n1,0.5,0.81\n2,0.4,0.92", [(0.81, 1.0), (0.92, 2.0)]),
        # From 0, as Lightning's logger writes them, with the training's rows between.
        ("epoch,step,train_loss,val_acc\n0,49,0.5,\n0,49,,0.7\n1,99,,0.8", [(0.7, 1.0), (0.8, 2.0)]),
        ("val_acc\n0.7\n0.7\n0.8", [(0.7, None), (0.7, None), (0.8, None)]),
        ("\ufeffEpoch;val_acc\r\n1;7e-1\r\n", [(0.7, 1.0)]),
        ("# epoch\tval_acc\n1\t0.7", [(0.7, 1.0)]),
        ('"epoch","note","val_acc"\n1,"a, b",0.7', [(0.7, 1.0)]),
        # A head again, as of a script that appends, here with other columns.
        ("epoch,val_acc\n1,0.7\nval_acc,epoch\n0.8,2", [(0.7, 1.0), (0.8, 2.0)]),
        ('{"epoch": 1, "val_acc": 0.7}\n{"epoch": 2, "loss": 0.1}\n{"epoch": 2, "val_acc": "0.8"}',
         [(0.7, 1.0), (0.8, 2.0)]),
        ('{"val_acc": null}\n{"val_acc": 1e-400}\n\n', [(0.0, None)]),
    ],
)  # fmt: skip
def test_each_row_with_a_number_under_the_metrics_name_is_an_evaluation(text: str, expected: Read) -> None:
    rows = reader()
    assert read(rows, text) == expected
    assert (rows.reading.unread, rows.reading.unread_at_end) == ("", "")


def test_a_metric_that_is_not_finite_has_diverged() -> None:
    [(first, _), (second, _)] = read(reader(), '{"val_acc": NaN}\n{"val_acc": Infinity}')
    assert math.isnan(first)
    assert math.isinf(second)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("epoch,acc\n1,0.7", "has no column 'val_acc': the columns are 'epoch', 'acc'"),
        ("1,0.7\n2,0.8", "has no column 'val_acc': the columns are '1', '0.7'"),
        ("epoch,val_acc\n1,91%", "has val_acc '91%', which is no number"),
        ("epoch,val_acc\n1,91", "has val_acc in percent where the threshold is a fraction"),
        ('{"val_acc": 91.5}', "has val_acc in percent where the threshold is a fraction"),
        ("epoch;val_acc\n1;0,91", "has val_acc '0,91', which is no number"),
        ("epoch,val_acc\n1/60,0.9", "has epoch '1/60', which is no number"),
        ("epoch,val_acc\n1,0.9,0.8", "has 3 cells, and the head has 2"),
        ('{"val_acc": 0.7', "is no JSON object in one line"),
        ("[" * 9000, "has no column 'val_acc'"),
        ('{"a": ' + "[" * 9000, "is no JSON object in one line"),
        ('{"val_acc": true}', "has val_acc that is no number"),
        ('{"val_acc": {"top1": 0.7}}', "has val_acc that is no number"),
        ('{"acc": 0.7}', "no row has a key 'val_acc': the keys are 'acc'"),
    ],
)
def test_a_row_that_leaves_a_doubt_has_no_value_and_the_reason(text: str, why: str) -> None:
    rows = reader()
    text = f"{text}\n{text}" if "\n" not in text else text
    assert read(rows, text) == []
    assert why in rows.reading.unread_at_end
    last = text.split("\n")[-1]
    read(rows, f"{last}\n{last}")
    assert (why in rows.reading.unread) == ("keys" not in why)


def test_a_value_beside_a_step_counts_only_under_the_name_of_an_evaluation() -> None:
    rows = reader(LOSS)
    assert read(rows, "step,loss\n10,0.4\n,0.45") == [(0.45, None)]
    rows = reader(LOSS)
    assert read(rows, "step,loss\n10,0.4") == []
    assert "has loss beside 'step', so perhaps of some batches: name it" in rows.reading.unread_at_end
    assert read(reader(LOSS.model_copy(update={"metric": "val loss"})), "step,val loss\n10,0.4") == [(0.4, None)]


EVALUATIONS = st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["0.1", "0.2", "nan"])), max_size=8)


@given(EVALUATIONS, st.integers(0, 8), st.booleans())
def test_a_file_that_is_rewritten_counts_each_of_its_rows_once(
    rows: list[tuple[int, str]], before: int, has_other_columns: bool
) -> None:
    lines = ["epoch,val_acc", *(f"{epoch},{metric}" for epoch, metric in rows)]
    rewritten = (
        ["val_acc,more,epoch", *(f"{metric},,{epoch}" for epoch, metric in rows)] if has_other_columns else lines
    )
    whole, twice = reader(), reader()
    expected = read(whole, "\n".join(lines))
    found = read(twice, "\n".join(lines[: before + 1]))
    twice.restart()
    assert repr([*found, *read(twice, "\n".join(rewritten))]) == repr(expected)


@pytest.mark.parametrize(
    ("row", "first", "passed_over"),
    [
        ("1,0.6", "epoch 1, val_acc 0.6, from '1,0.6'", ""),
        ("6,0.6", "", "6,0.6"),
    ],
    ids=["begins again", "goes on"],
)
def test_a_row_after_those_that_the_file_had_is_quoted_itself(row: str, first: str, passed_over: str) -> None:
    rows = reader()
    rows.pass_earlier(b"epoch,val_acc", b"5,0.5\n")
    assert len(read(rows, row)) == bool(first)
    unread = rows.passed_over()
    assert (rows.reading.first, "" if unread is None else unread.text) == (first, passed_over)
