"""Which number after a metric's name counts."""

import time

import pytest

from wattloop_operator.domain.named_metric import NamedMetric
from wattloop_operator.domain.output_line import plain_text

ACCURACY = NamedMetric("accuracy", is_fraction=True)


@pytest.mark.parametrize(
    "line",
    [
        "Training Results - Epoch: 1  Avg accuracy: 0.99 Avg loss: 0.05",
        "Train set: Average loss: 0.1, accuracy: 0.99",
        "Train Epoch 3: average loss 0.12, accuracy: 0.99",
        "training epoch 3: mean loss 0.1, accuracy: 0.99",
        "Training results: loss=0.1 accuracy=0.99",
        "Train avg accuracy: 0.99",
        "Train mean accuracy: 0.99",
        "training balanced accuracy: 0.99",
        "Train net output #0: accuracy = 0.99",
        "train-set accuracy: 0.99",
        "Train's accuracy: 0.99",
        "trn accuracy: 0.99",
        "2026-01-01T12:00:00Z train loss: 0.1 accuracy: 0.99",
        "[default0]:train loss: 0.1 accuracy: 0.99",
        "[rank0]: Train: loss=0.1 accuracy=0.99",
        "[rank 0] Epoch 3 train loss: 0.1 accuracy: 0.99",
        "Jan 01 12:00:00 train: loss 0.1 accuracy: 0.99",
        "step 100 | train loss 0.1 | accuracy: 0.99",
        "iter 100 | train loss 0.1 | accuracy: 0.99",
        "Iteration 100: train loss 0.1 | accuracy: 0.99",
        "Fold 1 Epoch 3 train loss 0.1 | accuracy: 0.99",
        "node1 | train loss 0.1 | accuracy: 0.99",
        "GPU 0: train loss 0.1 | accuracy: 0.99",
        '{"mode": "train", "epoch": 3, "loss": 0.1, "accuracy": 0.99}',
        "split=train epoch=3 accuracy=0.99",
        "phase: train, accuracy: 0.99",
        "accuracy: 0.99 (train), 0.71 (val)",
        "epoch 3 accuracy: 0.99 on the training set",
        "INFO - train - loss 0.1 - accuracy: 0.99",
        "INFO train: loss 0.1 - accuracy: 0.99",
        "Train Epoch: 1 [640/60000 (1%)]  Loss: 2.3  accuracy: 0.99",
        "Training: 100%|##| 100/100 [00:05<00:00, 19.2it/s, accuracy=0.99]",
        "epoch 3, train loss: 0.31, accuracy: 0.71, f1: 0.6",
        "val accuracy: 0.7, test accuracy: 0.95",
        "Epoch 3, loss: 0.1, accuracy: 0.99, val_loss: 0.3, val_accuracy: 0.71",
        "Train error: 0.10 accuracy: 0.99",
        "Train Epoch: 3 Time: 12.3s Loss: 0.1 accuracy: 0.99",
        "Training loss after epoch 3: 0.12, accuracy: 0.99",
        "Train epoch 3 done. loss: 0.1 accuracy: 0.99",
        "Train Epoch 3: 100%|##| 100/100 [00:05<00:00, 19.2 samples/s, accuracy=0.99]",
        "train | 12000 samples/s | accuracy: 0.99",
        "| INFO | train_inner | epoch 003:    100 / 1500 accuracy=0.99, ppl=4.3",
        '{"accuracy": 0.99, "epoch": 3, "loss": 0.1, "mode": "train"}',
        "epoch=3 accuracy=0.99 phase=train",
        "\x1b[32mTrain\x1b[0m loss: 0.1 accuracy: 0.99",
        "\x1b[1mtrain\x1b[0m: accuracy=0.99",
        "Epoch 3 average train loss: 0.1, accuracy: 0.99",
        "On train set: accuracy: 0.99",
        "During training: accuracy: 0.99",
        "Evaluating on train: loss 0.1 accuracy: 0.99",
        "Finished training epoch 3: loss 0.1 accuracy: 0.99",
        "train:loss:0.1 accuracy:0.99",
        "INFO:train loss=0.1 accuracy=0.99",
        "accuracy: 0.99 (train) accuracy: 0.71 (val)",
        "class 0 accuracy: 0.99",
        "label cat | accuracy: 0.99",
        "task_1 accuracy: 0.99",
        "Epoch 1/3 (target accuracy: 0.95)",
        "top1 accuracy: 0.71, top5 accuracy: 0.99",
        # The name of a logger, or a message that begins so.
        "2026-01-01 INFO train epoch=1 accuracy=0.99",
        "INFO | __main__:main:42 - train:42 accuracy=0.99",
        "Epoch:train:42 - accuracy=0.99",
        "train() accuracy=0.99",
    ],
)
def test_a_value_that_may_be_of_the_training_data_does_not_count(line: str) -> None:
    found = ACCURACY.value(plain_text(line.encode()))
    assert found.number is None
    assert found.doubt


