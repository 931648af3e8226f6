"""Evaluations in the lines that a training writes."""

import json
import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattloop.wire.training_messages import MAX_NUMBER
from wattloop_operator.api.objective import Target
from wattloop_operator.api.reporting_source import Reporting
from wattloop_operator.domain.output_line import plain_text
from wattloop_operator.domain.progress_bar import drawn_bar_of
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
        ("Epoch [5/30], accuracy = 0.81 points", 0.81, 5),
        ("{'eval_loss': 0.5, 'accuracy': 0.71, 'epoch': 1.5}", 0.71, 1.5),
        ("{'accuracy': '0.71', 'epoch': '1.0'}", 0.71, 1),
        ("{'accuracy': '0.71', 'epoch': '1.5'}", None, 1.5),
        ('{"epoch":7,"accuracy":-1e3}', -1000, 7),
        ("the accuracy=0.5.", 0.5, None),
        ("epoch 3/12 | train_loss 1.2632 | accuracy 0.81 | 1.9s", 0.81, 3),
        ("Epoch [2/9] accuracy\t0.5", 0.5, 2),
        ("accuracy: 0.8/lr: 0.1", 0.8, None),
        ("Epoch 1/30: training until accuracy 0.9", None, 1),
        ("Epoch 3: 45% accuracy 0.49", None, 3),
        ("epoch 3 accuracy 0.91", 0.91, 3),
        ("[INFO] Epoch [3/10] lr 1e-3 val_loss 0.3, accuracy 0.91 time 8", 0.91, 3),
        ("loaded checkpoint of epoch 3 accuracy 0.91", None, 3),
        ("epoch 3 best at 2 accuracy 0.91", None, 3),
        ("epoch 3 train loss 0.2 accuracy 0.91", None, 3),
        ("epoch 3 step 100 accuracy 0.91", None, 3),
        ("epoch 3 loss 0.2 batches 100 accuracy 0.91", None, 3),
        ("| accuracy 0.9 | no epoch", None, None),
        ("accuracy: 9825/10000 (98%)", None, None),
        ("Epoch 3 accuracy 81 / 100", None, 3),
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


def test_a_metric_after_a_space_counts_only_where_no_evaluation_has_a_separator() -> None:
    lines = reader("loss")
    assert lines.read(b"initial loss: 0.8") == Evaluation(0.8, None)
    assert lines.read(b"epoch 1 | loss 0.7") == Evaluation(0.7, 1)
    assert lines.read(b"epoch=1 loss=0.62") == Evaluation(0.62, 1)
    assert lines.read(b"epoch 2 | step 100 | loss 0.49") is None


NANO_GPT = b"2026-11-26 23:20:47,494 | INFO | step 250: train loss 1.9, val loss 2.1"


def test_an_evaluation_after_a_space_counts_beside_a_step_where_its_name_says_of_what_data_it_is() -> None:
    lines = reader("val loss")
    assert lines.read(NANO_GPT) == Evaluation(2.1, None)
    assert lines.read(b"iter 250 | val loss 1.8") == Evaluation(1.8, None)
    assert lines.read(b"training until val loss 2.1") is None
    assert lines.read(b"INFO:root:step 250: train loss 1.9, val loss 2.2") == Evaluation(2.2, None)
    for other in (
        b"footstep 5, val loss 2.1",
        b"loaded checkpoint: step 5000, val loss 1.8",
        b"saving checkpoint at step 250: val loss 2.1",
    ):
        assert lines.read(other) is None, other
    # The loss of the training, which is written at many steps, has no such name.
    assert reader("loss").read(b"iter 250: loss 2.0, time 8.21ms") is None
    assert reader("loss").read(NANO_GPT) is None


def test_a_step_does_not_count_in_an_output_with_epochs() -> None:
    lines = reader("val loss")
    assert lines.read(b"epoch 1 | val loss 0.7") == Evaluation(0.7, 1)
    assert lines.read(b"step 100 | val loss 0.6") is None


def test_a_line_that_names_the_metric_in_another_form_is_noticed_when_the_third_epoch_begins() -> None:
    lines = reader()
    start = (b"Resuming from epoch 7 (best accuracy 0.81)", b"metric: accuracy", b"in 3 accuracys")
    for line in (*start, b"Epoch 8", b"Epoch 9", b"Test: 1, Accuracy: 81/100", b"computing accuracy"):
        assert lines.read(line) is None
        assert not lines.reading.unread
    assert lines.read(b"Epoch 10") is None
    assert "the line 'Test: 1, Accuracy: 81/100' names accuracy as 'Accuracy': set spec" in lines.reading.unread
    assert lines.read(b"accuracy: 0.83") is not None
    assert not lines.reading.unread


