"""Lightning's Trainer with the callback, and a reporting API of the test."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from support.reporting.managed_runs import epochs_and_metrics, managed_run
from support.reporting.report_server import ReportServer, answering
from wattloop import Run
from wattloop.errors import InputError
from wattloop.integrations.lightning import WattloopCallback

pytestmark = [
    pytest.mark.integrations,
    # Lightning's own, on each machine and on each fit.
    pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec.*"),
    pytest.mark.filterwarnings("ignore:.*does not have many workers.*"),
    pytest.mark.filterwarnings("ignore:.*number of training batches.*"),
    pytest.mark.filterwarnings("ignore:.*Checkpoint directory .* exists and is not empty.*"),
]

EXAMPLES = 20
STOP = b'{"stop": true, "reason": "too expensive"}'


class Module(lightning.LightningModule):
    """Learns nothing, and logs the accuracies that a test gives it."""

    def __init__(self, *accuracies: Any, name: str = "val_accuracy", scheduler: Any = None) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)
        self._accuracies: Iterator[Any] = iter(accuracies)
        self._name = name
        self._scheduler = scheduler

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        loss: torch.Tensor = self.layer(batch[0]).sum()
        return loss

    def validation_step(self, batch: list[torch.Tensor], index: int) -> None:
        if index == 0 and not self.trainer.sanity_checking:
            accuracy = next(self._accuracies)
            if isinstance(accuracy, Exception):
                raise accuracy
            self.log(self._name, accuracy, batch_size=len(batch[0]))

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        return optimizer if self._scheduler is None else ([optimizer], [self._scheduler(optimizer)])


def fit(
    run: Run, module: Module, folder: Path, *, batch_size: int = 8, checkpoint: Path | None = None, **options: Any
) -> lightning.Trainer:
    data = TensorDataset(torch.ones(EXAMPLES, 2))
    settings = {
        "accelerator": "cpu",
        "max_epochs": run.max_epochs,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "callbacks": [WattloopCallback(run)],
        "default_root_dir": folder,
        **options,
    }
    trainer = lightning.Trainer(**settings)
    loaders = DataLoader(data, batch_size=batch_size), DataLoader(data, batch_size=EXAMPLES)
    trainer.fit(module, *loaders, ckpt_path=checkpoint, weights_only=False)
    return trainer


def rate(trainer: lightning.Trainer) -> float:
    return float(trainer.optimizers[0].param_groups[0]["lr"])


def test_each_epoch_is_reported_once_and_the_training_ends_at_the_target(
    report_server: ReportServer, tmp_path: Path
) -> None:
    run = managed_run(report_server)
    trainer = fit(run, Module(0.5, 0.95), tmp_path)
    assert epochs_and_metrics(report_server) == [
        (0, None, False),
        (1, 0.5, False),
        (2, pytest.approx(0.95), False),
        (2, pytest.approx(0.95), True),
    ]
    assert trainer.current_epoch == 2
    assert run.reached
    assert not run.active


def test_the_run_s_maximum_number_of_epochs_is_the_trainer_s(report_server: ReportServer, tmp_path: Path) -> None:
    trainer = fit(managed_run(report_server), Module(0.1, 0.2, 0.3, 0.4), tmp_path, max_epochs=1000)
    assert (trainer.current_epoch, report_server.reports[-1]["epoch"]) == (4, 4)


def test_a_stop_by_the_operator_ends_the_training_after_the_epoch(report_server: ReportServer, tmp_path: Path) -> None:
    report_server.behaviour = answering(200, STOP)
    assert fit(managed_run(report_server), Module(0.1, 0.2), tmp_path).current_epoch == 1


def test_the_last_of_several_validations_in_an_epoch_counts(report_server: ReportServer, tmp_path: Path) -> None:
    # Three batches an epoch, validated after each.
    trainer = fit(managed_run(report_server), Module(0.95, 0.2, 0.3, 0.4, 0.5, 0.96), tmp_path, val_check_interval=1)
    assert [metric for _, metric, _ in epochs_and_metrics(report_server)] == [
        None,
        pytest.approx(0.3),
        pytest.approx(0.96),
        pytest.approx(0.96),
    ]
    assert trainer.current_epoch == 2


def test_an_epoch_without_validation_is_reported_too(report_server: ReportServer, tmp_path: Path) -> None:
    fit(managed_run(report_server), Module(0.5, 0.6), tmp_path, check_val_every_n_epoch=2)
    assert [metric for _, metric, _ in epochs_and_metrics(report_server)] == [
        None,
        None,
        0.5,
        0.5,
        pytest.approx(0.6),
        pytest.approx(0.6),
    ]


def test_learning_rates_and_those_of_schedulers_get_the_run_s_factor(
    report_server: ReportServer, tmp_path: Path
) -> None:
    def halved_each_epoch(optimizer: torch.optim.Optimizer) -> Any:
        return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5**epoch)

    run = managed_run(report_server, WATTLOOP_LEARNING_RATE_SCALE="4.0")
    trainer = fit(run, Module(0.1, 0.2, 0.95, scheduler=halved_each_epoch), tmp_path)
    assert rate(trainer) == pytest.approx(0.1 * 4 * 0.5**3)


def test_a_restored_training_is_not_scaled_twice(report_server: ReportServer, tmp_path: Path) -> None:
    first = fit(managed_run(report_server, WATTLOOP_LEARNING_RATE_SCALE="4.0"), Module(0.95), tmp_path)
    first.save_checkpoint(tmp_path / "checkpoint")
    for factor, expected in (("4.0", 0.4), ("2.0", 0.2)):
        run = managed_run(report_server, WATTLOOP_LEARNING_RATE_SCALE=factor)
        restored = fit(run, Module(0.95), tmp_path, checkpoint=tmp_path / "checkpoint")
        assert (restored.current_epoch, rate(restored)) == (2, pytest.approx(expected))


def test_a_script_may_scale_its_learning_rates_itself(report_server: ReportServer, tmp_path: Path) -> None:
    run = managed_run(report_server, WATTLOOP_LEARNING_RATE_SCALE="4.0")
    callback = WattloopCallback(run, scale_learning_rates=False)
    assert rate(fit(run, Module(0.95), tmp_path, callbacks=[callback])) == 0.1


def test_the_samples_of_each_step_are_counted_over_accumulated_batches(
    report_server: ReportServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = managed_run(report_server)
    samples: list[int | None] = []
    monkeypatch.setattr(run, "step", samples.append)
    fit(run, Module(0.95), tmp_path, batch_size=4, accumulate_grad_batches=2)
    assert samples == [8, 8, 4]


def test_an_exception_ends_the_run_without_a_report_of_success(report_server: ReportServer, tmp_path: Path) -> None:
    run = managed_run(report_server)
    with pytest.raises(RuntimeError, match="out of memory"):
        fit(run, Module(0.5, RuntimeError("out of memory")), tmp_path)
    assert epochs_and_metrics(report_server) == [(0, None, False), (1, 0.5, False), (1, 0.5, False)]
    assert not run.active


@pytest.mark.parametrize(
    ("module", "options", "variables", "message"),
    [
        (Module(0.5, name="loss"), {}, {}, r"validation: found loss, expected val_accuracy or accuracy among"),
        (Module(), {"limit_val_batches": 0}, {}, r"Trainer: found no validation in the epoch, expected one that logs"),
        (Module(), {"max_steps": 7}, {}, r"Trainer: found max_steps=7, expected max_epochs"),
        (
            Module(),
            {},
            {"RANK": "0", "WORLD_SIZE": "2"},
            r"found 1 processes, of which Wattloop knows 2, expected that torchrun",
        ),
    ],
)
def test_wrong_use_says_what_was_found_and_what_is_valid(
    report_server: ReportServer,
    tmp_path: Path,
    module: Module,
    options: dict[str, Any],
    variables: dict[str, str],
    message: str,
) -> None:
    run = managed_run(report_server, **variables)
    with pytest.raises(InputError, match=message):
        fit(run, module, tmp_path, **options)
    assert not run.active


@pytest.mark.parametrize(("batch_size", "accumulation", "warned"), [(8, 1, False), (3, 2, False), (4, 1, True)])
def test_another_batch_size_of_the_data_loader_is_noticed(
    report_server: ReportServer,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    batch_size: int,
    accumulation: int,
    warned: bool,
) -> None:
    with caplog.at_level(logging.WARNING, "wattloop"):
        run = managed_run(report_server, WATTLOOP_BATCH_SIZE="7" if accumulation == 2 else "8")
        fit(run, Module(0.95), tmp_path, batch_size=batch_size, accumulate_grad_batches=accumulation)
    assert ("use run.per_device_batch_size or micro_batches(run)" in caplog.text) is warned
