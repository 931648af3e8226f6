"""Trains a convolutional network on scikit-learn's handwritten digits with Keras on PyTorch.

To run it without Wattloop: python examples/frameworks/train_keras.py
"""

from __future__ import annotations

import os

# Keras reads it when it is imported.
os.environ.setdefault("KERAS_BACKEND", "torch")

import digits
import keras
import numpy as np
import simulated_gpu
from torch.utils.data import TensorDataset

import wattloop
from wattloop.integrations.keras import WattloopCallback


def arrays(data: TensorDataset) -> tuple[np.ndarray, np.ndarray]:
    """Images with their channels last, and labels."""
    images, labels = data.tensors
    return images.permute(0, 2, 3, 1).numpy(), labels.numpy()


def network() -> keras.Model:
    """Two convolutions and a linear layer."""
    return keras.Sequential(
        [
            keras.layers.Input((8, 8, 1)),
            keras.layers.Conv2D(16, 3, padding="same", activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(digits.CLASSES),
        ]
    )


def main() -> None:
    """Train until the validation accuracy reaches the target."""
    train, validation = (arrays(each) for each in digits.data_sets())
    run = wattloop.Run(batch_size=256, max_epochs=40)
    keras.utils.set_random_seed(run.seed % 2**32)
    model = network()
    model.compile(
        optimizer=keras.optimizers.Adam(0.01),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    model.fit(
        *train,
        batch_size=run.per_device_batch_size,
        epochs=run.max_epochs,
        validation_data=validation,
        callbacks=[WattloopCallback(run, metric="accuracy"), Progress(run.batch_size)],
        verbose=0,
    )


class Progress(keras.callbacks.Callback):
    """Prints the accuracy, and occupies the simulated GPU."""

    def __init__(self, batch_size: int) -> None:
        super().__init__()
        self._batch_size = batch_size

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """See `Callback`."""
        simulated_gpu.occupy(self._batch_size)

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """See `Callback`."""
        print(f"accuracy={logs['val_accuracy']:.4f}", flush=True)


if __name__ == "__main__":
    main()
