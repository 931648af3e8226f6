"""Keras on PyTorch with the callback, and a reporting API of the test."""

from typing import Any

import keras
import numpy as np
import pytest

from support.reporting.managed_runs import epochs_and_metrics, managed_run
from support.reporting.report_server import ReportServer, answering
from wattloop import Run
from wattloop.errors import InputError, UsageError
from wattloop.integrations.keras import WattloopCallback

pytestmark = pytest.mark.integrations

EXAMPLES = 20
STOP = b'{"stop": true, "reason": "too expensive"}'


class Accuracies(keras.callbacks.Callback):
    """Puts the accuracies of a test in the place of each validation's. That of the training data would end the run."""

    def __init__(self, *values: float) -> None:
        super().__init__()
        self._values = iter(values)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        logs["accuracy"] = 1.0
        if "val_loss" in logs:
            logs["val_accuracy"] = next(self._values)


def model(optimizer: Any = None) -> Any:
    made = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
    made.compile(optimizer or keras.optimizers.SGD(0.1), "mse")
    return made


def fit(
    run: Run, accuracies: Accuracies, trained: Any = None, *, callback: WattloopCallback | None = None, **options: Any
) -> Any:
    inputs, outputs = np.ones((EXAMPLES, 2)), np.zeros((EXAMPLES, 1))
    settings = {
        "batch_size": 8,
        "epochs": run.max_epochs,
        "validation_data": (inputs, outputs),
        "verbose": 0,
        "callbacks": [accuracies, callback or WattloopCallback(run)],
        **options,
    }
    return (trained or model()).fit(inputs, outputs, **settings)


def epochs_of(history: Any) -> int:
    return len(history.epoch)


def test_each_epoch_is_reported_once_and_the_training_ends_at_the_target(report_server: ReportServer) -> None:
    run = managed_run(report_server)
    history = fit(run, Accuracies(0.5, 0.95))
    assert epochs_and_metrics(report_server) == [
        (0, None, False),
        (1, 0.5, False),
        (2, pytest.approx(0.95), False),
        (2, pytest.approx(0.95), True),
    ]
    assert epochs_of(history) == 2
    assert run.reached
    assert not run.active


def test_the_training_ends_after_the_run_s_last_epoch(report_server: ReportServer) -> None:
    history = fit(managed_run(report_server), Accuracies(0.1, 0.2, 0.3, 0.4), epochs=1000)
    assert (epochs_of(history), report_server.reports[-1]["epoch"]) == (4, 4)


def test_a_stop_by_the_operator_ends_the_training_after_the_epoch(report_server: ReportServer) -> None:
    report_server.behaviour = answering(200, STOP)
    assert epochs_of(fit(managed_run(report_server), Accuracies(0.1, 0.2))) == 1


def test_the_learning_rate_gets_the_run_s_factor_once(report_server: ReportServer) -> None:
    trained = model()
    for factor, expected in (("4.0", 0.4), ("4.0", 0.4), ("2.0", 0.2)):
        fit(managed_run(report_server, WATTLOOP_LEARNING_RATE_SCALE=factor), Accuracies(0.95), trained)
        assert float(trained.optimizer.learning_rate) == pytest.approx(expected)


def test_a_schedule_gets_the_run_s_factor_and_can_be_saved(report_server: ReportServer) -> None:
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, decay_steps=3, decay_rate=0.5)
    trained = model(keras.optimizers.SGD(schedule))
    fit(managed_run(report_server, WATTLOOP_LEARNING_RATE_SCALE="4.0"), Accuracies(0.1, 0.95), trained)
    # Two epochs of three steps.
    assert float(trained.optimizer.learning_rate) == pytest.approx(0.1 * 4 * 0.5**2)
    restored = keras.optimizers.deserialize(keras.optimizers.serialize(trained.optimizer))
    assert float(restored.learning_rate) == pytest.approx(0.4)


def test_a_script_may_scale_its_learning_rate_itself(report_server: ReportServer) -> None:
    run, trained = managed_run(report_server, WATTLOOP_LEARNING_RATE_SCALE="4.0"), model()
    fit(run, Accuracies(0.95), trained, callback=WattloopCallback(run, scale_learning_rate=False))
    assert float(trained.optimizer.learning_rate) == pytest.approx(0.1)


@pytest.mark.parametrize(("accumulation", "steps"), [(None, [8, 8, 8]), (3, [8])])
def test_the_samples_of_each_step_are_counted_over_accumulated_batches(
    report_server: ReportServer, monkeypatch: pytest.MonkeyPatch, accumulation: int | None, steps: list[int]
) -> None:
    run = managed_run(report_server)
    samples: list[int | None] = []
    monkeypatch.setattr(run, "step", samples.append)
    fit(run, Accuracies(0.95), model(keras.optimizers.SGD(0.1, gradient_accumulation_steps=accumulation)))
    assert samples == steps


@pytest.mark.parametrize(
    ("rate", "options", "message"),
    [
        (0.1, {"epochs": 3}, r"Keras' fit: found epochs=3, expected run.max_epochs, 4 at least"),
        (0.1, {"validation_data": None}, r"found no validation in the epoch, expected validation_data"),
        (lambda: 0.1, {}, r"found a learning rate that is a function, expected a number or a schedule"),
    ],
)
def test_wrong_use_says_what_was_found_and_what_is_valid(
    report_server: ReportServer, rate: Any, options: dict[str, Any], message: str
) -> None:
    run = managed_run(report_server, WATTLOOP_LEARNING_RATE_SCALE="4.0")
    with pytest.raises(InputError, match=message):
        fit(run, Accuracies(0.5), model(keras.optimizers.SGD(rate)), **options)
    assert not run.active


def test_a_validation_without_the_metric_ends_the_training_with_the_names_that_it_has(
    report_server: ReportServer,
) -> None:
    run = managed_run(report_server)
    with pytest.raises(InputError, match=r"found loss, val_loss, .*, expected val_top5 or top5 among the metrics"):
        fit(run, Accuracies(0.5), callback=WattloopCallback(run, "top5"))
    assert not run.active


def test_a_run_that_has_ended_cannot_be_used_again(report_server: ReportServer) -> None:
    run = managed_run(report_server)
    fit(run, Accuracies(0.95))
    with pytest.raises(UsageError, match=r"begun before; make another wattloop\.Run"):
        fit(run, Accuracies(0.95))
