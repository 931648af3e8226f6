"""Trains a small residual network on scikit-learn's handwritten digits with Hugging Face's Trainer.

The model is made here, so nothing is downloaded. To run it without Wattloop:
python examples/frameworks/train_huggingface.py
"""

from __future__ import annotations

import tempfile
from typing import Any

import digits
import simulated_gpu
from torch.utils.data import TensorDataset
from transformers import EvalPrediction, ResNetConfig, ResNetForImageClassification, Trainer, TrainingArguments

import wattloop
from wattloop.integrations.huggingface import WattloopCallback, adapted


def accuracy(prediction: EvalPrediction) -> dict[str, float]:
    """Fraction of the examples that the model classifies correctly."""
    return {"accuracy": float((prediction.predictions.argmax(axis=1) == prediction.label_ids).mean())}


def examples(data: TensorDataset) -> list[dict[str, Any]]:
    """The examples as the model's arguments by name."""
    return [{"pixel_values": image, "labels": label} for image, label in data]


def main() -> None:
    """Train until the validation accuracy reaches the target."""
    train, validation = digits.data_sets()
    run = wattloop.Run(batch_size=128, max_epochs=20)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            learning_rate=4e-3,
            eval_strategy="epoch",
            logging_strategy="epoch",
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            dataloader_pin_memory=False,
        )
        arguments = adapted(arguments, run)

        def new_model() -> ResNetForImageClassification:
            model = ResNetForImageClassification(config)
            simulated_gpu.follow(model)
            return model

        config = ResNetConfig(
            num_channels=1,
            embedding_size=16,
            hidden_sizes=[32, 64],
            depths=[1, 1],
            layer_type="basic",
            num_labels=digits.CLASSES,
        )
        trainer = Trainer(
            model_init=new_model,
            args=arguments,
            train_dataset=examples(train),
            eval_dataset=examples(validation),
            compute_metrics=accuracy,
            callbacks=[WattloopCallback(run)],
        )
        trainer.train()


if __name__ == "__main__":
    main()