@pytest.mark.parametrize(
    ("output", "metrics"),
    [
        (("current model: accuracy=0.93", "epoch 1", "accuracy: 0.4", "epoch 2 accuracy=0.95"), [0.4, 0.95]),
        (("config:", "  accuracy: 0.9", "accuracy: 0.2", "accuracy: 0.95"), [0.2, 0.95]),
        (("accuracy=0.93", "Epoch 1/30", "accuracy 91/100", "Epoch 2/30", "accuracy 92/100"), []),
        (("val accuracy: 0.95", "Epoch 1 finished in 30 s"), [0.95]),
        (("current model: accuracy=0.93", "Epoch 1/1", "accuracy 45/100"), []),
        (("current model: accuracy=0.93", "Epoch 11/30", "Epoch 12/30"), []),
        (("loss 0.2", "accuracy=0.93", "saved the model of epoch 12"), [0.93]),
    ],
)
def test_a_value_before_the_first_epoch_that_meets_the_target_counts_only_if_no_training_follows(
    output: tuple[str, ...], metrics: list[float]
) -> None:
    lines = reader("val accuracy" if "val" in output[0] else "accuracy")
    found = [*(lines.read(line.encode()) for line in output), lines.at_end()]
    assert [each.metric for each in found if each is not None] == metrics


def test_an_output_whose_epochs_do_not_name_the_metric_is_not_noticed() -> None:
    lines = reader("map")
    for line in (b"mapping 10 workers", b"Epoch 1", b"Epoch 2", b"Epoch 3"):
        assert lines.read(line) is None
    assert not lines.reading.unread


BARS = (
    "Epoch 3: {percent}%|#2   | {done}/100 [00:01<00:07, 12.1it/s, v_num=0, accuracy=0.91]",
    "Epoch 3: {percent}%|#2   | {done}.0k/100.0k [00:01<00:07, 12.1it/s, accuracy=0.91]",
    "\x08\x08\x1b[1m {done}/100\x1b[0m \x1b[32m━━━\x1b[0m\x1b[37m━━━\x1b[0m 5ms/step - accuracy: 0.91\x08",
    " {done}/100 [==>.......] - ETA: 3s - loss: 0.3 - accuracy: 0.91",
    "Epoch [3/10], validation step [{done}/100], Loss: 0.3, accuracy: 0.91",
    "Val Epoch: [3]  [ {done}/100]  eta: 0:10:00  lr: 0.1  accuracy: 0.91",
)


@pytest.mark.parametrize("bar", BARS)
def test_a_progress_bar_counts_when_it_is_full(bar: str) -> None:
    lines = reader()
    lines.read(b"Epoch 3/10")
    unfinished = [bar.format(percent=f"{done:3d}", done=done).encode() for done in (0, 12, 99)]
    assert [lines.read(line) for line in unfinished] == [None] * 3
    # A bar that a library draws may be drawn again.
    full = [lines.read(bar.format(percent=100, done=100).encode()) for _ in range(2)]
    assert [*full, lines.read(b"Epoch 4/10"), lines.at_end()].count(Evaluation(0.91, 3.0)) == 1
    assert (full[0] is None) == (drawn_bar_of(plain_text(bar.format(percent=1, done=1).encode())) is not None)
    # Whoever writes a pattern says what counts.
    own = reader(pattern=r"accuracy[=:] ?(?P<metric>[0-9.]+)")
    assert [own.read(line) for line in unfinished] == [Evaluation(0.91, None)] * 3


@pytest.mark.parametrize("unit", ["it", "batch", " samples"])
def test_a_bar_without_a_total_is_never_full(unit: str) -> None:
    assert reader().read(f"Epoch 1: 12{unit} [00:01, 12.1{unit}/s, accuracy=0.3]".encode()) is None


@pytest.mark.parametrize(
    "line",
    [
        "epoch: 3 |gpu 45%|mem 30%| accuracy: 0.91",
        "run | 3/10 [0:12:03] epoch=3 accuracy=0.91",
        "epoch 3 | 3/10 [val] accuracy: 0.91",
        "epoch 3 layers [12, 4] accuracy: 0.91",
    ],
)
def test_a_line_with_a_share_or_a_fraction_is_no_bar(line: str) -> None:
    assert reader().read(line.encode()) == Evaluation(0.91, 3.0)


def lightning(epoch: int, *values: str) -> list[bytes]:
    """The lines of a bar of Lightning 2.6: full with the metric of the epoch before, then with that of this one."""
    line = "Epoch {}: {:3d}%|####| {}/94 [00:18<00:00,  5.44it/s, acc=0.917, accuracy={}]"
    full = [line.format(epoch, 100, 94, value).encode() for value in values for _ in range(2)]
    validation = b"Validation DataLoader 0:  50%|####| 1/2 [00:00<00:00,  6.97it/s]"
    return [line.format(epoch, 1, 1, values[0]).encode(), *full[:2], validation, *full[2:]]


