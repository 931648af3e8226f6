"""The Python of the readers' pages runs, on a simulated GPU, in the script that the pages assume."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nvml_simulator
from support.agents.simulated_node import SimulatedNode, simulated_node
from support.reader_pages.block_table import blocks_here
from support.reader_pages.pages import Block

# Windows are measured by the clock of the process, and power limits by that of the GPUs.
IN_REAL_TIME = {"energy-windows.md"}
SECOND_OF_WORK = 312.0  # teraflop of an A100 in a second at its highest clock
BATCHES = 4
# The steps that each page's training has: epochs, batches, and instructions with the optimizer's step.
STEPS = {
    "client.md": 30 * BATCHES,
    "energy-windows.md": BATCHES,
    "migrating-from-zeus.md": 0,
    "pipeline.md": BATCHES * (2 * 16 + 1),
    "power.md": 60 * BATCHES,
}
# A page prints what it has measured.
PRINTED = {"energy-windows.md": r"[1-9]\d*\.\d+ ± [1-9]\d*\.\d+ J\n"}


Nodes = dict[str, SimulatedNode]


class Batches:
    """The data of a script: a function of the batch size, and its batches."""

    def __call__(self, samples: int) -> Batches:
        return self

    def __iter__(self) -> Iterator[list[int]]:
        return iter([[0] * 64] * BATCHES)


class Script:
    """The names that pages leave to the reader's script; its GPU works in each step."""

    def __init__(self, gpus: nvml_simulator.Machine, work: float) -> None:
        self.gpus, self.work, self.steps = gpus, work, 0
        self.optimizer = self
        self.batches = self.loader = Batches()
        self.epochs, self.stage = 60, 0
        self.schedule = [(kind, microbatch) for kind in ("forward", "backward") for microbatch in range(16)]

    def step(self, *_: Any) -> None:
        self.steps += 1
        self.gpus.occupy(0, work=self.work, intensity=0.9)

    def evaluate(self) -> float:
        return 0.5

    def names(self) -> dict[str, Any]:
        given = ("batches", "loader", "epochs", "stage", "schedule", "optimizer", "evaluate")
        return {name: getattr(self, name) for name in given} | {"train": self.step, "run": self.step}


def code_of(block: Block) -> str:
    """The Python of a block; of a difference, its new lines."""
    if block.kind == "diff":
        return "\n".join(line[1:] for line in block.text.splitlines() if line.startswith("+"))
    return block.text


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    """An agent with one GPU, by the clock of the GPU."""
    with simulated_node(1, "wall") as wall, simulated_node(1, "virtual") as virtual:
        yield {"wall": wall, "virtual": virtual}


PAGES = {block.page for block in blocks_here("python", "diff")}


@pytest.mark.parametrize("page", sorted(PAGES))
def test_the_python_of_a_page_runs(
    page: str, nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    node = nodes["wall" if page in IN_REAL_TIME else "virtual"]
    monkeypatch.setenv("WATTLOOP_AGENT_SOCKET", str(node.socket))
    script = Script(node.gpus, SECOND_OF_WORK / 4 if page in IN_REAL_TIME else SECOND_OF_WORK)
    names = script.names()
    for block in blocks_here("python", "diff"):
        if block.page == page:
            exec(compile(code_of(block), str(block), "exec"), names)
    assert script.steps == STEPS[page]
    assert re.fullmatch(PRINTED.get(page, ""), capsys.readouterr().out)
