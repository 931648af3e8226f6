"""A plain PyTorch loop: its learning rates and the parts of its batch."""

import math
from typing import Any

import pytest
import torch

from wattloop import Run
from wattloop.errors import InputError, UsageError
from wattloop.integrations.pytorch import micro_batches, scale_learning_rates

pytestmark = pytest.mark.integrations


def run_of(**variables: str) -> Run:
    return Run(environment={"WATTLOOP_JOB": "team/digits", "WATTLOOP_BATCH_SIZE": "256", **variables})


def optimizer_of(kind: str = "SGD", **options: Any) -> torch.optim.Optimizer:
    groups = [
        {"params": [torch.nn.Parameter(torch.zeros(2))]},
        {"params": [torch.nn.Parameter(torch.zeros(2))], "lr": 0.5},
    ]
    optimizer: torch.optim.Optimizer = getattr(torch.optim, kind)(groups, lr=0.1, **options)
    return optimizer


def rates(optimizer: torch.optim.Optimizer) -> list[float]:
    return [float(group["lr"]) for group in optimizer.param_groups]


def test_each_group_gets_the_job_s_factor() -> None:
    optimizer = optimizer_of()
    assert scale_learning_rates(optimizer, run_of(WATTLOOP_LEARNING_RATE_SCALE="2.0")) == 2.0
    assert rates(optimizer) == [0.2, 1.0]


@pytest.mark.parametrize(
    ("kind", "factor"), [("SGD", 4.0), ("Adam", 2.0), ("AdamW", 2.0), ("RMSprop", 2.0), ("Adagrad", 2.0)]
)
def test_the_rule_follows_the_optimizer_where_the_script_says_so(kind: str, factor: float) -> None:
    optimizer = optimizer_of(kind)
    assert scale_learning_rates(optimizer, run_of(), tuned_for=64) == factor
    assert rates(optimizer) == pytest.approx([0.1 * factor, 0.5 * factor])


def test_an_optimizer_of_one_s_own_follows_the_rule_of_its_base() -> None:
    class Own(torch.optim.AdamW):
        pass

    assert scale_learning_rates(Own([torch.nn.Parameter(torch.zeros(2))]), run_of(), tuned_for=64) == 2.0


def test_learning_rates_as_tensors_are_scaled() -> None:
    parameters = [torch.nn.Parameter(torch.zeros(2))]
    optimizer = torch.optim.Adam(parameters, lr=torch.tensor(0.1))
    scale_learning_rates(optimizer, run_of(), tuned_for=64)
    assert rates(optimizer) == pytest.approx([0.2])


def test_a_schedule_made_afterwards_begins_at_the_scaled_rate() -> None:
    optimizer = optimizer_of()
    scale_learning_rates(optimizer, run_of(), tuned_for=64)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    optimizer.step()
    schedule.step()
    assert rates(optimizer) == [0.2, 1.0]


def test_an_unknown_optimizer_is_named_with_those_that_are_known() -> None:
    with pytest.raises(UsageError, match=r"no scaling rule is known for Rprop; known are SGD, .*, Adam"):
        scale_learning_rates(optimizer_of("Rprop"), run_of(), tuned_for=64)


def test_two_rules_at_once_are_rejected() -> None:
    run = run_of(WATTLOOP_LEARNING_RATE_SCALE="2.0")
    with pytest.raises(UsageError, match=r"learningRateScaling already scales the learning rate by 2; leave tuned_for"):
        scale_learning_rates(optimizer_of(), run, tuned_for=64)


def test_a_batch_size_to_tune_for_is_positive() -> None:
    with pytest.raises(UsageError, match=r"tuned_for is 0"):
        scale_learning_rates(optimizer_of(), run_of(), tuned_for=0)


def test_the_gpus_of_a_run_share_its_batch() -> None:
    parts = micro_batches(run_of(WATTLOOP_PER_DEVICE_BATCH_SIZE="64"), max_per_device=24)
    assert (parts.batch_size, parts.accumulation, parts.devices) == (21, 3, 4)


def test_the_processes_of_torch_distributed_share_the_batch() -> None:
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        assert micro_batches(run_of(WATTLOOP_PER_DEVICE_BATCH_SIZE="64")).devices == 1
    finally:
        torch.distributed.destroy_process_group()


def test_a_tensor_of_four_elements_is_no_metric() -> None:
    with Run(environment={}) as run:
        run.report(metric=torch.tensor([0.5]))
        with pytest.raises(InputError, match=r"found a Tensor of shape \(4,\), expected one number"):
            run.report(metric=torch.zeros(4))
        run.report(metric=torch.tensor(math.nan))
