"""What the outputs of common loggers say, or why they say nothing. The numbers are made up."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from wattloop_operator.api.objective import Target
from wattloop_operator.api.reporting_source import Reporting
from wattloop_operator.domain.training_output import Evaluation, OutputReader

ACCURACY = Target.model_validate({"metric": "accuracy", "threshold": "0.9"})
LOSS = Target.model_validate({"metric": "loss", "threshold": "0.5", "direction": "Minimize"})
VAL_ACC = Target.model_validate({"metric": "val_acc", "threshold": "0.9"})
LOGS = Reporting.model_validate({"source": "Logs"})
NONE: list[Any] = []


@dataclass(frozen=True)
class Output:
    """The output of a training; right are the metric and epochs of what counts up to the target, and the notice."""

    target: Target
    text: str
    read: list[tuple[float, float | None]]
    notice: str = ""
    reporting: tuple[tuple[str, Any], ...] = ()


accuracy, loss, val_acc = (partial(Output, target) for target in (ACCURACY, LOSS, VAL_ACC))


def read(output: Output) -> tuple[list[Evaluation], str]:
    """The evaluations up to the target, and the latest notice."""
    reporting = Reporting.model_validate({"source": "Logs", **dict(output.reporting)})
    reader = OutputReader(reporting, output.target, max_epochs=20)
    found: list[Evaluation] = []
    for line in output.text.replace("\r", "\n").split("\n"):
        evaluation = reader.read(line.encode())
        if evaluation is not None:
            found.append(evaluation)
            if output.target.run_target.reached_by(evaluation.metric):
                break
    else:
        last = reader.at_end()
        found += [] if last is None else [last]
    return found, reader.reading.doubt or reader.reading.unread_at_end


def of_each(*outputs: Output) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("output", outputs)


def check(output: Output) -> None:
    found, notice = read(output)
    assert [(each.metric, each.epoch) for each in found] == output.read
    assert output.notice in notice
    assert bool(notice) == bool(output.notice)


def evaluations(line: str, values: str) -> str:
    """A line for each value, of epoch 1, 2, …"""
    return "".join(line.format(epoch=epoch, value=value) + "\n" for epoch, value in enumerate(values.split(), start=1))


@of_each(
    loss("Epoch 1 | val loss: 1,234.56\nEpoch 2 | val loss: 987.1\n", [(987.1, 2)]),
    accuracy(evaluations("Epoch {epoch}: accuracy={value}", "0,91 0,92 0,93"), NONE, "followed by ',92'"),
    loss(evaluations("epoch {epoch} loss: {value}", "1'234.5 0'9"), NONE, 'followed by "\'9"'),
    loss("epoch 1 loss: 1 234.5\n", NONE, "followed by '234.5'"),
    loss("epoch 1 loss: 1\u202f234,5\n", NONE, "followed by '234,5'"),
    loss("epoch 1 loss=1.234,56\n", NONE, "followed by ',56'"),
    accuracy("epoch 1 val loss, accuracy: 0.95, 0.71\n", NONE, "one of several names before several"),
    accuracy("epoch=1,accuracy=0.81,loss=0.5\nepoch=2,accuracy=0.91,\n", [(0.81, 1), (0.91, 2)]),
)
def test_a_number_with_a_separator_of_thousands_or_a_decimal_comma_is_none(output: Output) -> None:
    check(output)


@pytest.mark.parametrize(
    "scalar",
    [
        "numpy.float64(0.91)",
        "tensor(0.91, device='cuda:0', dtype=torch.float64, grad_fn=<MeanBackward0>)",
        "Array(0.91, dtype=float32)",
        "tf.Tensor(0.91, shape=(), dtype=float32)",
        "<tf.Tensor: shape=(), dtype=float32, numpy=0.91>",
        "Decimal('0.91')",
    ],
)
@pytest.mark.parametrize("line", ["{{'loss': 0.3, 'accuracy': {}, 'epoch': 1.0}}", "epoch 1 accuracy: {}, lr 0.1"])
def test_a_printed_scalar_is_a_number(scalar: str, line: str) -> None:
    check(accuracy(line.format(scalar), [(0.91, 1)]))


def test_a_scalar_is_a_number_to_a_pattern_too_and_as_an_epoch() -> None:
    pattern = (("pattern", r"acc (?P<metric>\S+)"),)
    check(accuracy("acc np.float64(0.91), lr 0.1\n", [(0.91, None)], reporting=pattern))
    check(accuracy("{'epoch': np.int64(2), 'accuracy': np.float32(0.91)}\n", [(0.91, 2)]))


@pytest.mark.parametrize("value", ["[0.91]", "[0.91, 0.93]", "(0.91)", "tensor([0.91, 0.93])", "{'top1': 0.91}"])
def test_a_value_in_brackets_counts_as_none_and_the_notice_says_so(value: str) -> None:
    output = evaluations("Epoch {epoch}: accuracy: {value}", " ".join([value.replace(" ", "")] * 3))
    found, notice = read(accuracy(output, NONE))
    assert not found
    assert "has accuracy in brackets, " in notice or "has accuracy followed by" in notice


IMAGENET = (
    "Epoch: [{0}][100/100]  Time 1.0 (1.0)  loss: 0.20 (0.30)\n"
    "Test: [ 0/98]  Time: 1.0 (1.0)  loss: 0.20 (0.20)\n"
    "Test: [98/98]  Time: 1.0 (1.0)  loss: 0.41 ({1})\n"
)


@of_each(
    # The example of PyTorch for ImageNet, and timm, whose 0 after "Train:" is the epoch.
    loss(IMAGENET.format(0, "1.80") + IMAGENET.format(1, "0.45"), [(1.8, 1), (0.45, 2)]),
    accuracy(
        "Train: 0 [1251/1251 (100%)]  Loss: 0.2  accuracy: 0.99 (0.95)\nTest: [  78/78]  accuracy: 0.95 (0.71)\n",
        [(0.71, 1)],
    ),
    loss("Train: 0 [1251/1251 (100%)]  loss: 0.20  Time: 0.3s\n", NONE, "of the training data"),
    # torchvision's references end with the last step but one.
    loss("Test:  [ 97/98]  eta: 0:00:00  loss: 0.40 (1.80)\n", NONE, "a step that is not the last one"),
    loss("Averaged stats: loss: 0.41 (1.80)\n", NONE, "followed by '(1.80)', which may be an average"),
    loss(evaluations("epoch {epoch} val loss: 0.41 ({value})", "0.02 0.02"), NONE, "may be an average"),
    accuracy("epoch 1 accuracy: 0.95 (avg: 0.71)\n", NONE, "followed by '(avg: 0.71)'"),
    accuracy("epoch 1 accuracy: 0.91 (best 0.95)\n", [(0.91, 1)]),
    accuracy("epoch 1 accuracy: 0.91 +/- 0.02\n", [(0.91, 1)]),
)
def test_of_a_value_and_its_average_only_the_average_counts(output: Output) -> None:
    check(output)


@pytest.mark.parametrize(
    "bar",
    [
        "12/100 [==>......] - ETA: 3s - accuracy: 0.99",
        "━━━━╺━━━━ 12/100 0:00:01 • 0:00:07 12.1it/s accuracy: 0.99",
        "━━━━╺━━━━  12% 0:00:07 accuracy: 0.99",
        "━━━━╺━━━━ 0:00:07 accuracy: 0.99",
        "12%|█▏  | 12/100 [00:01<00:07, 12it/s, accuracy=0.99]",
        "12/100 [00:01<00:07] accuracy=0.99",
        "[12/100]  12%|█▏  , accuracy=0.99 [00:01<00:07]",
        "|████▌   | ▃▁ 12/100 [12%] in 1s (12.1/s) accuracy=0.99",
        "12% (12 of 100) |##    | Elapsed Time: 0:00:01 accuracy: 0.99",
        "[####------]  12%  00:00:07 accuracy: 0.99",
        " |███-----| 12.00% [12/100 00:01<00:07 accuracy: 0.99]",
    ],
)
@pytest.mark.parametrize("before", ["", "Epoch 1/9 ", "Epoch 9/9: "])
def test_an_unfinished_bar_never_counts(bar: str, before: str) -> None:
    check(accuracy(f"{before}{bar}\n", NONE, "accuracy"))


@of_each(
    accuracy(
        "\r  0%|    | 0/3 [00:00<?, ?it/s]Epoch 1: accuracy=0.81\n"
        "\r 33%|### | 1/3 [00:01<00:02,  1.0s/it]Epoch 2: accuracy=0.95\n"
        "\r100%|####| 3/3 [00:03<00:00,  1.0s/it]\n",
        [(0.81, 1), (0.95, 2)],
    ),
    accuracy("12it [00:01, 12.1it/s]{'accuracy': 0.91, 'epoch': 1.0}\n", [(0.91, 1)]),
    # The text behind a bar of another form may be the mean of its batches.
    accuracy(" 33%|## | 1/3 [00:01<00:02, 1.0s/it], accuracy=0.99\n", NONE, "in a bar or a step"),
    accuracy(
        " 33%|## | 1/3 [00:01<00:02, 1.0s/it]top-1 0.95\n",
        [(0.95, None)],
        reporting=(("pattern", r"^top-1 (?P<metric>\S+)"),),
    ),
)
def test_the_text_behind_a_bar_is_a_line(output: Output) -> None:
    check(output)


@pytest.mark.parametrize(
    "escape", ["\x1b[K", "\x1b[2K", "\x1b[1;32m", "\x1b[?25l", "\x1b[3A", "\x1b]0;training\x07", "\x1b(B", "\x08"]
)
def test_an_escape_sequence_is_no_text(escape: str) -> None:
    check(val_acc(f"{escape}val_acc{escape}: 0.81\n{escape}val_acc: 0.95{escape}\n", [(0.81, None), (0.95, None)]))
    pattern = (("pattern", r"^top-1 (?P<metric>[0-9.]+)$"),)
    check(val_acc(f"{escape}top-1 {escape}0.95{escape}\n", [(0.95, None)], reporting=pattern))


@pytest.mark.parametrize(
    "before",
    [
        "Namespace(batch_size=32, epoch=100, lr=0.1)",
        "TrainingConfig(epoch=10, lr=0.1)",
        "args: {'epoch': 10, 'lr': 0.1}",
        "{'batch_size': 32, 'epoch': 10, 'lr': 0.1}",
        "hparams: epoch=10 lr=0.1",
        "epoch: 100",
        "batch_size: 32\nepoch: 10\nlr: 0.1",
        '{\n  "epoch": 10,\n  "lr": 0.1\n}',
        "Best epoch: 15",
        "best accuracy so far at epoch 15",
        "Resuming from epoch 15",
        "loaded checkpoint of epoch 15",
        "max epoch: 15",
        "epoch: 1732791600",
    ],
)
def test_the_epoch_of_arguments_or_of_another_model_is_that_of_no_evaluation(before: str) -> None:
    output = f"{before}\nval accuracy: 0.5\nval accuracy: 0.6\nval accuracy: 0.93\n"
    check(accuracy(output, [(0.5, None), (0.6, None), (0.93, None)]))


@pytest.mark.parametrize(
    ("line", "epoch"),
    [
        ("End of epoch 3: accuracy: 0.95", 3),
        ("Test results after epoch 3: accuracy: 0.95", 3),
        ("Fold 1 Epoch 3 accuracy: 0.95", 3),
        ("2026-01-01 12:00:00,123 - train - INFO - Epoch 3 accuracy: 0.95", 3),
        ("[rank0]: Epoch [3/10] accuracy: 0.95", 3),
        ("accuracy: 0.95 (epoch 3)", 3),
        ("accuracy: 0.95, epoch: 3", 3),
        ("accuracy: 0.95 epoch: 3", 3),
        ('{"best_accuracy": 0.96, "accuracy": 0.95, "epoch": 3}', 3),
        ("01/01 - mmengine - INFO - Epoch(val) [3][98/98]    accuracy: 0.95  time: 0.1", 3),
        ("2021-01-01 - mmdet - INFO - Epoch(val) [3][98]\taccuracy: 0.95", 3),
        ("Epoch 3: accuracy: 0.95, best epoch: 2", 3),
        ("accuracy: 0.95 at epoch 3", None),
        ("accuracy: 0.95, best at epoch 3", None),
        ('{"epoch": 1732791600, "accuracy": 0.95}', None),
        ("accuracy: 0.95 epoch 3,5", None),
    ],
)
def test_an_epoch_stands_at_the_head_of_a_line_or_in_a_field_of_its_own(line: str, epoch: float | None) -> None:
    check(accuracy(f"accuracy: 0.5\n{line}\n", [(0.5, None), (0.95, epoch)]))


def test_a_metric_that_is_not_finite_has_the_epoch_of_its_line() -> None:
    reader = OutputReader(LOGS, ACCURACY)
    found = reader.read(b"epoch=4 accuracy=nan")
    assert found.epoch == 4


def test_a_first_epoch_in_a_field_counts_once_another_one_follows_or_if_it_is_no_integer() -> None:
    check(accuracy("***** eval metrics *****\n  epoch  =  3.0\n  accuracy  =  0.95\n", [(0.95, 3)]))
    output = "epoch: 11\nloss: 0.3\nepoch: 12\naccuracy: 0.95\n"
    check(accuracy(output, [(0.95, 12)]))
    check(accuracy("Epoch 11/20\naccuracy: 0.95\n", [(0.95, 11)]))


@of_each(
    accuracy("epoch 0 accuracy 0.95\nepoch 1 accuracy 0.96\n", [(0.95, 1)]),
    accuracy("Epoch 0\naccuracy: 0.5\nEpoch 1\naccuracy: 0.95\n", [(0.5, 1), (0.95, 2)]),
    accuracy('{"epoch": 0.0, "accuracy": 0.5}\n{"epoch": 1.0, "accuracy": 0.95}\n', [(0.5, 1), (0.95, 2)]),
    accuracy("Epoch 0: train loss 0.4\nEpoch 1: accuracy=0.95\n", [(0.95, 1)]),
    # Hugging Face's Trainer, which evaluates before its training and then writes fractions.
    accuracy("{'accuracy': 0.5, 'epoch': 0}\n{'accuracy': 0.95, 'epoch': 1.0}\n", [(0.5, 1), (0.95, 1)]),
    accuracy(
        "[0] top-1 0.5\n[1] top-1 0.95\n",
        [(0.5, 1), (0.95, 2)],
        reporting=(("pattern", r"^\[(?P<epoch>\d+)\] top-1 (?P<metric>\S+)"),),
    ),
)
def test_an_evaluation_of_epoch_0_shows_that_the_script_counts_from_0(output: Output) -> None:
    check(output)


def test_a_log_that_is_read_on_counts_from_0_as_before() -> None:
    reader = OutputReader(LOGS, ACCURACY, has_counted=True, counts_from_0=True)
    assert reader.read(b"epoch 4 accuracy 0.95") == Evaluation(0.95, 5)


@of_each(
    val_acc(
        evaluations("epoch {epoch} val_acc: {value}\nepoch {epoch} val_acc: {value}", "0.8 0.95"), [(0.8, 1), (0.95, 2)]
    ),
    val_acc(
        "Epoch 1\n[rank0]: val_acc: 0.8\n[rank1]: val_acc: 0.8\n"
        "Epoch 2\n[rank1]: val_acc: 0.8\n[rank0]: val_acc: 0.8\n",
        [(0.8, 1), (0.8, 2)],
    ),
    val_acc("val_acc: 0.8\nval_acc: 0.8\nval_acc: 0.95\nval_acc: 0.95\n", [(0.8, None), (0.95, None)], "once"),
    val_acc("0: val_acc: 0.8\n1: val_acc: 0.8\n0: val_acc: 0.9\n", [(0.8, None), (0.9, None)], "several ranks"),
    val_acc("val_acc: 0.95\nval_acc: 0.95\n", [(0.95, None)], "printed several times in a row"),
    val_acc(
        "loss: 0.3\nval_acc: 0.8\nloss: 0.3\nval_acc: 0.8\nloss: 0.2\nval_acc: 0.9\n",
        [(0.8, None), (0.9, None)],
        "counts once",
    ),
    val_acc(
        "[rank0]: epoch 1 val_acc: 0.8\n[rank1]: epoch 1 val_acc: 0.95\n", [(0.8, 1)], "only the values of rank 0 count"
    ),
    # Two first values that meet the target are of the first epoch.
    val_acc("\x1b[Kval_acc: 0.91\n\x1b[2K\rval_acc: 0.95\n", [(0.91, None)]),
    # Another line between them: two evaluations with the same value.
    val_acc("val_acc: 0.8\nloss 0.3\nval_acc: 0.8\n", [(0.8, None), (0.8, None)]),
)
def test_a_line_that_several_ranks_print_counts_once(output: Output) -> None:
    check(output)


@pytest.mark.parametrize(
    ("output", "notice"),
    [
        ("epoch  train_loss  valid_loss  accuracy  time\n0  0.5  0.4  0.91  00:10\n", "at the head of a table"),
        ("epoch,loss,accuracy\n1,0.5,0.91\n", "at the head of a table, whose rows have no names"),
        ("| epoch | accuracy |\n|---|---|\n| 1 | 0.91 |\n", "at the head of a table"),
        ("Class  Images  accuracy  mAP50): 100%|███| 4/4 [00:01<00:00, 2it/s]\nall  128  0.91  0.6\n", "of a table"),
        ("epoch 1 accuracy: 91%\n", "in percent where the threshold is a fraction"),
        ("accuracy 91 %\n", "in percent where the threshold is a fraction"),
        ("accuracy 0.91\n", "before a space, without '='"),
        ("| accuracy | 0.91 |\n", "in the cells of a table"),
        ("epoch 1 accuracy: 0.85 -> 0.91\n", "followed by '-> 0.91'"),
        ("epoch 1 accuracy: 0:10:00\n", "followed by ':10:00'"),
        ("epoch 1 val_accuracy: 0.91\n", "as 'val_accuracy': set spec.objective.target.metric to 'val_accuracy'"),
        ("epoch 1 Accuracy: 0.91\n", "as 'Accuracy': set spec.objective.target.metric"),
        ("[1]\tvalidation_0-accuracy:0.9\tvalidation_1-accuracy:0.8\n", "to the one of the evaluation"),
        ("[10]\ttrain-accuracy:0.99\teval-accuracy:0.91\n", "set spec.objective.target.metric to 'eval-accuracy'"),
        ("epoch 1 train_accuracy: 0.99\n", "has accuracy of the training data, 'train_accuracy'"),
        ("| end of epoch 1 | time: 12s | valid accuracy  0.91 | ppl 6.5\n", "target.metric to 'valid accuracy'"),
        ("step 250: train accuracy 0.99, val accuracy 0.91\n", "target.metric to 'val accuracy'"),
        ("| valid accuracy  0.91\n", "before a space, without '='"),
        # The line that a name alone would mend goes before a later one.
        (
            (
                "Epoch[0] Batch [100]\taccuracy=0.99\nEpoch[0] Validation-accuracy=0.91\n"
                "Epoch[1] Batch [100]\taccuracy=0.99\nepoch 1 best_accuracy=0.91\n"
            ),
            "target.metric to 'Validation-accuracy'",
        ),
        (
            (
                "| epoch 1 | 200/2983 batches | accuracy 0.99 |\n| end of epoch 1 | valid accuracy 0.91 |\n"
                "| epoch 2 | 200/2983 batches | accuracy 0.99 |\n"
            ),
            "target.metric to 'valid accuracy'",
        ),
        # A slip of the pen.
        ("epoch 1 loss=0.3 acuracy=0.83\n", "0.83' has acuracy: did you mean acuracy? Then set spec.objective"),
        ("Epoch 1\nAcurracy 0.83 | loss 0.2\n", "did you mean Acurracy?"),
        ("epoch 1 train_accurac=0.99\nepoch 1 bleu=0.3 accept=0.5 ratio=0.1\n", ""),
    ],
)
def test_a_notice_says_why_a_line_does_not_count(output: str, notice: str) -> None:
    check(accuracy(output, NONE, notice))


def test_a_table_is_noticed_in_its_third_row() -> None:
    reader = OutputReader(LOGS, ACCURACY)
    rows = [b"epoch  loss  accuracy", *(b"%d  0.5  0.91" % epoch for epoch in range(3))]
    notices = [(reader.read(row), reader.reading.unread)[1] for row in rows]
    assert notices[:3] == ["", "", ""]
    assert "at the head of a table" in notices[3]


@of_each(
    Output(
        Target.model_validate({"metric": "auc", "threshold": "0.9"}),
        "[10]\ttraining's auc: 0.99\tvalid_1's auc: 0.85\n[20]\ttraining's auc: 0.99\tvalid_1's auc: 0.93\n",
        [(0.85, None), (0.93, None)],
    ),
    accuracy('{"epoch": 1, "split": "val", "accuracy": 0.91}', [(0.91, 1)]),
    Output(
        Target.model_validate({"metric": "val_accuracy", "threshold": "0.9"}),
        "Epoch 1/9\n100/100 ━━━━━━ 7s 85ms/step - accuracy: 0.95 - val_accuracy: 0.85\n",
        [(0.85, 1)],
    ),
    loss("| epoch 001 | valid on 'valid' subset | loss 0.6 | ppl 2 | num_updates 1500\n", [(0.6, 1)]),
    accuracy("Iteration 500, Testing net (#0)\n    Test net output #0: accuracy = 0.95\n", [(0.95, None)]),
)
def test_the_lines_of_further_loggers_are_read(output: Output) -> None:
    check(output)


@pytest.mark.parametrize(
    ("metric", "line", "read"),
    [
        ("eval_rougeL", "epoch 1 eval_rougeL: 42.1", NONE),
        ("top5", "epoch 1 top5: 42.1", NONE),
        ("reward", "epoch 1 reward: 42.1", [(42.1, 1)]),
        ("wer", "epoch 1 wer: 0.95", NONE),
        ("wer", "epoch 1 wer: 0.95 %", [(0.95, 1)]),
        ("wer", "epoch 1 wer: 12.1", [(12.1, 1)]),
        ("error", "epoch 1 error: 0.95", [(0.95, 1)]),
    ],
)
def test_a_share_on_another_scale_than_its_threshold_does_not_count(
    metric: str, line: str, read: list[tuple[float, float | None]]
) -> None:
    is_rate = metric in ("wer", "error")
    fields = {"threshold": "10", "direction": "Minimize"} if is_rate else {"threshold": "0.9"}
    notice = "" if read else ("as a fraction where the threshold is" if is_rate else "in percent where the threshold")
    check(Output(Target.model_validate({"metric": metric, **fields}), f"{line}\n", read, notice))


ACC1 = Target.model_validate({"metric": "Acc@1", "threshold": "90"})


@pytest.mark.parametrize(
    "head", ["* ", " *   ", "INFO  * ", "[2026-01-02 10:00:00 swin] (main.py 257): INFO  * ", "Test:  "]
)
def test_the_names_and_numbers_of_a_summary_of_an_evaluation_count(head: str) -> None:
    steps = "Test: [ 97/196]\tTime 0.1 (0.3)\tAcc@1 93.0 (94.1)\tAcc@5 99.1 (99.2)\n"
    output = f"Epoch: [0][1/9]\tAcc@1 99.1 (98.1)\n{steps}{head}Acc@1 71.0 Acc@5 90.1\n"
    check(Output(ACC1, output, [(71.0, 1)]))
    check(Output(ACC1.model_copy(update={"metric": "Acc@5"}), output, [(90.1, 1)]))


@of_each(
    # Keras draws its bar again after the validation, Lightning after bars of the validation.
    accuracy(
        "Epoch 1/9\n100/100 ━━━━━━ 7s 85ms/step - accuracy: 0.95 - loss: 0.2\r"
        "100/100 ━━━━━━ 9s 85ms/step - accuracy: 0.95 - loss: 0.2 - val_accuracy: 0.71\nEpoch 2/9\n",
        NONE,
        "of the training data, beside val_accuracy",
    ),
    accuracy(
        "\rEpoch 0: 100%|███| 94/94 [00:09<00:00, 5.4it/s, accuracy=0.99]"
        "\rValidation DataLoader 0: 100%|##| 2/2 [00:00<00:00, 6.9it/s]"
        "\rEpoch 0: 100%|███| 94/94 [00:10<00:00, 5.4it/s, accuracy=0.99, val_accuracy=0.7]\nEpoch 1: 0%|",
        NONE,
        "of the training data, beside val_accuracy",
    ),
    loss(
        evaluations("Epoch {epoch}: 100%|##| 9/9 [00:09<00:00, 9it/s, loss=0.1]\nval_loss={value}", "0.9 0.8"),
        NONE,
        "names loss as 'val_loss': set spec.objective.target.metric to 'val_loss'",
    ),
    accuracy(
        evaluations(
            "Train {epoch}: 100%|##| 9/9 [00:09<00:00, 9it/s, accuracy=0.99]\n"
            "Val {epoch}: 100%|##| 3/3 [00:09<00:00, 9it/s, accuracy={value}]",
            "0.7 0.8",
        ),
        [(0.7, None), (0.8, None)],
    ),
    # The well-known script for CIFAR writes the count over its bar.
    accuracy(
        "Epoch: 0\n [===>......]  Loss: 0.5 | accuracy: 0.99 (99/100)        \b\b\b 20/391 \r"
        " [========>.]  Loss: 0.5 | accuracy: 0.98 (980/1000)      \b\b\b 391/391 \n"
        " [========>.]  Loss: 0.6 | accuracy: 0.71 (710/1000)      \b\b\b 100/100 \nEpoch: 1\n",
        [(0.71, 1)],
    ),
    # AllenNLP draws a bar of the training data, and one of the evaluation.
    accuracy(
        "Epoch 0/9\naccuracy: 0.99, loss: 0.2 ||: 100%|###| 100/100 [00:10<00:00, 9.9it/s]\n"
        "accuracy: 0.71, loss: 0.5 ||: 100%|###| 20/20 [00:01<00:00, 15.1it/s]\nEpoch 1/9\n",
        [(0.71, 1)],
    ),
    accuracy(
        evaluations("Epoch {epoch}\nTraining...\naccuracy: 0.99\n--- Validation ---\naccuracy: {value}", "0.7 0.8"),
        [(0.7, 1), (0.8, 2)],
    ),
    accuracy(
        evaluations("Epoch {epoch} - training\naccuracy: 0.99\nEpoch {epoch} - evaluation\naccuracy: {value}", "0.7"),
        [(0.7, 1)],
    ),
    accuracy("Training...\nloss: 0.3\naccuracy: 0.7\n", [(0.7, None)]),
    accuracy("Training...\nEpoch 1\naccuracy: 0.7\n", [(0.7, 1)]),
)
def test_the_value_of_the_training_data_in_a_bar_or_below_a_heading_does_not_count(output: Output) -> None:
    check(output)


@pytest.mark.parametrize("evaluation", ["Validation: val_accuracy=0.7", "Val accuracy: 0.7"])
def test_once_a_line_names_an_evaluation_others_do_not_count_and_a_notice_says_what_has(evaluation: str) -> None:
    output = f"Epoch 1: accuracy=0.5\n{evaluation}\nEpoch 2: accuracy=0.99\n{evaluation}\n"
    found, notice = read(accuracy(output, NONE))
    assert [each.metric for each in found] == ([0.5, 0.7, 0.7] if "Val " in evaluation else [0.5])
    assert "the value in 'Epoch 1: accuracy=0.5' has counted, and is perhaps of the training data" in notice
    assert f"a later line, {evaluation!r}, has that of an evaluation" in notice
    # The result of the test data at the end is none of each epoch.
    check(
        accuracy(
            "epoch 1 accuracy: 0.5\nepoch 2 accuracy: 0.6\ntest accuracy: 0.55\nfinal accuracy: 0.6\n",
            [(0.5, 1), (0.6, 2), (0.55, 2)],
        )
    )
    check(accuracy("initial test accuracy: 0.1\nepoch 1 accuracy: 0.5\n", [(0.1, None), (0.5, 1)]))


@pytest.mark.parametrize(
    "record",
    [
        "Early stopping, best iteration is:\n[10]\taccuracy: 0.8",
        "best metric, accuracy: 0.8, best_epoch: 1",
        "best model so far: accuracy: 0.8",
    ],
)
def test_the_repeated_value_of_the_best_evaluation_does_not_count(record: str) -> None:
    check(accuracy(f"[10]\taccuracy: 0.8\n[20]\taccuracy: 0.7\n{record}\n", [(0.8, None), (0.7, None)]))


def test_the_first_evaluation_is_shown_as_it_was_understood() -> None:
    reader = OutputReader(LOGS, VAL_ACC)
    assert reader.reading.first == ""
    for line in (b"val_acc: 0.95", b"\x1b[KEpoch 3: val_acc=0.5", b"Epoch 4: val_acc=0.6"):
        reader.read(line)
    assert reader.reading.first == "epoch 3, val_acc 0.5, from 'Epoch 3: val_acc=0.5'"
