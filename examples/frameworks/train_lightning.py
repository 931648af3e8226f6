"""Trains a convolutional network on scikit-learn's handwritten digits with Lightning.

To run it without Wattloop: python examples/frameworks/train_lightning.py
"""

from __future__ import annotations

import digits
import lightning
import simulated_gpu
import torch
from torch.utils.data import DataLoader

import wattloop
from wattloop.integrations.lightning import WattloopCallback

Batch = list[torch.Tensor]


class Classifier(lightning.LightningModule):
    """The network with its optimizer and its metric."""

    def __init__(self) -> None:
        super().__init__()
        self.model = digits.convolutional_network()
        simulated_gpu.follow(self.model)

    def training_step(self, batch: Batch) -> torch.Tensor:
        """The loss of a batch."""
        return torch.nn.functional.cross_entropy(self.model(batch[0]), batch[1])

    def validation_step(self, batch: Batch) -> None:
        """Logs the accuracy of a batch, which Lightning averages."""
        correct = self.model(batch[0]).argmax(dim=1) == batch[1]
        self.log("accuracy", correct.float().mean(), batch_size=len(correct), sync_dist=True)

    def on_validation_epoch_end(self) -> None:
        """Prints the accuracy."""
        if not self.trainer.sanity_checking:
            print(f"accuracy={float(self.trainer.callback_metrics['accuracy']):.4f}", flush=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam, at the learning rate of the default batch size."""
        return torch.optim.Adam(self.parameters(), lr=0.01)


def main() -> None:
    """Train until the validation accuracy reaches the target."""
    train, validation = digits.data_sets()
    run = wattloop.Run(batch_size=256, max_epochs=40)
    lightning.seed_everything(run.seed % 2**32)
    trainer = lightning.Trainer(
        max_epochs=run.max_epochs,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        callbacks=[WattloopCallback(run, metric="accuracy")],
    )
    train_loader = DataLoader(train, batch_size=run.per_device_batch_size, shuffle=True)
    trainer.fit(Classifier(), train_loader, DataLoader(validation, batch_size=len(validation)))


if __name__ == "__main__":
    main()
