"""Wrong use of the integrations: each error is documented, and says what was found and what is valid."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import TrainingArguments

from wattloop import Run
from wattloop.errors import UsageError
from wattloop.integrations import accelerate, huggingface, keras, lightning, pytorch

pytestmark = pytest.mark.integrations

TRACKERS: tuple[Callable[..., object], ...] = (
    huggingface.WattloopCallback,
    lightning.WattloopCallback,
    keras.WattloopCallback,
    accelerate.WattloopTracker,
)
NO_RUNS: tuple[Any, ...] = (None, "accuracy", Run, {"batch_size": 8})


def run() -> Run:
    return Run(batch_size=8, environment={})


def optimizer() -> torch.optim.Optimizer:
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)


@pytest.mark.parametrize("value", NO_RUNS, ids=repr)
@pytest.mark.parametrize(
    "call",
    [
        *TRACKERS,
        pytorch.micro_batches,
        lambda value: pytorch.scale_learning_rates(optimizer(), value),
        lambda value: huggingface.adapted(TrainingArguments("out", eval_strategy="epoch"), value),
    ],
)
def test_what_is_no_run_is_a_usage_error(call: Callable[[Any], object], value: Any) -> None:
    with pytest.raises(UsageError, match=r"^run is .*; it must be a wattloop\.Run: run = wattloop\.Run\(\)$"):
        call(value)


@pytest.mark.parametrize("tracker", TRACKERS)
def test_a_metric_is_given_by_its_name(tracker: Callable[..., object]) -> None:
    with pytest.raises(UsageError, match=r"metric is 0\.9; it must be the name of a metric, such as 'accuracy'"):
        tracker(run(), 0.9)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: huggingface.adapted(run(), run()), "it must be the script's TrainingArguments"),  # type: ignore[arg-type]
        (lambda: pytorch.scale_learning_rates(run(), run()), "it must be an optimizer of torch.optim"),  # type: ignore[arg-type]
        (lambda: pytorch.scale_learning_rates(optimizer(), run(), tuned_for="64"), "tuned_for is '64'; it must be a w"),  # type: ignore[arg-type]
        (lambda: pytorch.micro_batches(run(), 0), "the maximum of a device is 0; it must be a whole number of at"),
        (lambda: pytorch.micro_batches(run(), 1.5), "the maximum of a device is 1.5; it must be a whole number"),  # type: ignore[arg-type]
        (
            lambda: huggingface.adapted(TrainingArguments("out", eval_strategy="epoch"), run(), max_per_device=0),
            "the maximum of a device is 0; it must be a whole number",
        ),
    ],
)
def test_the_error_says_what_was_found_and_what_is_valid(call: Callable[[], object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        call()


def test_a_log_before_the_run_has_begun_says_what_is_missing() -> None:
    tracker = accelerate.WattloopTracker(run(), "accuracy")
    with pytest.raises(UsageError, match="this run has not begun"):
        tracker.log({"accuracy": 0.5})
