"""Hugging Face's Trainer with the callback, and a reporting API of the test."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import EvalPrediction, Trainer, TrainerCallback, TrainingArguments

from nvml_simulator import Machine
from support.agents.simulated_node import simulated_node
from support.reporting.managed_runs import epochs_and_metrics, managed_run
from support.reporting.report_server import ReportServer, answering
from wattloop import PowerLimitOptimizer, Run
from wattloop.errors import InputError, UsageError
from wattloop.integrations.huggingface import PowerLimitCallback, WattloopCallback, adapted
from wattloop.power.selectors import Energy

pytestmark = pytest.mark.integrations

EXAMPLES = 20
STOP = b'{"stop": true, "reason": "too expensive"}'


class Model(torch.nn.Module):
    """Learns nothing, in the form that the Trainer expects."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)

    def forward(self, inputs: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.layer(inputs)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


class Metrics:
    """Gives each evaluation its accuracy."""

    def __init__(self, *accuracies: Any) -> None:
        self._accuracies: Iterator[Any] = iter(accuracies)

    def __call__(self, _: EvalPrediction) -> dict[str, Any]:
        return {"accuracy": next(self._accuracies)}


def arguments_of(folder: Path, **changes: Any) -> TrainingArguments:
    settings = {
        "eval_strategy": "epoch",
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
        "use_cpu": True,
        **changes,
    }
    return TrainingArguments(str(folder), **settings)


def trainer_of(arguments: TrainingArguments, metrics: Any, *callbacks: TrainerCallback, **others: Any) -> Trainer:
    data = [{"inputs": torch.ones(2), "labels": torch.tensor(0)} for _ in range(EXAMPLES)]
    options = {"train_dataset": data, "eval_dataset": data, **others}
    return Trainer(model=Model(), args=arguments, compute_metrics=metrics, callbacks=[*callbacks], **options)


class Steps(TrainerCallback):
    """Records the samples of each step of a run."""

    def __init__(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        self.samples: list[int | None] = []
        step = run.step

        def recorded(samples: int | None = None) -> None:
            self.samples.append(samples)
            step(samples)

        monkeypatch.setattr(run, "step", recorded)


def test_each_epoch_is_reported_once_and_the_training_ends_at_the_target(
    report_server: ReportServer, tmp_path: Path
) -> None:
    run = managed_run(report_server)
    trainer = trainer_of(adapted(arguments_of(tmp_path), run), Metrics(0.5, 0.95), WattloopCallback(run))
    trainer.train()
    assert epochs_and_metrics(report_server) == [(0, None, False), (1, 0.5, False), (2, 0.95, False), (2, 0.95, True)]
    assert trainer.state.epoch == 2
    assert run.reached
    assert not run.active


def test_the_training_ends_at_the_last_epoch_without_the_target(report_server: ReportServer, tmp_path: Path) -> None:
    run = managed_run(report_server)
    trainer = trainer_of(adapted(arguments_of(tmp_path), run), Metrics(0.1, 0.2, 0.3, 0.4), WattloopCallback(run))
    trainer.train()
    assert epochs_and_metrics(report_server)[-1] == (4, 0.4, True)
    assert trainer.state.epoch == 4


def test_a_stop_by_the_operator_ends_the_training_after_the_epoch(report_server: ReportServer, tmp_path: Path) -> None:
    run = managed_run(report_server)
    callback = WattloopCallback(run)
    trainer = trainer_of(adapted(arguments_of(tmp_path), run), Metrics(0.1, 0.2), callback)
    report_server.behaviour = answering(200, STOP)
    trainer.train()
    assert trainer.state.epoch == 1
    assert run.stop_reason == "too expensive"


def test_an_epoch_without_an_evaluation_is_reported_too(report_server: ReportServer, tmp_path: Path) -> None:
    run = managed_run(report_server)
    arguments = adapted(arguments_of(tmp_path, eval_delay=2), run)
    trainer_of(arguments, Metrics(0.5, 0.95, 1.0), WattloopCallback(run)).train()
    assert epochs_and_metrics(report_server)[1:] == [
        (1, None, False),
        (2, 0.5, False),
        (3, 0.95, False),
        (3, 0.95, True),
    ]


def test_evaluations_before_and_after_the_training_are_left_alone(report_server: ReportServer, tmp_path: Path) -> None:
    run = managed_run(report_server)
    trainer = trainer_of(adapted(arguments_of(tmp_path), run), Metrics(0.1, 0.95, 0.2), WattloopCallback(run))
    trainer.evaluate()
    assert report_server.reports == []
    trainer.train()
    count = len(report_server.reports)
    trainer.evaluate()
    assert [len(report_server.reports), report_server.reports[-1]["metric"]] == [count, 0.95]


def test_a_script_that_begins_the_run_itself_ends_it_itself(report_server: ReportServer, tmp_path: Path) -> None:
    with managed_run(report_server) as run:
        trainer_of(adapted(arguments_of(tmp_path), run), Metrics(0.95), WattloopCallback(run)).train()
        assert run.active
        run.report(metric=0.96)
    assert epochs_and_metrics(report_server)[-2:] == [(1, 0.96, False), (1, 0.96, True)]


def test_one_of_several_data_sets_has_the_metric(report_server: ReportServer, tmp_path: Path) -> None:
    run = managed_run(report_server)
    data = [{"inputs": torch.ones(2), "labels": torch.tensor(0)} for _ in range(4)]
    callback = WattloopCallback(run, metric="second_accuracy")
    options = {"eval_dataset": {"first": data, "second": data}}
    trainer_of(adapted(arguments_of(tmp_path), run), Metrics(0.99, 0.5, 0.1, 0.95), callback, **options).train()
    assert [metric for _, metric, _ in epochs_and_metrics(report_server)] == [None, 0.5, 0.95, 0.95]


def test_batch_accumulation_rate_and_seed_are_the_run_s(report_server: ReportServer, tmp_path: Path) -> None:
    variables = {"WATTLOOP_BATCH_SIZE": "96", "WATTLOOP_LEARNING_RATE_SCALE": "0.5", "WATTLOOP_SEED": str(2**40 + 7)}
    run = managed_run(report_server, **variables)
    own = arguments_of(tmp_path, per_device_train_batch_size=16, learning_rate=0.2)
    changed = adapted(own, run, max_per_device=40)
    assert (changed.per_device_train_batch_size, changed.gradient_accumulation_steps) == (32, 3)
    assert (changed.train_batch_size, changed.num_train_epochs, changed.learning_rate, changed.seed) == (32, 4, 0.1, 7)
    # The script's own arguments stay, so that a second call scales nothing twice.
    assert (own.per_device_train_batch_size, own.learning_rate) == (16, 0.2)


def test_the_samples_of_each_step_are_counted_without_the_missing_ones(
    report_server: ReportServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = managed_run(report_server)
    steps = Steps(run, monkeypatch)
    arguments = adapted(arguments_of(tmp_path), run, max_per_device=4)
    trainer_of(arguments, Metrics(0.1, 0.95), WattloopCallback(run)).train()
    assert steps.samples == [8, 8, 4] * 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"eval_strategy": "no"}, r"TrainingArguments: found eval_strategy='no', expected 'epoch'"),
        ({"eval_strategy": "steps", "eval_steps": 5}, r"found eval_strategy='steps', expected 'epoch'"),
        ({"max_steps": 100}, r"found max_steps=100, expected num_train_epochs"),
        ({"auto_find_batch_size": True}, r"found auto_find_batch_size=True, expected False"),
        ({"accelerator_config": {"split_batches": True}}, r"found split_batches=True, expected False"),
    ],
)
def test_arguments_that_contradict_a_decision_are_named(
    report_server: ReportServer, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    run = managed_run(report_server)
    arguments = arguments_of(tmp_path, **changes)
    with pytest.raises(InputError, match=message):
        adapted(arguments, run)
    with pytest.raises(InputError, match=message):
        trainer_of(arguments, Metrics(0.1), WattloopCallback(run)).train()
    assert report_server.reports == []


def test_a_missing_metric_is_named_with_those_that_are_there(report_server: ReportServer, tmp_path: Path) -> None:
    run = managed_run(report_server)
    trainer = trainer_of(adapted(arguments_of(tmp_path), run), None, WattloopCallback(run))
    with pytest.raises(
        InputError, match=r"the Trainer's evaluation: found eval_loss, .*, expected eval_accuracy or accuracy among"
    ):
        trainer.train()


def test_a_metric_of_four_elements_is_an_error_that_says_so(report_server: ReportServer, tmp_path: Path) -> None:
    run = managed_run(report_server)
    trainer = trainer_of(adapted(arguments_of(tmp_path), run), Metrics(torch.zeros(4).numpy()), WattloopCallback(run))
    with pytest.raises(InputError, match=r"eval_accuracy: found a ndarray of shape \(4,\), expected one number"):
        trainer.train()


def test_a_run_is_of_one_training(report_server: ReportServer, tmp_path: Path) -> None:
    run = managed_run(report_server)
    trainer = trainer_of(adapted(arguments_of(tmp_path), run), Metrics(0.95, 0.95), WattloopCallback(run))
    trainer.train()
    with pytest.raises(UsageError, match=r"this run has begun before; make another wattloop\.Run"):
        trainer.train()


class Work(TrainerCallback):
    """Occupies simulated GPUs for about a second before each step ends."""

    def __init__(self, gpus: Machine) -> None:
        self._gpus = gpus

    def on_step_end(self, *_: object, **others: object) -> None:
        self._gpus.occupy([0], work=312.0, intensity=0.9)


def test_the_trainers_steps_measure_power_limits_and_its_end_releases_the_chosen_one(tmp_path: Path) -> None:
    with simulated_node(1) as node:
        optimizer = PowerLimitOptimizer(node.socket, Energy(), limits_watts=(400.0, 200.0), environment={})
        limits: list[float] = []

        class Limits(TrainerCallback):
            def on_epoch_end(self, *_: object, **others: object) -> None:
                limits.append(node.gpus.describe().gpus[0].power_limit_watts)

        arguments = arguments_of(tmp_path, num_train_epochs=30, per_device_train_batch_size=2)
        callbacks = (Work(node.gpus), PowerLimitCallback(optimizer), Limits())
        trainer_of(arguments, Metrics(*[0.5] * 30), *callbacks).train()
        assert limits[-1] == optimizer.result.power_limit_watts
        assert node.gpus.describe().gpus[0].power_limit_watts == 400.0


def test_a_power_limit_callback_without_an_optimizer_is_wrong_usage() -> None:
    with pytest.raises(UsageError, match=r"it must be a wattloop\.PowerLimitOptimizer"):
        PowerLimitCallback("agent.sock")  # type: ignore[arg-type]
