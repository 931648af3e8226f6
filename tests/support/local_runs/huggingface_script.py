"""A script of Hugging Face's Trainer that knows nothing of Wattloop, and what it prints."""

import ast
from typing import Any

SCRIPT = """
import argparse

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, required=True)
parser.add_argument("--epochs", type=float, required=True)
options = parser.parse_args()

torch.set_num_threads(1)
torch.manual_seed(0)
tokens = torch.randint(4, 16, (64, 8))
tokens[::2, 0] = 3
data = [{"input_ids": row, "labels": torch.tensor(int(row[0] == 3))} for row in tokens]
config = BertConfig(
    vocab_size=16, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
    max_position_embeddings=8, hidden_dropout_prob=0.0,
)


def metrics(prediction):
    return {"accuracy": float((prediction.predictions.argmax(axis=-1) == prediction.label_ids).mean())}


arguments = TrainingArguments(
    "models",
    num_train_epochs=options.epochs,
    per_device_train_batch_size=options.batch_size,
    per_device_eval_batch_size=64,
    learning_rate=1e-2,
    eval_strategy="epoch",
    logging_strategy="epoch",
    save_strategy="no",
    report_to="none",
    use_cpu=True,
    dataloader_pin_memory=False,
)
model = BertForSequenceClassification(config)
Trainer(model, arguments, train_dataset=data, eval_dataset=data, compute_metrics=metrics).train()
"""


def evaluations(output: str) -> list[tuple[float, float]]:
    """Epoch and accuracy of each evaluation that it printed."""
    found = []
    for line in output.replace("\r", "\n").splitlines():
        start = line.find("{'eval_")
        if start >= 0:
            values: dict[str, Any] = ast.literal_eval(line[start:])
            found.append((float(values["epoch"]), float(values["eval_accuracy"])))
    return found