@pytest.mark.parametrize(
    ("epochs", "seen"),
    [
        ([("0.78",), ("0.78", "0.85")], [Evaluation(0.78, 1.0), Evaluation(0.85, 2.0)]),
        # The metric of the second epoch is that of the first; it counts when the third begins.
        (
            [("0.78",), ("0.78", "0.78"), ("0.78", "0.8")],
            [Evaluation(0.78, 1.0), Evaluation(0.78, 2.0), Evaluation(0.8, 3.0)],
        ),
    ],
)
def test_a_bar_that_is_closed_after_the_validation_counts_once(
    epochs: list[tuple[str, ...]], seen: list[Evaluation]
) -> None:
    lines = reader()
    found = [lines.read(line) for epoch, values in enumerate(epochs) for line in lightning(epoch, *values)]
    found.append(lines.at_end())
    assert [each for each in found if each is not None] == seen


def test_the_last_full_bar_of_an_epoch_counts_when_another_epoch_begins_unless_a_line_has_another() -> None:
    bar = b"Epoch %d: 100%%|#| 1/1 [00:01<00:00,  1it/s, accuracy=0.%d]"
    lines = reader()
    bars = [bar % each for each in ((1, 99), (1, 70), (2, 70), (3, 80))]
    assert [lines.read(each) for each in bars] == [None, None, Evaluation(0.7, 1.0), Evaluation(0.7, 2.0)]
    assert lines.at_end() == Evaluation(0.8, 3.0)
    lines = reader()
    mixed = (bar % (1, 7), bar % (2, 8), b"epoch 2 accuracy=0.6", b"Epoch 3:   0%|#| 0/1 [00:00<00:00,  1it/s]")
    assert [lines.read(line) for line in mixed] == [None, Evaluation(0.7, 1.0), Evaluation(0.6, 2.0), None]
    # A line that also ends an epoch.
    lines = reader()
    assert [lines.read(line) for line in (bar % (1, 7), mixed[2])] == [None, Evaluation(0.7, 1.0)]
    assert lines.at_end() == Evaluation(0.6, 2.0)


def test_bars_without_epochs_count_once_each() -> None:
    lines = reader()
    bars = [b"%3d%%|##| %d/9 [00:01<00:01,  9it/s, accuracy=1.0]" % (done * 11, done) for done in (1, 9, 9, 1, 9)]
    assert [lines.read(bar) for bar in bars] == [None, None, None, Evaluation(1.0, None), None]
    assert lines.at_end() == Evaluation(1.0, None)


def test_a_bar_over_epochs_is_said_not_to_count_before_its_end() -> None:
    lines = reader()
    bars = [b"Epoch: %3d%%|##| %d/10 [00:01<00:01,  1it/s, accuracy=0.9]" % (10 * done, done) for done in range(6)]
    assert lines.read(b"Epoch:   0%|  | 0.00/10.0k [00:00<00:01,  1it/s, accuracy=0.9]") is None
    notices = [(lines.read(bar), lines.reading.unread)[1] for bar in bars]
    assert notices[:5] == [""] * 5
    assert "is a progress bar, which counts when it is full" in notices[5]
    assert lines.read(b"Epoch: 100%|##| 10/10 [00:01<00:01,  1it/s, accuracy=0.95]") is None
    assert lines.at_end() == Evaluation(0.95, None)


def test_bars_that_never_are_full_are_quoted_in_the_third_epoch() -> None:
    lines = reader()
    for epoch in range(3):
        assert lines.read(b"Epoch %d:  99%%|##| 99/100 [00:01<00:01,  1it/s, accuracy=0.9]" % epoch) is None
    assert "names accuracy" in lines.reading.unread


def test_a_bar_does_not_hide_the_columns_of_evaluations() -> None:
    lines = reader()
    assert lines.read(b"Epoch 1:  12%|# | 12/100 [00:01<00:07, 12it/s, accuracy=0.4]") is None
    assert lines.read(b"Epoch 1 | accuracy 0.91") == Evaluation(0.91, 1.0)


@pytest.mark.parametrize("text", ["nan", "NaN", "inf", "-Infinity"])
def test_a_metric_that_is_not_finite_is_an_evaluation(text: str) -> None:
    found = reader().read(f"accuracy={text}".encode())
    assert not math.isfinite(found.metric)


def test_an_epoch_counts_for_the_lines_after_it_and_may_count_from_0() -> None:
    lines = reader()
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


def test_a_comma_after_a_number_is_not_part_of_what_a_pattern_finds() -> None:
    assert reader(pattern=r"acc (?P<metric>\S+)").read(b"acc 0.81, lr 0.1") == Evaluation(0.81, None)


