"""Probes of a hyperparameter leave the live training as it was, bit for bit."""

import copy
import itertools
import random
from collections.abc import Iterator
from typing import Any

import numpy
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from wattloop.errors import UsageError
from wattloop.integrations.pytorch_probe import probe_values, repeated, set_dropout, set_learning_rate

pytestmark = pytest.mark.integrations


class Training:
    """A small network with dropout, batch normalisation and Adam, in the middle of an epoch."""

    def __init__(self) -> None:
        torch.manual_seed(7)
        random.seed(7)
        numpy.random.seed(7)
        inputs = torch.randn(64, 8)
        outputs = inputs @ torch.randn(8, 1)
        self.loader = DataLoader(
            TensorDataset(inputs, outputs), batch_size=8, shuffle=True, generator=torch.Generator().manual_seed(3)
        )
        self.model = torch.nn.Sequential(
            torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Dropout(0.2), torch.nn.Linear(16, 1)
        )
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.batches: Iterator[Any] = iter(self.loader)
        for _ in range(3):
            self.step(self.model, self.optimizer, next(self.batches))

    @staticmethod
    def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, batch: Any) -> torch.Tensor:
        random.random()
        numpy.random.random()
        optimizer.zero_grad()
        loss: torch.Tensor = torch.nn.functional.mse_loss(model(batch[0]), batch[1])
        loss.backward()
        optimizer.step()
        return loss

    def state(self) -> list[Any]:
        generators = (torch.default_generator, self.loader.generator)
        return [
            copy.deepcopy(self.model.state_dict()),
            [parameter.grad.clone() for parameter in self.model.parameters()],
            copy.deepcopy(self.optimizer.state_dict()),
            [generator.get_state() for generator in generators],
            random.getstate(),
            numpy.random.get_state(),
            [module.training for module in self.model.modules()],
        ]

    def rest(self) -> list[float]:
        """The losses of the rest of the epoch and of the next one."""
        losses = [self.step(self.model, self.optimizer, batch).item() for batch in self.batches]
        return losses + [self.step(self.model, self.optimizer, batch).item() for batch in self.loader]


def equal(one: Any, other: Any) -> bool:
    """Whether two nested states are equal bit for bit."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, numpy.ndarray):
        return bool((one == other).all())
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    return bool(one == other)


@pytest.mark.parametrize(
    ("values", "apply"), [((1e-4, 1e-2, 1e6), set_learning_rate), ((0.0, 0.9), set_dropout)], ids=["rate", "dropout"]
)
def test_the_live_training_goes_on_as_if_nothing_was_probed(values: tuple[float, ...], apply: Any) -> None:
    expected = Training().rest()
    training = Training()
    before = training.state()
    probes = probe_values(
        values, training.model, training.optimizer, training.step, apply, data=training.loader, steps=12
    )
    assert equal(training.state(), before)
    assert training.rest() == expected
    assert [probe.value for probe in probes.probes] == list(values)
    assert all(len(probe.losses) == 12 for probe in probes.probes if not probe.diverged)


def test_the_best_learning_rate_is_found_and_equal_values_give_equal_losses() -> None:
    training = Training()
    probes = probe_values(
        (1e-5, 3e-2, 3e-2), training.model, training.optimizer, training.step, set_learning_rate, data=training.loader
    )
    assert probes.best == 3e-2
    assert probes.probes[1].losses == probes.probes[2].losses


def test_a_step_on_the_live_model_is_an_error() -> None:
    training = Training()

    def wrong(model: torch.nn.Module, optimizer: torch.optim.Optimizer, batch: Any) -> torch.Tensor:
        return training.step(training.model, training.optimizer, batch)

    with pytest.raises(UsageError, match="must use the model and the optimizer that it gets"):
        probe_values((1e-3,), training.model, training.optimizer, wrong, set_learning_rate, data=training.loader)


@pytest.mark.parametrize(
    ("data", "values", "message"),
    [
        (iter([1]), (0.1,), "iterator"),
        (DataLoader([1], num_workers=1, persistent_workers=True), (0.1,), "persistent workers"),  # type: ignore[arg-type]
        ([], (0.1,), "no batch"),
        ([1], (), "no value"),
    ],
)
def test_wrong_use_says_what_was_meant(data: Any, values: tuple[float, ...], message: str) -> None:
    training = Training()
    with pytest.raises(UsageError, match=message):
        probe_values(values, training.model, training.optimizer, training.step, set_learning_rate, data=data)


def test_a_stateful_data_loader_gets_its_position_back() -> None:
    class Loader:
        """A data loader with a position that iteration changes, like torchdata's StatefulDataLoader."""

        def __init__(self, batches: list[Any]) -> None:
            self.batches, self.position = batches, 2

        def __iter__(self) -> Iterator[Any]:
            for position, batch in enumerate(self.batches):
                self.position = position
                yield batch

        def state_dict(self) -> dict[str, int]:
            return {"position": self.position}

        def load_state_dict(self, state: dict[str, int]) -> None:
            self.position = state["position"]

    training = Training()
    loader = Loader(list(training.loader))
    probe_values((1e-3,), training.model, training.optimizer, training.step, set_learning_rate, data=loader, steps=7)
    assert loader.position == 2


class OnePass:
    """Batches that can be iterated once, but are no iterator."""

    def __init__(self) -> None:
        self.batches = iter([1, 2])

    def __iter__(self) -> Iterator[int]:
        return self.batches


def test_data_that_ends_after_one_pass_is_refused() -> None:
    with pytest.raises(UsageError, match="data has no batch"):
        list(itertools.islice(repeated(OnePass()), 3))