@pytest.mark.parametrize(
    "line",
    [
        "Epoch 3/10 Loss: 0.1 accuracy: 0.99 Val Loss: 0.9 Val accuracy: 0.71",
        "val accuracy: 0.71 (train: 0.99)",
        "accuracy: 0.71 (train 0.99)",
        "accuracy: 0.71 [train loss 0.1]",
        "Train loss: 0.1 | Validate accuracy: 0.71",
        "train loss 0.1 held-out accuracy: 0.71",
        '{"training": false, "accuracy": 0.71}',
        "Train Loss: 0.1 Vali accuracy: 0.71",
        "test accuracy: 0.71, accuracy: 0.99",
        "Epoch 3 | train time: 12.3s | accuracy: 0.71",
        "Training time: 12.3s, accuracy: 0.71",
        "train samples: 50000 accuracy: 0.71",
        "Training step 300: eval_loss=0.1 accuracy=0.71",
        "Train loss: 0.1 val_loss: 0.2 accuracy: 0.71",
        "best val accuracy: 0.95, val accuracy: 0.71",
        "train.py:30 accuracy=0.71",
        "INFO:train:Epoch 3 accuracy=0.71",
        "INFO:train:Epoch: 3 accuracy=0.71",
        "2026-01-01 12:00:00,123 - train - INFO - Epoch 3 accuracy: 0.71",
        "2026-01-01 12:00:00.123 | INFO     | train:main:30 - Epoch 3 accuracy: 0.71",
        "2026-01-01 00:00:00.000 | SUCCESS  | app.loop:train:42 - epoch=1 accuracy=0.71",
        "__main__:train:42 epoch=1 accuracy=0.71",
        "INFO | train:<module>:42 - epoch=1 accuracy=0.71",
        "[main.py:train:42] epoch=1 accuracy=0.71",
        "[main.py:42 - train()] epoch=1 accuracy=0.71",
        "INFO train (main.py:42) epoch=1 accuracy=0.71",
        "Training finished after 3 epochs, accuracy: 0.71",
        "Training complete. accuracy: 0.71",
        "pre-training accuracy: 0.71",
        "Epoch 1 - train_loss: 0.5 - accuracy: 0.71",
        "train/loss: 0.1 accuracy: 0.71",
        "train accuracy: 0.99, val accuracy: 0.71",
        "Train Loss: 0.1 accuracy: 0.99 | Val Loss: 0.9 accuracy: 0.71",
        '{"train": {"loss": 0.1, "accuracy": 0.99}, "val": {"accuracy": 0.71}}',
        "epoch=3 loss=0.1 accuracy=0.71",
        "Test set: Average loss: 0.0489, accuracy: 0.71 (98%)",
        "val accuracy: 0.71 (best accuracy: 0.8)",
        "max accuracy: 0.8 accuracy: 0.71",
        "training loss: 0.3; validation loss: 0.4; validation accuracy: 0.71",
        "Epoch 3 top5 accuracy: 0.99, accuracy: 0.71",
        "accuracy: 0.71 target accuracy: 0.95",
        "target accuracy: 0.95, accuracy: 0.71",
        "running on host train-7 epoch=3 accuracy=0.71",
        "best accuracy: 0.8 accuracy: 0.71",
    ],
)
def test_the_value_of_an_evaluation_counts_beside_that_of_the_training_data(line: str) -> None:
    assert ACCURACY.value(line).number == "0.71"


def test_the_best_value_counts_where_it_is_the_only_one() -> None:
    assert ACCURACY.value("best accuracy: 0.8").number == "0.8"


@pytest.mark.parametrize("name", ["train_accuracy", "train accuracy", "train/accuracy"])
def test_a_name_that_says_that_it_is_of_the_training_data_counts(name: str) -> None:
    assert NamedMetric(name, is_fraction=True).value(f"train loss=0.1 {name}=0.9 accuracy=0.1").number == "0.9"


def test_a_line_with_two_evaluations_says_how_one_is_chosen() -> None:
    assert ACCURACY.value("val accuracy: 0.7, test accuracy: 0.95").doubt == (
        "of val and of test: set spec.objective.target.metric to the whole name of one, such as 'val accuracy'"
    )


@pytest.mark.parametrize(("is_fraction", "number"), [(True, None), (False, "81")])
def test_a_share_in_percent_counts_where_the_threshold_may_be_in_percent(is_fraction: bool, number: str | None) -> None:
    assert NamedMetric("accuracy", is_fraction=is_fraction).value("accuracy: 81 %").number == number
    assert NamedMetric("accuracy", is_fraction=is_fraction).value("accuracy: 81 percent").number == number


@pytest.mark.parametrize(
    "part",
    ["train accuracy=1 ", "accuracy=1 train ", "train ", "a", "a=1", ": ", "1", "1a", "1/2 ", "1/1 it ", "samples 1 "],
)
def test_no_line_takes_long(part: str) -> None:
    long = part * (16_000 // len(part))
    began_seconds = time.process_time()
    ACCURACY.value(f"train {long} accuracy=0.5")
    ACCURACY.value(f"{long} train loss=0.1 accuracy=0.5")
    # A search whose time grows with the square of the length would need many seconds.
    assert time.process_time() - began_seconds < 2
