"""The Python of readers' pages that needs PyTorch runs, in the script that the pages assume."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.utils.data import DataLoader, TensorDataset

import wattloop
from support.reader_pages.block_table import TORCH, blocks_of
from support.reader_pages.pages import Block
from wattloop.integrations.torch_pipelining import FOLLOWED

pytestmark = pytest.mark.integrations


class Script:
    """The names that pages leave to the reader's script."""

    def __init__(self) -> None:
        torch.manual_seed(7)
        self.train = TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
        self.model = torch.nn.Linear(8, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.loader = self.loader_of(8)
        self.steps = 0

    def loader_of(self, samples: int) -> Any:
        return DataLoader(self.train, batch_size=samples)

    def step(self, model: Any, optimizer: Any, batch: Any) -> Any:
        self.steps += 1
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(batch[0]), batch[1])
        loss.backward()
        optimizer.step()
        return loss

    def loss(self, model: Any) -> float:
        with torch.no_grad():
            return float(torch.nn.functional.mse_loss(model(self.train.tensors[0]), self.train.tensors[1]))

    def evaluate(self, model: Any) -> float:
        return 1.0 - self.loss(model)


def is_warm(names: dict[str, Any], script: Script) -> bool:
    """Whether the model is the current one."""
    return all(torch.equal(value, CURRENT[name]) for name, value in script.model.state_dict().items())


def is_followed(names: dict[str, Any], script: Script) -> bool:
    """Whether the schedule has its pipeline."""
    return hasattr(names["schedule"], FOLLOWED)


torch.manual_seed(5)
CURRENT = torch.nn.Linear(8, 1).state_dict()
# What a page's block has done.
DONE: dict[str, Callable[[dict[str, Any], Script], bool]] = {
    "client.md": lambda names, script: script.optimizer.param_groups[0]["lr"] == names["probes"].best,
    "integrations.md": lambda names, script: names["loader"].batch_size * names["parts"].accumulation == 256,
    "publishing.md": is_warm,
    # 100 epochs of 64 samples in batches of 32.
    "probes.md": lambda names, script: script.steps == 200,
    "torch-pipelines.md": is_followed,
}


@pytest.fixture
def run(tmp_path: Path) -> Iterator[wattloop.Run]:
    """A run that begins with the current model."""
    current = tmp_path / "current"
    current.mkdir()
    torch.save(CURRENT, current / "model.pt")
    variables = {"OUTPUT_DIR": tmp_path / "attempt", "CURRENT_MODEL": current, "WARM_START_DIR": current}
    environment = {f"WATTLOOP_{name}": str(path) for name, path in variables.items()}
    with wattloop.Run(batch_size=256, environment=environment) as began:
        yield began


@pytest.fixture
def stage() -> Iterator[PipelineStage]:
    """The one stage of a pipeline of one process."""
    torch.distributed.init_process_group("gloo", rank=0, world_size=1, store=torch.distributed.HashStore())
    yield PipelineStage(torch.nn.Linear(8, 1), 0, 1, torch.device("cpu"))
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("block", blocks_of(TORCH), ids=str)
def test_a_block_with_pytorch_runs(block: Block, run: wattloop.Run, stage: PipelineStage) -> None:
    script = Script()
    given = ("train", "model", "optimizer", "loader", "loader_of", "step", "loss", "evaluate")
    names: dict[str, Any] = {name: getattr(script, name) for name in given}
    names |= {"torch": torch, "DataLoader": DataLoader, "run": run, "stage": stage, "Schedule1F1B": Schedule1F1B}
    exec(compile(block.text, str(block), "exec"), names)
    assert DONE[block.page](names, script)
