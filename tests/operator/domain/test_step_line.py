"""Which lines are of a step or a batch, and so of no evaluation."""

import pytest

from wattloop_operator.api.objective import Target
from wattloop_operator.api.reporting_source import Reporting
from wattloop_operator.domain.training_output import Evaluation, OutputReader


def read(name: str, line: str) -> tuple[Evaluation | None, str]:
    """What counts of a line, and what a notice says."""
    target = Target.model_validate({"metric": name, "threshold": "1000", "direction": "Maximize"})
    reader = OutputReader(Reporting.model_validate({"source": "Logs"}), target)
    return reader.read(line.encode()), reader.reading.unread_at_end


@pytest.mark.parametrize(
    "line",
    [
        "INFO:root:Epoch[0] Batch [100]\tSpeed: 100.0 samples/sec\taccuracy=0.99",
        "step=100 accuracy=0.99",
        "accuracy: 0.99, step: 100",
        "epoch 3 | batch 100 | accuracy: 0.99",
        "Epoch 3, batch 100/600: accuracy: 0.99",
        "Epoch [3/5], Step [600/600], accuracy: 0.99",
        "Epoch: [3]  [ 600/600]  eta: 0:00:00  accuracy: 0.99",
        "global_step=100 accuracy=0.99",
        '{"epoch": 3, "global_step": 100, "accuracy": 0.99}',
        '{"accuracy": 0.99, "batch": 100, "epoch": 3}',
        "[3,  2000] accuracy: 0.99",
        "accuracy: 0.99  [60000/60000]",
        "| epoch 003:   1500 / 1500 accuracy=0.99, ppl=1",
        "[01/01 00:00:00 d2.utils.events]:  eta: 0:01  iter: 100  accuracy: 0.99",
        "After 1000 steps accuracy=0.99",
        "Epoch: 3 [60000/60000 (100%)]  accuracy: 0.99",
        # A part of an epoch, with or without a word for what is counted.
        "| epoch   1 |   200/ 2983 batches | lr 20.00 | ms/batch 10.0 | accuracy  0.99 | ppl  12.1",
        "epoch 1 | 200/2983 | accuracy: 0.99",
        "epoch 1/10 200/2983 accuracy=0.99",
        "1/2983 | epoch 2 | accuracy: 0.99",
        "[1/10][200/2983] accuracy: 0.99",
        "Epoch [1][200]\taccuracy: 0.99",
        "Epoch 1 [20%] accuracy: 0.99",
        "epoch 1 (200 of 2983 batches): accuracy=0.99",
        "epoch 1 accuracy=0.99 (200/2983 batches)",
        "epoch 1 | accuracy: 0.99 | 200/2983",
        "epoch 1 | 200 out of 2983 | accuracy: 0.99",
        "epoch 1 | 200 gradient updates | accuracy: 0.99",
        "epoch 1 | batch_num: 200 | accuracy: 0.99",
        "epoch 1 | it 200 | accuracy: 0.99",
        "Epoch 1: 200 updates, accuracy=0.99",
        "epoch=1 batches=200 accuracy=0.99",
        "epoch: 1, samples 6400, accuracy: 0.99",
        "epoch 1 | 6.4k images | accuracy=0.99",
        "epoch 1 | tokens seen: 1.2M | accuracy: 0.99",
        '{"epoch": 1, "n_examples": 6400, "accuracy": 0.99}',
        "INFO | __main__:validate:42 - batch 3 accuracy=0.99",
        # Numbers that count epochs, or nothing, without an epoch beside them.
        "Epoch 1 | 200-2983 | accuracy: 0.99",
        "epoch 1 i=200 accuracy=0.99",
        "epoch 1, n_iter: 200, accuracy: 0.99",
        "Epoch 1/10 idx 200 | accuracy: 0.99",
        # Hugging Face's Trainer.
        "{'accuracy': 0.99, 'grad_norm': 2.1, 'learning_rate': 3e-05, 'epoch': 1.0}",
        "{'accuracy': 0.99, 'learning_rate': 3e-05, 'epoch': 0.5}",
        "epoch 1.5 accuracy: 0.99",
    ],
)
def test_a_line_of_a_step_counts_only_if_it_names_the_data_of_an_evaluation(line: str) -> None:
    found, notice = read("accuracy", line)
    assert found is None
    assert "has accuracy of a step or a batch, which counts only if" in notice


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("step 250: train loss 1.9, val loss: 0.4", "val loss"),
        ("global_step=100 eval_loss=0.4", "eval_loss"),
        ("Validation, step 100: loss: 0.4", "loss"),
        ("iter 100 test loss: 0.4", "loss"),
        ('{"mode": "val", "epoch": 1, "iter": 98, "loss": 0.4}', "loss"),
        ("Iter(val) [98/98]  loss: 0.4", "loss"),
        ("INFO:tensorflow:Saving dict for global step 100: global_step = 100, loss = 0.4", "loss"),
        ("i=200 loss=0.4", "loss"),
        ("epoch 1 loss=0.4 i=200", "loss"),
        ("epoch 1.0 | 2026-01-02 | 1.5 s/epoch: 1.5, seconds per epoch 1.5 | loss: 0.4", "loss"),
        # A batch size.
        ("epoch=1 loss=0.4 batch=64", "loss"),
        ("epoch=1 batch_size=64 loss=0.4", "loss"),
        # All of an epoch, and counts of something else.
        ("Epoch 1: 2983/2983 batches, loss=0.4", "loss"),
        ("epoch 3/10 | loss 0.4", "loss"),
        ("Epoch: 3 / 10 loss: 0.4", "loss"),
        ("Epoch 3/10 (30%) loss=0.4", "loss"),
        ("fold 1/5 | epoch 3 of 10 | rank 0/8 | loss: 0.4", "loss"),
        ("01/15 10:00:00 INFO epoch=3 loss=0.4", "loss"),
        ("2026/01/15 epoch 3, ms/batch 10.0, 12 it/s, 1200 samples/s, samples per second: 12, loss=0.4", "loss"),
        ("epoch 3 train samples: 60000 loss: 0.4", "loss"),
        ("epoch 1 loss: 0.4 (10000 examples)", "loss"),
        ("epoch 1 loss: 0.4, correct: 9810/10000", "loss"),
        ("epoch 1 evaluated 10000 samples, loss: 0.4", "loss"),
    ],
)
def test_the_evaluation_at_a_step_counts(line: str, name: str) -> None:
    found, _ = read(name, line)
    assert found.metric == 0.4