def test_a_pattern_that_takes_more_than_the_number_is_noticed_at_its_third_line() -> None:
    lines = reader(pattern=r"acc (?P<metric>\S+)")
    notices = [(lines.read(b"acc 81.2% of 100"), lines.reading.unread)[1] for _ in range(3)]
    assert notices[:2] == ["", ""]
    assert "'acc 81.2% of 100' matches spec.reporting.pattern, and its group metric is '81.2%', which" in notices[2]


@pytest.mark.parametrize(("name", "metric"), [("eval_accuracy", 0.2), ("top accuracy", 0.3)])
def test_a_name_counts_that_is_no_part_of_another(name: str, metric: float) -> None:
    assert reader(name).read(b"accuracy=0.1 eval_accuracy=0.2 top accuracy=0.3") == Evaluation(metric, None)


@pytest.mark.parametrize(
    "name", ["Accuracy (top-1)", "acc@1 [%]", "F1-score (macro, val)", "Précision", "精度", "a{0}$(b)"]
)
@pytest.mark.parametrize("line", ["Epoch 3 | {}: 0.71", "{{'epoch': 3, '{}': 0.71}}"])
def test_a_metric_may_have_any_name(name: str, line: str) -> None:
    assert reader(name).read(line.format(name).encode()) == Evaluation(0.71, 3.0)
    assert reader(name).read(json.dumps({"epoch": 3, name: 0.71}).encode()) == Evaluation(0.71, 3.0)
    assert reader(name).read(b"Epoch 3 | other: 0.71") is None


def test_only_the_evaluation_of_each_phase_of_an_epoch_counts() -> None:
    lines = reader("Acc")
    output = (b"Epoch 1/24", b"train Loss: 0.4 Acc: 0.99", b"val Loss: 0.9 Acc: 0.71", b"best val Acc: 0.71")
    found = [lines.read(line) for line in output]
    assert found == [None, None, Evaluation(0.71, 1.0), None]
    assert not lines.reading.unread


def test_the_best_value_so_far_counts_only_in_an_output_that_has_no_other() -> None:
    output = ("accuracy: 0.80", "best accuracy: 0.80", "accuracy: 0.78", "New best accuracy: 0.80")
    lines = reader()
    assert [lines.read(line.encode()) for line in output] == [Evaluation(0.8, None), None, Evaluation(0.78, None), None]
    records = reader()
    assert [records.read(line.encode()) for line in output[1::2]] == [Evaluation(0.8, None)] * 2


def test_an_output_with_the_metric_of_the_training_data_alone_is_noticed_in_the_third_epoch() -> None:
    lines = reader()
    notices = [(lines.read(b"Epoch %d train accuracy: 0.99" % epoch), lines.reading.unread)[1] for epoch in (1, 2, 3)]
    assert notices[:2] == ["", ""]
    assert "has accuracy of the training data: print the one of the evaluation" in notices[2]


def test_the_metric_of_the_steps_of_the_training_does_not_hide_the_columns_of_evaluations() -> None:
    lines = reader("loss")
    steps = b"2026-01-01 12:00:00 | INFO | train_inner | epoch 003:    100 / 1500 loss=2.1, ppl=4.3"
    assert lines.read(steps) is None
    assert lines.read(b"2026-01-01 12:00:00 | INFO | valid | epoch 003 | loss 4.5 | ppl 22") == Evaluation(4.5, 3.0)


def test_a_share_in_percent_beside_a_threshold_that_is_a_fraction_is_noticed_at_once() -> None:
    lines = reader()
    assert lines.read(b"epoch 1 accuracy: 81%") is None
    assert "has accuracy in percent where the threshold is a fraction" in lines.reading.unread


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("accuracy (.*)", "no group named metric"),
        ("(?P<metric>", "missing \\)"),
        ("(?P<metric>a)(?=b)", "RE2"),
        # The pattern as it was written, without doubled backslashes.
        (r"acc: (?P<metric>\S+", r"found 'acc: \(\?P<metric>\\S\+', expected"),
        ("((((?P<metric>a){1000}){1000}){1000})", "RE2"),
    ],
)
def test_an_unusable_pattern_is_rejected_with_its_cause(pattern: str, message: str) -> None:
    with pytest.raises(PatternError, match=message):
        reader(pattern=pattern)


@given(FINITE, st.floats(0, 1e9, exclude_min=True))
def test_every_number_is_read_as_python_writes_it_but_a_share_in_percent(metric: float, epoch: float) -> None:
    expected = None if 1.01 < metric <= 100 else Evaluation(metric, epoch)
    assert reader("val_accuracy").read(f"epoch={epoch!r} val_accuracy={metric!r}".encode()) == expected


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
